"""The sweep of batches and workers: what is best, what a cell says, the real program in each."""

import json
import math
from pathlib import Path

import pytest

from ml_assets.actions.tune_batch import Cell, Setting, best, next_share, why_not
from ml_assets.spec.training_program import MeasureResult
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world")).plant(irises)


@pytest.fixture(scope="module")
def prepared(world: World) -> World:
    world.cli("run", "irises", "--through", "training_set")
    return world


def cell(batch, processes, speed):
    found = MeasureResult(
        session="s",
        attempt=1,
        rows_per_second=speed,
        rows_per_cpu_second=speed / processes,
        step_time_ms=1.0,
        memory_total_mb=1.0,
        data_wait_share=0.0,
        communication_share=0.0,
    )
    return Cell(Setting(batch, processes, 1), found, "")


def test_the_best_is_the_fastest_and_among_equals_the_one_on_the_fewest_cores():
    failed = Cell(Setting(9000, 1, 1), None, "out of memory")
    assert best([cell(24, 1, 100.0), cell(24, 2, 150.0), failed]) == cell(24, 2, 150.0)
    assert best([cell(24, 1, 149.0), cell(24, 2, 150.0)]) == cell(24, 1, 149.0)
    assert best([cell(96, 1, 150.0), cell(24, 1, 149.0)]) == cell(24, 1, 149.0)
    assert best([failed]) is None


@pytest.mark.parametrize("each", [0.3, 4.0, 40.0])
@pytest.mark.parametrize("most", [310.0, 900.0, 12_345.0])
@pytest.mark.parametrize("block", [1, 7])
def test_the_largest_batch_is_found_to_5_percent_in_a_few_tries(each, most, block):
    def memory(share):  # an allocator takes whole blocks
        return 300 + each * -(-share // block) * block

    true = max((n for n in range(50_000) if memory(n) <= most), default=0)
    fits, over, share = {}, {}, 8
    while share is not None:
        taken = memory(share)
        (fits if taken <= most else over)[share] = taken
        share = next_share(fits, over, most)
    assert len(fits) + len(over) <= 14
    assert 0.95 * true - 1 <= max(fits, default=0) <= true


def test_the_largest_batch_is_found_where_too_much_only_fails():
    fits, over, share, tries = {}, {}, 8, 0
    while share is not None:
        tries += 1
        if share <= 777:
            fits[share] = 300.0 + share
        else:
            over[share] = None
        share = next_share(fits, over, math.inf)
    assert 0.95 * 777 <= max(fits) <= 777
    assert tries <= 14
    assert next_share({}, {1: None}, math.inf) is None


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ("p stopped\n  It said: torch.OutOfMemoryError: CUDA out of memory (rank 0)", None),
        ("p stopped: it was killed (SIGKILL): probably out of memory, or somebody", None),
        ("p stopped: a bug\n  It said: ValueError: no (rank 0)", "ValueError: no (rank 0)"),
    ],
)
def test_a_cell_says_in_a_few_words_why_it_has_no_figures(report, words):
    assert why_not(report) == (words or "out of memory")


def test_a_pipeline_without_a_training_set_is_told_how_to_make_one(world: World):
    said = world.cli("models", "tune-batch", "irises", code=1)
    assert "ml-assets run irises --through training_set" in said


def test_each_setting_is_measured_by_the_real_program_and_nothing_of_it_stays(prepared: World):
    before = files(prepared.root / "state")
    asked = ["--batch", "24,50", "--processes", "1,2", "--threads", "1", "--steps", "2"]
    done = prepared.streams("models", "tune-batch", "irises", *asked, "--json")
    found = json.loads(done.stdout)
    cells = {(one["batch"], one["processes"]): one for one in found["cells"]}
    assert list(cells) == [(24, 1), (50, 1), (24, 2), (50, 2)]
    assert cells[50, 1]["why_not"].startswith(
        "batch_size 50 must be a multiple of microbatches 12: write batch_size: 60"
    )
    one, two = cells[24, 1], cells[24, 2]
    assert one["rows_per_second"] * one["step_time_ms"] / 1000 == pytest.approx(24, rel=0.01)
    assert one["communication_share"] < two["communication_share"] < 1
    assert two["memory_total_mb"] > 1.5 * one["memory_total_mb"]
    assert found["best"] in found["cells"]
    assert "best: training: {batch_size: 24, processes: " in done.stderr
    assert files(prepared.root / "state") == before


def test_the_largest_batch_is_told(prepared: World):
    asked = ["--processes", "1", "--steps", "2", "--largest"]
    done = prepared.streams("models", "tune-batch", "irises", *asked, "100000", "--json")
    found = json.loads(done.stdout)
    assert "largest: training: {batch_size: " in done.stderr
    over = min(one["batch"] for one in found["cells"] if "why_not" in one)
    parts = 12  # a batch is a multiple of the microbatches
    assert (
        found["best"]["batch"]
        < over
        <= max(1.05 * found["best"]["batch"], found["best"]["batch"] + parts)
    )
    assert "more rows than the training split has" in {c.get("why_not") for c in found["cells"]}
    said = prepared.cli("models", "tune-batch", "irises", *asked, "10", code=1)
    assert "MB, more than 10" in said and "nothing could be measured" in said


def test_types_of_gpus_are_shown_with_what_the_program_counted(prepared: World):
    asked = ["models", "gpus", "irises", "--prices", "H100=2.5"]
    found = json.loads(prepared.streams(*asked, "--utilization", "0.1", "--json").stdout)
    h100 = next(one for one in found["gpus"] if one["name"] == "H100")
    assert h100["fits"] and 0 < h100["hours"] < 0.01
    assert h100["cost"] == pytest.approx(2.5 * h100["hours"])
    told = prepared.cli(*asked)
    assert "operations a row" in told and "hours at 30%" in told
    assert "known are T4, L4," in prepared.cli(*asked[:-1], "H1=2", code=2)


def test_out_of_memory_is_a_cell_that_says_so(prepared: World, tmp_path: Path):
    spec = prepared.pipelines / "irises" / "defs.yaml"
    text = spec.read_text()
    spec.write_text(text.replace("width: 32", "width: 10000000"))  # more than any address space
    try:
        said = prepared.cli(
            "models", "tune-batch", "irises", "--batch", "24,48", "--processes", "1", code=1
        )
    finally:
        spec.write_text(text)
    assert said.count("out of memory") == 2
    assert "nothing could be measured" in said


def files(folder: Path) -> set[Path]:
    """Without SQLite's own, which come and go with who has a database open."""
    found = {path for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not path.name.endswith(("-wal", "-shm"))}
