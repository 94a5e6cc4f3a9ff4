"""The screen while a run works: bars on a terminal, short lines elsewhere, all by --verbose."""

import io
import subprocess
import sys

import pytest

from ml_assets.cli.run import screen

TOLD = (
    "make  air/raw_snapshot/raw_rows [2023-01-01 .. 2023-03-01: 30 partitions]: never made",
    "make  air/raw_snapshot/raw_days [2023-01-01]: never made",
    "skip  air/feature_set [2023-01-01 .. 2023-03-01: 30 partitions]: same code, same inputs",
    "skip  air/trained_model: same code, same inputs",
    "> air__raw_snapshot__raw_rows",
    *(f"  air/raw_snapshot/raw_rows/p{n}: 1,444 rows ({n} of 30)" for n in range(1, 31)),
    "  [pass] schema: as declared in 3 of 3",
    "> air__evaluation_report",
    "  baseline constant",
    "  resumed at step 140 of 300",
    "  stopped early at step 200: no better",
    "  warning: the outcome of 3 rows is not known",
    "  [warn] splits_alike: the label differs",
    "  [fail] champion: worse \x1b[31m",
)
TABLE = [
    "made     raw_snapshot (2 tables, 31 partitions)",
    "skipped  feature_set (30 partitions), trained_model: same code, same inputs",
]


def test_short_lines_say_what_is_made_how_far_it_is_and_what_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with screen(verbose=False) as tell:
        for line in TOLD:
            tell(line)
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == list(TOLD[:5])
    far = [line for line in said if " of 30)" in line]
    assert far[0] == TOLD[5] and far[-1].endswith("(30 of 30)")
    assert len(far) == 4, "the first, then every fourth"
    assert not any("[pass]" in line or "baseline" in line for line in said)
    assert "  resumed at step 140 of 300" in said
    assert "  stopped early at step 200: no better" in said
    assert [line[:8] for line in said[-6:-3]] == ["  warnin", "  [warn]", "  [fail]"]
    assert said[-3:] == ["", *TABLE]


def test_a_step_that_takes_hours_is_heard_of_in_between(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("ml_assets.cli.run.time.monotonic", lambda: now)
    with screen(verbose=False) as tell:
        for step in range(1, 10):
            now = 20.0 * step
            tell(f"  step {step} of 100000: train loss 0.5, 9 rows/s")
    said = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert [int(line.split()[1]) for line in said] == [1, 4, 7], "every 60 s"


def test_verbose_is_every_line_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with screen(verbose=True) as tell:
        for line in TOLD:
            tell(line)
    assert capsys.readouterr().out.splitlines() == [*"\n".join(TOLD).splitlines(), "", *TABLE]


def test_the_table_ends_with_the_rows_that_were_kept_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = (
        "kept  2 of 9 rows of the table 'days' in quarantine: 2 by unique__day; see ml-assets data"
    )
    with screen(verbose=False) as tell:
        tell(line)
        tell(TOLD[3])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == line
    assert said[-1] == line.replace("kept  ", "kept     ")


def test_what_failed_has_no_table_of_what_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), screen(verbose=False) as tell:
        tell(TOLD[0])
        raise RuntimeError
    assert capsys.readouterr().out.splitlines() == [TOLD[0]]


def test_where_nothing_was_due_the_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with screen(verbose=False) as tell:
        tell("skip  air/trained_model: same code, same inputs")
        tell("skip  drift_report: same periods, same release")
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "made     nothing: everything is up to date",
        "skipped  trained_model: same code, same inputs",
        "skipped  drift_report: same periods, same release",
    ]


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_for_each_step_and_a_table_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stdout", seen)
    monkeypatch.setattr(sys, "__stdout__", seen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with screen(verbose=False) as tell:
        for line in TOLD:
            tell(line)
    shown = seen.getvalue()
    assert "air/raw_snapshot/raw_rows" in shown and "30/30" in shown
    assert "air/evaluation_report" in shown
    assert "[fail] champion: worse \\x1b[31m" in shown, "data does nothing to the terminal"
    assert "1,444 rows" not in shown and "baseline" not in shown
    assert "Dependencies" not in shown
    assert shown.splitlines()[-2:] == TABLE


def test_the_table_keeps_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stdout", seen)
    monkeypatch.setattr(sys, "__stdout__", seen)
    monkeypatch.setenv("COLUMNS", "48")
    with screen(verbose=False) as tell:
        for line in TOLD[:4]:
            tell(line)
    assert seen.getvalue().splitlines()[-3:] == [
        "made     raw_snapshot (2 tables, 31 partitions)",
        "skipped  feature_set (30 partitions),",
        "         trained_model: same code, same inputs",
    ]


def test_the_command_line_loads_no_bars_before_it_draws_them() -> None:
    code = "import sys, ml_assets.cli.run, ml_assets.cli.run; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
