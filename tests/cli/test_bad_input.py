"""Bad input is one line on standard error, exit code 2, and leaves nothing behind."""

import pytest
import tiny_agent

from esopt_jax.cli.main import main


@pytest.fixture
def esopt(workplace, tmp_path, monkeypatch, capsys):
    """Run `esopt train` on a good config with `settings` changed; returns the exit code and standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text("env: {name: echo}\n")

    def run(*settings: str, source: str = "good.yaml", run_dir: str = "out") -> tuple[int, str]:
        good = tiny_agent.settings(workplace / "model", f"{workplace / 'toys.py'}:Even")
        overrides = [f"{key}={value}" for key, value in good.items()] + list(settings)
        words = [word for override in overrides for word in ("--set", override)]
        code = main(["train", source, "--run-dir", run_dir, *words])
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["es.sigmma=0.1"], "unknown key 'es.sigmma': did you mean 'sigma'?"),
        (["ess.sigma=0.1"], "unknown key 'ess': did you mean 'es'?"),
        (["es.population_size=0"], "es.population_size is 0; it must be at least 2"),
        (["es.population_size=7", "es.antithetic=true"], "es.population_size is 7; it must be even"),
        (["es.sigma=-0.1"], "es.sigma is -0.1; it must be a finite number"),
        (["es.sigma=nan"], "es.sigma is nan; it must be a finite number"),
        (["es.sigma"], "--set 'es.sigma' is not of the form section.key=value"),
        (["es.scope=lora:2", "es.sigma_multipliers={norm: 2}"], "names norm, of which es.scope 'lora:2' tunes nothing"),
        (["model.path=''"], "model.path is ''; it must be a folder, a file, ORG/NAME or builtin:NAME"),
        (["model.path=nowhere"], "model folder 'nowhere' does not exist"),
        (["model.path=."], "model folder '.' has no config.json"),
        (["model.path=builtin:sudoko"], "no built-in model 'sudoko'"),
        (["env.name=sudoko"], "unknown environment 'sudoko'"),
        (["env.name=missing.py:Even"], "file 'missing.py' does not exist"),
        (["env.options={size: 4}"], "unknown option 'size'"),
        (["train.mesh=[64, 1]"], "train.mesh is [64, 1], which needs 64 devices"),
        (["env.name=echo", "env.options={turns: 0}"], "turns is 0; it must be a whole number, 1 or more"),
        (["rollout.max_prompt_tokens=1"], "rollout.max_prompt_tokens is 1: set it to at least"),
    ],
)
def test_bad_setting(esopt, settings, message):
    code, err = esopt(*settings)
    lines = [line for line in err.splitlines() if line.startswith("esopt: error: ")]
    assert code == 2 and len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in err


def test_a_mesh_that_does_not_fit_is_refused_before_weights_are_read(esopt, monkeypatch):
    monkeypatch.setattr("esopt_jax.training.session.base_model", lambda *_: pytest.fail("weights were looked for"))
    assert esopt("train.mesh=[64, 1]")[0] == 2


def test_bad_input_is_found_before_the_run_folder_exists(esopt, tmp_path):
    settings = ["es.sigma=nan", "model.path=nowhere", "env.name=sudoko", "train.mesh=[64, 1]"]
    for setting in (*settings, "rollout.max_prompt_tokens=1"):
        assert esopt(setting)[0] == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("quickstrt", "unknown preset 'quickstrt'; did you mean 'quickstart'?"),
        ("none.yaml", "config file 'none.yaml' does not exist"),
    ],
)
def test_bad_source(esopt, source, message):
    code, err = esopt(source=source)
    assert (code, err.count("\n")) == (2, 1) and message in err


def test_a_line_break_in_a_name_does_not_break_the_line(esopt):
    code, err = esopt("es.sig\nma=1")
    assert (code, err.count("\n")) == (2, 1) and "unknown key 'es.sig ma'" in err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def tasks(self, split): return ['a']", "tasks('train') hold 'a', which is no esopt_jax.types.Task"),
        ("def tasks(self, split): raise SystemExit(7)", "tasks('train') failed with SystemExit: 7"),
        ("def __init__(self): raise SystemExit(7)", "could not be built: SystemExit: 7"),
        ("def _ask(self, text): return Observation(('hi',))", "messages must be mappings with the texts 'role'"),
    ],
)
def test_environment_that_no_episode_can_start_with(esopt, tmp_path, body, message):
    (tmp_path / "mine.py").write_text(f"{tiny_agent.EVEN}\n\nclass Mine(Even):\n    {body}\n")
    code, err = esopt("env.name=mine.py:Mine")
    assert code == 2 and message in err and "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--run-dir", "--resume"])
def test_an_empty_folder_name_is_not_the_current_folder(capsys, option):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "smoke", option, ""])
    assert f"argument {option}: an empty name; name a folder" in capsys.readouterr().err


def test_run_folder_that_is_not_empty(esopt, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("mine")
    code, err = esopt()
    assert (code, err.count("\n")) == (2, 1) and "run folder 'out' is not empty" in err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["kept"]


def test_run_folder_below_a_regular_file(esopt, tmp_path):
    (tmp_path / "file").touch()
    code, err = esopt(run_dir="file/out")
    assert (code, err.count("\n")) == (2, 1) and "which is not a folder" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--coordinator", "host:1"], "give --coordinator HOST:PORT, --processes N and --process I"),
        (["--processes", "2", "--process", "0"], "give --coordinator HOST:PORT"),
        (["--coordinator", "host:1", "--processes", "2", "--process", "2"], "with I in 0 .. N-1"),
        (["--coordinator", "host", "--processes", "2", "--process", "0"], "'host'; it must be HOST:PORT"),
        (["--coordinator", "host:99999", "--processes", "2", "--process", "0"], "'host:99999'; it must be HOST:PORT"),
        (["--cluster", "--processes", "2"], "leave these out"),
        (["--cluster", "--seeds", "0..1"], "--seeds runs in one process"),
        (["--cluster"], "cannot join the other processes: "),
    ],
)
def test_other_processes_that_cannot_be(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri"):
        monkeypatch.delenv(name, raising=False)
    assert main(["train", "smoke", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not list(tmp_path.iterdir())
