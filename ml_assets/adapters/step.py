"""A step of the graph: what Dagster passes to it, under our own names, and how it fails."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import dagster as dg

from ml_assets.errors import MlAssetsError
from ml_assets.store.disk import refusal
from ml_assets.store.lakefs.gateway import scan_away

StepContext = dg.AssetExecutionContext | dg.AssetCheckExecutionContext
"""The run, its log and its instance, of an asset or of its checks."""
AssetStep = dg.AssetExecutionContext
RunLog = dg.DagsterLogManager
Instance = dg.DagsterInstance
Step = Callable[..., Any]


def reported(step: Step) -> Step:
    """Decorate a step: an error of ours, or of a disk, fails it with its own sentence first.

    Dagster's page shows what a step failed with, then its causes: without this the first is
    Dagster's own "Error occurred while executing op".
    """
    if inspect.isgeneratorfunction(step):

        @wraps(step)
        def yielding(context: Any, *given: Any, **named: Any) -> Iterator[Any]:
            with _sentence_first(context.run.run_id):
                yield from step(context, *given, **named)

        return yielding

    @wraps(step)
    def returning(context: Any, *given: Any, **named: Any) -> Any:
        with _sentence_first(context.run.run_id):
            return step(context, *given, **named)

    return returning


@contextmanager
def _sentence_first(run: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ours = error if isinstance(error, MlAssetsError) else refusal(error) or scan_away(error)
        if ours is None:
            raise
        if ours is not error:
            ours.__cause__ = error
        whole = {"the whole log": f"ml-assets ops logs {run}"}
        raise dg.Failure(str(ours), metadata=whole) from ours
