"""The runner of the benchmarks: it names what is lacking, loses no crash, and writes the page."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from benchmarks import kept as kept_figures
from benchmarks import peers
from benchmarks.__main__ import main
from benchmarks.catalog import HERE, benchmarks
from benchmarks.figures import KEPT
from benchmarks.kept import Figure, product, results
from benchmarks.page import PAGE, page, proof
from ml_assets_tests.fresh import said_by
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.s3 import s3_server
from ml_assets_tests.worlds.iris_pods import world_on

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
BESIDE = GOOD.replace("nap", "tea") + (
    'tell("tea_cups", 4)\nPEERS = ("cake",)\nNOTE = "Cake is not drunk."\n'
)
NEEDY = GOOD.replace("nap", "mars") + 'NEEDS = ("program a-rocket", "setting A_LANDING_PLACE")\n'
PLANTED = {"nap": GOOD, "fall": CRASHES, "moon": LACKS, "mars": NEEDY, "tea": BESIDE}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of five small benchmarks, which the runner takes for its own."""
    (tmp_path / "figures.py").write_text((HERE / "figures.py").read_text())
    for name, text in PLANTED.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr("benchmarks.catalog.HERE", tmp_path)
    monkeypatch.setattr("benchmarks.__main__.benchmarks", lambda: benchmarks(tmp_path))
    monkeypatch.setattr("benchmarks.__main__.PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(kept_figures, "RESULTS", tmp_path / "results")
    monkeypatch.setenv(peers.FOLDER, str(tmp_path / "peers"))
    monkeypatch.setitem(peers.PINS, "cake", {"package": str(_wheel(tmp_path, "1.0"))})
    return tmp_path


def _wheel(folder: Path, version: str) -> Path:
    """A package of one module, ``cake``."""
    file, info = folder / f"cake-{version}-py3-none-any.whl", f"cake-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("cake.py", f"VERSION = {version!r}\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: cake\nVersion: {version}\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return file


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


@pytest.mark.daemon
def test_each_benchmark_that_lacks_nothing_finds_what_it_imports() -> None:
    whole = [one.name for one in benchmarks() if not one.lacks]
    code = (
        "import importlib, sys; [importlib.import_module(f'benchmarks.{n}') for n in sys.argv[1:]]"
    )
    said_by(code, *whole, cwd=HERE.parent)
    assert "references" in whole


@pytest.mark.daemon
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
    assert "- `moon` needs package a_package_that_nobody_has\n" in written
    assert "- `mars` needs program a-rocket, setting A_LANDING_PLACE\n" in written


@pytest.mark.daemon
def test_a_peer_has_an_environment_of_its_own_in_the_pinned_version(
    planted: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = "goes on without cake (python -m benchmarks peers cake)"
    assert main([]) == 0 and goes_on in capfd.readouterr().out
    assert main(["peers", "tart"]) == 2 and "no peer: tart" in capfd.readouterr().out
    assert main(["peers", "cake"]) == 0
    assert main([]) == 0 and goes_on not in capfd.readouterr().out
    look = "import cake, importlib.util as of; print(cake.VERSION, of.find_spec('polars') is None)"

    def seen(settings: dict[str, str]) -> str:
        command = [peers.python("cake"), "-c", look]
        return subprocess.check_output(command, env=os.environ | settings, text=True).strip()

    assert seen(peers.QUIET) == "1.0 True", "it sees nothing of this environment"
    assert seen(peers.beside()) == "1.0 False", "its own first, then those of this environment"
    monkeypatch.setitem(peers.PINS, "cake", {"package": str(_wheel(planted, "2.0"))})
    assert main([]) == 0 and goes_on in capfd.readouterr().out
    assert main(["peers", "cake"]) == 0 and seen({}) == "2.0 True"


def test_what_has_no_aim_is_neither_short_nor_counted(planted: Path) -> None:
    assert main(["run", "tea"]) == 0
    assert main(["page"]) == 0
    written = (planted / "figures.md").read_text()
    assert "2 figures with an aim: 1 hold, 1 are short." in written
    assert "| `tea_cups` | 4 | | | |" in written
    assert "\n\nCake is not drunk.\n\n| figure" in written


def test_a_peer_that_was_missing_is_kept_and_named_on_the_page(planted: Path) -> None:
    assert main(["run", "tea", "nap"]) == 0
    assert main(["page"]) == 0
    written = (planted / "figures.md").read_text()
    said = "Nothing compares with what was not installed: cake (`python -m benchmarks peers cake`)."
    assert written.count(said) == 1 and written.index(said) > written.index("## tea")
    assert (results()["tea"].missing, results()["nap"].missing) == (("cake",), ())


def _committed(folder: Path, file: str, text: str) -> None:
    """A commit of one file."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    me = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    for asked in (["init", "--quiet"], ["add", file], [*me, "commit", "--quiet", "-m", file]):
        subprocess.run(["git", *asked], cwd=folder, check=True)


def test_figures_are_of_one_product_until_a_file_of_it_changes(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = planted / "clone"
    monkeypatch.setattr(kept_figures, "ROOT", clone)
    clone.mkdir()
    assert product() == "", "git knows nothing of it"
    _committed(clone, "ml_assets/model.py", "1\n")
    assert main(["run", "nap"]) == 0
    _committed(clone, "docs/page.md", "Said better.\n")
    assert main(["run", "tea"]) == 0
    nap, tea = results()["nap"], results()["tea"]
    assert nap.commit != tea.commit and nap.product == tea.product == product()
    assert len(product()) == 12

    def page_now() -> str:
        assert main(["page"]) == 0
        return (planted / "figures.md").read_text()

    assert f"All figures are of one product, `{product()}`.\n" in page_now()
    assert f". Commit {tea.commit}, product {product()}, 2" in page_now()
    of = f"Of commit {nap.commit}, on 2026-11-28: 9 faults struck."
    told = proof([nap, tea], f"# Faults\n\n{of}\n")
    assert f"The product here is `{product()}`" in told
    assert "- `docs/figures.md`: 2 of 2 benchmarks are of this product.\n" in told
    assert f"- `docs/faults.md`: {of} That is this product.\n" in told
    (clone / "ml_assets" / "model.py").write_text("2\n")
    assert product() == f"{nap.product}+"
    _committed(clone, "ml_assets/model.py", "3\n")
    time.sleep(1)  # the newest is told by the second
    assert main(["run", "nap"]) == 0
    newest = f"The newest product that was measured is `{product()}`. The figures of these"
    assert f"{newest} benchmarks are not of it: tea (`{tea.product}`).\n" in page_now()
    told = proof(list(results().values()), of)
    assert f"1 of 2 benchmarks are of this product; not of it: tea (`{tea.product}`).\n" in told
    assert f"9 faults struck. That is another product, `{tea.product}`." in told
    assert "Git does not know that commit here." in proof([], "Of commit 1234567, on")
    _as_before("tea")
    assert f"{newest} benchmarks are not of it: tea.\n" in page_now()
    _as_before("nap")
    assert "The last runs are from before their product was kept.\n" in page_now()


def _as_before(name: str) -> None:
    """Take from a result what older runners did not keep."""
    file = kept_figures.RESULTS / f"{name}.json"
    known = json.loads(file.read_text())
    file.write_text(json.dumps({key: known[key] for key in known.keys() - {"product", "missing"}}))


@pytest.mark.daemon
def test_the_trivial_graph_is_taken_without_the_peers_that_are_not_there(tmp_path: Path) -> None:
    kept = tmp_path / "figures.jsonl"
    settings = {peers.FOLDER: str(tmp_path), KEPT: str(kept)}
    done = subprocess.run(
        [sys.executable, str(HERE / "trivial.py"), "1"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = {(one := json.loads(line))["name"]: one for line in kept.read_text().splitlines()}
    for name in ("ours", "dagster"):
        for turn in ("fresh", "warm"):
            assert told[f"trivial_{name}_{turn}_cpu_s"]["value"] > 0
    ratio = told["trivial_warm_cpu_to_dagster"]
    assert ratio["aim"] == 1 and ratio["value"] > 0.5, "plain Dagster is a part of ours"
    for name in ("kedro", "metaflow", "zenml"):
        assert f"goes on without {name} (" in done.stdout
        assert not any(name in figure for figure in told)


@pytest.mark.parametrize(
    ("says", "asked"), [("", ["--times", "3"]), ("MEDIAN_OF = 3\n", []), ("MEDIAN_OF = 7\n", ["3"])]
)
def test_several_runs_are_told_by_their_median(
    says: str, asked: list[str], planted: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    count = planted / "count"
    (planted / "nap.py").write_text(
        f"from pathlib import Path\nfrom figures import tell\n{says}EACH_IS = 'of two turns'\n"
        f"f = Path({str(count)!r}); n = int(f.read_text()) + 1 if f.exists() else 1\n"
        "f.write_text(str(n)); tell('nap_seconds', n * n, n)\n"
    )
    assert main(["run", "nap", *(["--times", *asked] if asked == ["3"] else asked)]) == 0
    aim = 2  # it is measured too, so it is the median of theirs
    assert results()["nap"].figures == (Figure(name="nap_seconds", value=4, aim=aim, at="most"),)
    assert main(["page"]) == 1, "it is short, and nobody says why"
    assert "short, and its tell() does not say why: nap: nap_seconds" in capfd.readouterr().out
    written = (planted / "figures.md").read_text()
    assert "UTC; medians of 3 runs; " in written
    assert "\n\nEach figure of a run is of two turns.\n\n" in written


def test_a_number_of_runs_that_is_none_is_refused(planted: Path) -> None:
    with pytest.raises(SystemExit):
        main(["run", "nap", "--times", "0"])


SHORT_RUNS = {"start_up", "validation", "processes", "trivial", "input"}
MEDIANS_INSIDE = {"recovery", "cluster_recovery", "lost_pod", "step"}


def test_what_takes_less_than_three_minutes_is_a_median_of_five_at_least() -> None:
    listed = {one.name: one for one in benchmarks()}
    assert {name for name, one in listed.items() if one.median_of == 5} == SHORT_RUNS
    for name in MEDIANS_INSIDE:
        assert re.match("the median of (five|seven) turns", listed[name].each)


def test_a_strange_name_is_told(planted: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "venus"]) == 2
    assert "no benchmark: venus; there are fall, mars, moon, nap, tea" in capfd.readouterr().out


def test_the_page_is_what_the_kept_runs_say() -> None:
    assert PAGE.read_text() == page(benchmarks(), results()), "run: python -m benchmarks page"


def test_each_short_figure_of_the_page_has_a_sentence_and_none_is_missing() -> None:
    text = PAGE.read_text()
    assert "| **short** |" in text and "not said yet" not in text
    assert "It failed" not in text


@pytest.mark.daemon
@pytest.mark.timeout(300)
def test_the_benchmark_of_a_real_cluster_follows_a_lost_pod_to_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the cluster is the tests' own; the benchmark knows it by nothing but the settings."""
    told = tmp_path / "figures.jsonl"
    with s3_server(monkeypatch) as store, ApiServer() as server:
        settings = world_on(store, server, tmp_path).extra
        settings["ML_ASSETS_NAMESPACE"] = server.namespace
        done = subprocess.run(
            [sys.executable, str(HERE / "lost_pod.py"), "1"],
            env={**os.environ, **settings, KEPT: str(told)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(server.calls.of("delete", "pods")) == 1 and server.pods() == []
    found = {(one := json.loads(line))["name"]: one for line in told.read_text().splitlines()}
    assert found["lost_pod_to_next_step_seconds"]["value"] > 0
    assert found["lost_pod_to_next_step_seconds"]["aim"] == 10


@pytest.mark.daemon
def test_a_fresh_machine_is_held_to_pip_alone_and_to_the_bare_script(tmp_path: Path) -> None:
    """The clone is a folder of ours, whose one package is a small one; its commands are fakes."""
    told, called, programs = tmp_path / "figures", tmp_path / "called", tmp_path / "bin"
    needs = f"[project]\ndependencies = ['cake @ {_wheel(tmp_path, '1.0').as_uri()}']"
    files = f'echo "{needs}" > pyproject.toml; touch requirements.lock; mkdir -p .venv/bin'
    fakes = {
        "git": f'mkdir "$4"; cd "$4"; {files}; cp "{programs}/python" .venv/bin',
        "make": 'sleep 0.1; echo "$* $ML_ASSETS_HOME" >> "$CALLED"',
        "python": 'echo "$1 $2" >> "$CALLED"',
    }
    programs.mkdir()
    for name, does in fakes.items():
        (programs / name).write_text(f"#!/bin/sh\nset -e\n{does}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, str(HERE / "fresh_machine.py")],
        env=os.environ | {"PATH": path, "CALLED": str(called), KEPT: str(told)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values = {(o := json.loads(line))["name"]: o["value"] for line in told.read_text().splitlines()}
    install, demo, bare = called.read_text().splitlines()
    home = demo.removeprefix("demo ")
    assert install.split() == ["install"] and bare == f"benchmarks/bare_flights.py {home}/demo"
    for one, other in (("install", "pip_alone"), ("demo", "bare_script")):
        ratio = values[f"fresh_{one}_seconds"] / values[f"fresh_{other}_seconds"]
        assert values[f"fresh_{one}_to_{other}"] == pytest.approx(ratio)


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
