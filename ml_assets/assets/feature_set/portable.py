"""A feature function that runs on polars and on another engine alike: it is written with narwhals.

narwhals has polars' expressions. On polars the function gets frames that are in memory, on an
engine lazy ones, and both give the same bytes.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import narwhals as nw
import polars as pl

from ml_assets.errors import SpecError
from ml_assets.spec.window import Window

Frame = nw.LazyFrame[Any]
"""What a portable function gets and returns. On polars it is in memory and can do more: use what a
lazy frame has."""
Rows = TypeVar("Rows", pl.DataFrame, Frame)
PortableFunction = Callable[[Mapping[str, Frame], Window], Frame]


class Engine(Protocol):
    """Makes a portable function's history, for its frames; see ``history_features.py``."""

    @property
    def trailing_mean(self) -> Callable[..., Frame]:
        """See ``history_features.trailing_mean``."""
        ...

    @property
    def latest(self) -> Callable[..., Frame]:
        """See ``history_features.latest``."""
        ...

    @property
    def add_history(self) -> Callable[..., Frame]:
        """See ``history_features.add_history``."""
        ...


ENGINE: ContextVar[Engine] = ContextVar("engine of the features")
"""The engine that runs a feature function now."""
_PORTABLE = "__portable__"


def portable(
    function: PortableFunction,
) -> Callable[[Mapping[str, pl.LazyFrame], Window], pl.LazyFrame]:
    """Decorate a feature function that is written with narwhals: it takes polars' tables, too."""

    @wraps(function)
    def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
        frames = {name: nw.from_native(table.collect()) for name, table in tables.items()}
        return function(cast("Mapping[str, Frame]", frames), window).to_native().lazy()

    setattr(build, _PORTABLE, function)
    return build


def portable_of(build: Callable[..., Any]) -> PortableFunction | None:
    """The function that ``portable`` decorates; None: it is one of polars alone."""
    return getattr(build, _PORTABLE, None)


def on_its_engine(
    function: Callable[..., pl.DataFrame], rows: Rows, events: Rows, *wanted: Any, **options: Any
) -> Rows:
    """Call a function of the history on the engine whose frames it gets.

    Raises:
        SpecError: they are of another engine, and none runs.
    """
    if isinstance(rows, pl.DataFrame):
        return function(rows, events, *wanted, **options)
    if isinstance(rows, nw.DataFrame):
        natives: list[Any] = [cast("Any", frame).to_native() for frame in (rows, events)]
        return cast("Any", nw.from_native(function(*natives, *wanted, **options)))
    engine = ENGINE.get(None)
    if engine is None:
        raise SpecError(
            f"This is the history of a {type(rows).__name__}, and no engine runs. History takes "
            "polars' DataFrames, or, in a function decorated with @portable, the frames that it "
            "gets."
        )
    return getattr(engine, function.__name__.lstrip("_"))(rows, events, *wanted, **options)
