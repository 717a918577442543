"""Every notebook runs from top to bottom; each ends with an assertion."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[notebooks]'")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install -e '.[notebooks]'")


@pytest.mark.timeout(700)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_notebook_runs(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    assert "assert" in book.cells[-1].source
    assert not any(cell.get("outputs") for cell in book.cells), "strip the outputs before committing"
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
