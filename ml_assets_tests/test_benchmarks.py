"""The runner of the benchmarks: it names what is lacking, loses no crash, and writes the page."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kept as kept_figures
from benchmarks.__main__ import main
from benchmarks.catalog import HERE, benchmarks
from benchmarks.figures import KEPT
from benchmarks.kept import Figure, results
from benchmarks.page import PAGE, page

GOOD = """\
\"\"\"How long a nap is: python benchmarks/nap.py\"\"\"

from figures import tell

tell("nap_seconds", 2.0, 3)
tell("nap_dreams", 1, 5, at="least", why="It is too short for more.")
"""
CRASHES = GOOD.replace("nap", "fall") + "[][0]\n"
LACKS = GOOD.replace("nap", "moon").replace(
    "from figures", "import a_package_that_nobody_has\nfrom figures"
)
NEEDY = GOOD.replace("nap", "mars") + 'NEEDS = ("program a-rocket", "setting A_LANDING_PLACE")\n'


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of four small benchmarks, which the runner takes for its own."""
    (tmp_path / "figures.py").write_text((HERE / "figures.py").read_text())
    for name, text in {"nap": GOOD, "fall": CRASHES, "moon": LACKS, "mars": NEEDY}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr("benchmarks.catalog.HERE", tmp_path)
    monkeypatch.setattr("benchmarks.__main__.benchmarks", lambda: benchmarks(tmp_path))
    monkeypatch.setattr("benchmarks.__main__.PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(kept_figures, "RESULTS", tmp_path / "results")
    return tmp_path


def test_every_file_that_tells_a_figure_is_listed(capfd: pytest.CaptureFixture[str]) -> None:
    named = {one.name for one in benchmarks()}
    telling = {f.stem for f in HERE.glob("*.py") if "    tell(" in f.read_text()}
    assert named == telling and len(named) > 15
    assert main([]) == 0
    said = capfd.readouterr().out
    assert all(name in said for name in named)


def test_a_benchmark_is_a_module_too() -> None:
    code = "import benchmarks.size; print(benchmarks.size.tell.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    assert done.stdout == "figures\n", done.stderr


def test_that_of_a_gpu_runs_to_its_end_without_one_and_tells_no_figure(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
    kept = tmp_path / "figures.jsonl"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", KEPT: str(kept)}
    command = [sys.executable, str(HERE / "gpu.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "this is a toy on the CPU, without a compiler, and no measurement" in done.stdout
    for name in ("toy_mfu_pct", "toy_step_to_plain", "width_16_step_to_plain", "stall_to_save"):
        (line,) = [line for line in done.stdout.splitlines() if name in line]
        assert line.endswith(" no measurement")
    assert not kept.exists()


def test_what_a_benchmark_lacks_is_named_before_it_begins(
    planted: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lacks = {one.name: one.lacks for one in benchmarks(planted)}
    assert lacks["nap"] == ()
    assert lacks["moon"] == ("package a_package_that_nobody_has",)
    assert lacks["mars"] == ("program a-rocket", "setting A_LANDING_PLACE")
    assert main(["run", "moon"]) == 1
    assert "moon: not run, it lacks package a_package" in capfd.readouterr().out
    assert not (planted / "results").exists()


def test_a_crash_is_told_and_kept_with_the_figures_before_it(
    planted: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run"]) == 1
    said = capfd.readouterr().out
    assert "fall: FAILED, exit code 1: IndexError: list index out of range" in said
    found = results()
    assert found["nap"].failed == "" and found["nap"].load[0] >= 0
    assert [figure.name for figure in found["fall"].figures] == ["fall_seconds", "fall_dreams"]
    assert main(["page"]) == 0
    written = (planted / "figures.md").read_text()
    assert "**It failed**, so that figures are missing: `exit code 1: IndexError" in written
    assert "| `nap_seconds` | 2 | at most 3 | holds |  |" in written
    assert "| `nap_dreams` | 1 | at least 5 | **short** | It is too short for more. |" in written
    assert "`mars`, `moon`" in written


def test_several_runs_are_told_by_their_median(planted: Path) -> None:
    count = planted / "count"
    (planted / "nap.py").write_text(
        "from pathlib import Path\nfrom figures import tell\n"
        f"f = Path({str(count)!r}); n = int(f.read_text()) + 1 if f.exists() else 1\n"
        "f.write_text(str(n)); tell('nap_seconds', n * n, 3)\n"
    )
    assert main(["run", "nap", "--times", "3"]) == 0
    assert results()["nap"].figures == (Figure(name="nap_seconds", value=4, aim=3, at="most"),)
    assert main(["page"]) == 1, "it is short, and nobody says why"


def test_a_strange_name_is_told(planted: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "venus"]) == 2
    assert "no benchmark: venus; there are fall, mars, moon, nap" in capfd.readouterr().out


def test_the_page_is_what_the_kept_runs_say() -> None:
    assert PAGE.read_text() == page(benchmarks(), results()), "run: python -m benchmarks page"


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks"], cwd=HERE.parent, capture_output=True, check=True
    )
    assert b"start_up" in done.stdout


def test_a_step_that_the_overhead_does_not_know_loses_no_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(HERE)
    clock = importlib.import_module("overhead")._Clock()
    for line in ("> p__raw_snapshot__raw_flights", "> p__sanity", "> p__evaluation_report"):
        clock.write(line)
    clock.mark("release")
    assert list(clock.found) == ["start", "sources", "other", "report"]
