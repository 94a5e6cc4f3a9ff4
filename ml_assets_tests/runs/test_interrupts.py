"""Ctrl-C while Polars is calling back into Python ends the run, and does not panic."""

import os
import signal

import dagster as dg
import polars as pl
import pytest
from dagster._utils.interrupts import raise_interrupts_as

from ml_assets.errors import Interrupted
from ml_assets.planning.selection import Selection
from ml_assets.runs.execute import execute
from ml_assets.runs.interrupts import interrupts_outside_polars

MOMENTS = pl.LazyFrame({"at": []}, schema={"at": pl.Datetime("us")})


@dg.asset
def table() -> None:
    MOMENTS.collect_schema()
    while True:  # whatever comes later than the call is interrupted
        pass


@pytest.fixture
def _interrupted_below_polars(monkeypatch: pytest.MonkeyPatch, interruptible: None) -> None:
    """A data type of the schema is made by Polars' Rust side, which calls the Python class."""
    make = pl.Datetime.__init__

    def make_and_interrupt(self: pl.Datetime, *arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        make(self, *arguments)

    monkeypatch.setattr(pl.Datetime, "__init__", make_and_interrupt)


@pytest.mark.usefixtures("_interrupted_below_polars")
def test_a_signal_below_polars_waits_for_the_call_and_then_ends_the_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    defs = dg.Definitions(assets=[table])
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(Interrupted):
        execute(defs, instance, "tables", Selection(assets=(table.key,)), tell=lambda _: None)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.usefixtures("_interrupted_below_polars")
def test_without_it_polars_panics(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        raise_interrupts_as(dg.DagsterExecutionInterruptedError),
        pytest.raises(BaseException, match="DagsterExecutionInterruptedError"),
    ):
        MOMENTS.collect_schema()
    assert "panicked" in capfd.readouterr().err


@pytest.mark.usefixtures("interruptible")
def test_the_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts_outside_polars(), dg.DagsterInstance.ephemeral() as instance:
        dg.materialize([_quick], instance=instance)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@dg.asset
def _quick() -> None:
    pass
