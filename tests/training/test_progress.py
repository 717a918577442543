import logging

from esopt_jax.training.progress import plain_line, progress

_ROW = {"generation": 0, "fitness/mean": 0.25, "fitness/best": 0.5, "sigma": 0.02, "tokens_per_s": 8000.0}


def test_plain_mode_logs_one_line_a_generation(caplog):
    caplog.set_level(logging.INFO)
    with progress("plain", 2) as report:
        report(_ROW)
        report({**_ROW, "generation": 1})
    lines = [record.message for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("generation 1/2  fitness 0.250  best 0.500") and "8.0k tokens/s" in lines[0]
    assert lines[1].endswith("ETA 0:00:00")


def test_auto_mode_is_plain_when_standard_error_is_no_terminal(caplog):
    caplog.set_level(logging.INFO)
    with progress("auto", 1) as report:
        report(_ROW)
    assert len(caplog.records) == 1


def test_rich_mode_shows_the_scores(capsys):
    with progress("rich", 2) as report:
        report(_ROW)
    shown = capsys.readouterr().err
    assert "1/2" in shown and "fitness 0.250" in shown and "8.0k tokens/s" in shown


def test_none_mode_is_silent(capsys, caplog):
    caplog.set_level(logging.INFO)
    with progress("none", 2) as report:
        report(_ROW)
    assert not caplog.records and capsys.readouterr() == ("", "")


def test_eta_is_proportional_to_what_is_left():
    assert plain_line({**_ROW, "generation": 4}, 20, 50.0).endswith("ETA 0:02:30")
