"""Ctrl-C in any moment of a run is told as an interruption, also while Polars calls Python."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from ml_assets.adapters.execute import execute, interrupts_noted, mark_dead_runs
from ml_assets.adapters.runs import PID_TAG, Selection
from ml_assets.cli.main import interrupts_kept
from ml_assets.errors import Interrupted, RunFailed
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World


def interrupt(*_: object) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return 1


@dg.asset
def schema_of() -> None:
    """A data type is made by Polars' Rust side, which calls the Python class."""
    pl.LazyFrame({"at": []}, schema={"at": pl.Datetime("us")}).collect_schema()


@dg.asset
def function_of_a_team() -> None:
    pl.DataFrame({"x": [1]}).select(pl.col("x").map_elements(interrupt, return_dtype=pl.Int64))


@dg.asset
def plain() -> None:
    interrupt()


SLOW = 4.0


@dg.asset
def slow_to_end() -> None:
    try:
        interrupt()
    finally:
        time.sleep(SLOW)


@dg.asset
def swallowed() -> None:
    """As a library does that catches whatever comes."""
    with suppress(BaseException):
        interrupt()


@dg.asset
def broken() -> None:
    raise ValueError("the reason")


@dg.asset
def broken_in_a_library() -> None:
    pl.DataFrame({"x": [1]}).select("delay")


@pytest.fixture
def instance(interruptible: None) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def run(
    instance: dg.DagsterInstance,
    asset: dg.AssetsDefinition,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    selection = Selection(assets=(asset.key,))
    execute(dg.Definitions(assets=[asset]), instance, "tables", selection, tell)


def test_a_dead_run_whose_process_had_our_number_is_dead(instance: dg.DagsterInstance) -> None:
    """In a container the command's number is 1 each time."""
    tags = {PID_TAG: str(os.getpid())}
    dead = dg.DagsterRun("__ASSET_JOB", status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.add_run(dead)
    assert mark_dead_runs(instance) == [dead.run_id]
    assert mark_dead_runs(instance) == []


@pytest.fixture
def _types_that_are_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    make: Callable[..., None] = pl.Datetime.__init__

    def make_and_interrupt(self: pl.Datetime, *arguments: object) -> None:
        interrupt()
        make(self, *arguments)

    monkeypatch.setattr(pl.Datetime, "__init__", make_and_interrupt)


@pytest.mark.usefixtures("_types_that_are_interrupted")
def test_below_rust_it_ends_the_run_as_anywhere_else(instance: dg.DagsterInstance) -> None:
    with pytest.raises(Interrupted):
        run(instance, schema_of)
    assert [ended.is_finished for ended in instance.get_runs()] == [True]


@pytest.mark.parametrize("asset", [function_of_a_team, plain, swallowed])
def test_an_interrupted_step_is_no_fault_of_its_function(
    instance: dg.DagsterInstance, asset: dg.AssetsDefinition
) -> None:
    with pytest.raises(Interrupted):
        run(instance, asset)


def test_a_run_that_takes_seconds_to_end_says_at_once_that_it_does(
    instance: dg.DagsterInstance,
) -> None:
    told: list[tuple[float, str]] = []
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        run(instance, slow_to_end, lambda line: told.append((time.monotonic(), line)))
    assert time.monotonic() - begun > SLOW
    ((when, said),) = [(at, line) for at, line in told if line.startswith("stopping")]
    assert time.monotonic() - when > SLOW / 4
    assert "Ctrl-C again does not wait" in said


def test_a_step_that_failed_by_itself_is_not_interrupted(instance: dg.DagsterInstance) -> None:
    with pytest.raises(RunFailed, match="the reason"):
        run(instance, broken)


def test_of_an_error_in_a_library_the_line_of_the_team_is_told(
    instance: dg.DagsterInstance,
) -> None:
    with pytest.raises(RunFailed, match="unable to find column") as caught:
        run(instance, broken_in_a_library)
    assert f'File "{__file__}"' in str(caught.value)
    assert '.select("delay")' in str(caught.value)
    assert "site-packages" not in str(caught.value)


@pytest.mark.parametrize("name", ["gates", "sanity", "canary"])
def test_a_table_whose_contract_broke_is_no_refused_model_whatever_its_name(
    instance: dg.DagsterInstance, name: str
) -> None:
    key = dg.AssetKey(["tables", "validated_table", name])
    check = dg.AssetCheckSpec("unique_key", asset=key, blocking=True)

    @dg.asset(key=key, check_specs=[check])
    def table() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=False, check_name="unique_key")
        raise ValueError("two rows share a key")

    with pytest.raises(RunFailed, match="two rows share a key"):
        run(instance, table)


@pytest.mark.usefixtures("interruptible")
def test_the_handlers_are_as_before_afterwards(instance: dg.DagsterInstance) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted):
        run(instance, plain)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("number", "counts"), [(signal.SIGTERM, True), (signal.SIGUSR1, False)])
def test_only_what_asks_for_the_end_counts(number: signal.Signals, counts: bool) -> None:
    before = signal.signal(number, lambda *_: None)
    try:
        with interrupts_noted() as interrupted:
            assert not interrupted
            os.kill(os.getpid(), number)
            assert bool(interrupted) is counts
    finally:
        signal.signal(number, before)
    assert signal.set_wakeup_fd(-1) == -1


NOWHERE = {
    "a finalizer": """
class Left:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def into_nowhere():
    Left()
""",
    "a callback of the garbage collection": """
def interrupted(phase, _):
    gc.callbacks.remove(interrupted)
    signal.raise_signal(signal.SIGINT)


def into_nowhere():
    gc.callbacks.append(interrupted)
    gc.collect()
""",
}
GOES_ON = """
import gc, signal, time
from pathlib import Path
{planted}
def build(tables, window):
    into_nowhere()
    time.sleep(5)
    Path({sign!r}).touch()
    return tables["flowers"]
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("planted", NOWHERE.values(), ids=list(NOWHERE))
def test_a_command_is_interrupted_though_python_swallowed_it(tmp_path: Path, planted: str) -> None:
    world, sign = World(tmp_path), tmp_path / "went on"
    irises.plant(world.pipelines, world.sources)
    code = GOES_ON.format(planted=planted, sign=str(sign))
    (world.pipelines / "irises" / "features.py").write_text(code)
    done = world.streams("run", "irises", "--through", "feature_set", code=130)
    assert done.stderr == "interrupted: what was made is kept; run again to continue\n"
    assert not sign.exists()


@pytest.mark.usefixtures("interruptible")
def test_what_is_swallowed_several_times_at_once_comes_once() -> None:
    class Left:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    before, waits = sys.unraisablehook, threading.Event()
    with interrupts_kept():
        with pytest.raises(KeyboardInterrupt):
            for _ in range(3):
                Left()
            waits.wait(60)
        waits.wait(0.2)  # a second one would end it
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        Left()  # the block ends before it can come
    assert sys.unraisablehook is before
