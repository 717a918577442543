"""A run as one HTML file that needs nothing else: no network, no other file.

Whatever a model, an environment or a config wrote is data in the page: it stands in script blocks that are not run, as
JSON or packed, and the page's own script shows it as text. A Content-Security-Policy allows that one script and that
one style by their digests, and no request at all.
"""

from __future__ import annotations

import html
import os
import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from esopt_jax.errors import EsoptError
from esopt_jax.reporting.boards import episode_boards
from esopt_jax.reporting.decoder import run_decoder
from esopt_jax.reporting.page_episodes import EpisodeTable, recorded_episodes, tabulate
from esopt_jax.reporting.page_members import best_and_worst, read_fitness
from esopt_jax.reporting.page_overview import overview
from esopt_jax.reporting.page_text import as_json, digest_source
from esopt_jax.reporting.run_files import open_run, read_config, read_summary
from esopt_jax.reporting.run_state import read_state

NAME = "view.html"
"""Of the page in the run folder."""

_SCRIPTS = ("data.js", "text.js", "charts.js", "list.js", "episode.js", "overview.js", "view.js")
_POLICY = "default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'"


def write_page(run_dir: Path, *, out: Path | None = None) -> Path:
    """Write the page of the run in `run_dir`, which may still be going on.

    Args:
        run_dir: a run folder.
        out: the page; by default `view.html` in the folder.

    Returns:
        The path of the page.

    Raises:
        EsoptError: there is no such run, a file of it is damaged, or the page cannot be written.
    """
    folder = open_run(run_dir)
    config, state = read_config(folder), read_state(run_dir)
    decode = run_decoder(run_dir) if any(folder.trajectories(0).parent.glob("*.jsonl.gz")) else None
    boards = partial(episode_boards, config=config, decode=decode)
    table = tabulate(recorded_episodes(folder), decode, boards)
    head = {
        **overview(state, config, read_summary(folder) or {}),
        "folder": str(run_dir),
        "decoded": decode is not None,
        "columns": table.columns,
        "tasks": table.tasks,
        "errors": table.errors,
        "members": best_and_worst(table.columns, read_fitness(folder.history)),
        "sizes": [pack.size for pack in table.packs],
    }
    return _save(render_page(head, table), run_dir / NAME if out is None else out)


def check_page(path: Path) -> None:
    """Refuse a file that no page can be written to.

    Raises:
        EsoptError: its ending is not .html or .htm, or its folder does not exist.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise EsoptError(f"--out {str(path)!r} ends in {path.suffix!r}; it must end in .html")
    if not path.parent.is_dir():
        raise EsoptError(f"--out {str(path)!r} cannot be written: {str(path.parent)!r} is not a folder")


def render_page(head: dict[str, Any], table: EpisodeTable) -> str:
    """The HTML.

    Args:
        head: what the page reads when it opens.
        table: of its episodes, whose turns it reads later.
    """
    style, script = _file("style.css"), "\n".join(_file(name) for name in _SCRIPTS)
    packs = (
        f'<script type="application/gzip" id="pack-{i}">{pack.text}</script>' for i, pack in enumerate(table.packs)
    )
    parts = {
        "policy": _POLICY.format(script=digest_source(script), style=digest_source(style)),
        "title": _title(head["name"]),
        "style": style,
        "head": as_json(head),
        "packs": "\n".join(packs),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page.html"))  # once: parts are not searched


def _title(name: str) -> str:
    """For the window's frame, where nothing can be marked: characters that are not seen or move others are left out."""
    return html.escape("".join(filter(str.isprintable, name)))


def _file(name: str) -> str:
    return (files("esopt_jax.reporting") / "viewer" / name).read_text(encoding="utf-8")


def _save(text: str, path: Path) -> Path:
    """Write the page; a reader sees all of it or none."""
    partial_path = path.with_name(f".{path.name}.part")
    try:
        partial_path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        os.replace(partial_path, path)
    except OSError as fault:
        raise EsoptError(f"cannot write the page {str(path)!r}: {fault.strerror or fault}") from None
    return path
