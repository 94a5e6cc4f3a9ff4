"""Opens what every command needs: settings, state folder, definitions, a Dagster instance."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ml_assets.cli.output import DONE, ERROR
from ml_assets.settings import Settings, read_settings

if TYPE_CHECKING:
    from ml_assets.adapters.runs import Definitions
    from ml_assets.adapters.step import Instance
    from ml_assets.store.pipeline_context import Pipeline

T = TypeVar("T")
_STORAGE = re.compile(r"^(run_)?storage:", re.MULTILINE)


@dataclass(frozen=True)
class Session:
    """One command at work on the state folder."""

    settings: Settings
    defs: "Definitions"
    instance: "Instance"


def opened(pipeline: str) -> "Pipeline":
    """A pipeline of the settings with its stores, to read.

    Raises:
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    from ml_assets.store.pipeline_context import open_pipeline

    return open_pipeline(pipeline, read_settings())


def read_each(names: Sequence[str], read: Callable[[str], T]) -> tuple[list[T], int]:
    """What is read of each pipeline, and the exit code.

    A spec that is wrong is told on standard error, and keeps no other pipeline from being read.
    """
    from ml_assets.errors import SpecError

    found, code = list[T](), DONE
    for name in names:
        try:
            found.append(read(name))
        except SpecError as error:
            print(f"{name} is left out because its spec is wrong. {error}", file=sys.stderr)
            code = ERROR
    return found, code


def prepared_settings() -> Settings:
    """Settings, with the state folder there and DAGSTER_HOME pointing into it."""
    from ml_assets.store import home

    settings = read_settings()
    home.prepare(settings)
    os.environ["DAGSTER_HOME"] = str(settings.dagster_home)
    return settings


def watching_settings() -> Settings:
    """Settings of a command that reads what Dagster did: in a pod, what the services there did.

    There DAGSTER_HOME names an instance with a storage of its own, such as Postgres.
    """
    given = os.environ.get("DAGSTER_HOME")
    settings = prepared_settings()
    if given and _has_a_storage(Path(given) / "dagster.yaml"):
        os.environ["DAGSTER_HOME"] = given
    return settings


def _has_a_storage(instance: Path) -> bool:
    return instance.is_file() and bool(_STORAGE.search(instance.read_text()))


@contextmanager
def working_session(doing: str, pipeline: str) -> Iterator[Session]:
    """Hold the state folder's lock and open everything that one pipeline needs.

    Raises:
        StateInUse: another command is at work.
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    from ml_assets.store import home

    settings = prepared_settings()
    with home.lock(settings, doing):
        from ml_assets.adapters.runs import open_instance
        from ml_assets.definitions import build

        with open_instance() as instance:
            yield Session(settings, build(settings, only=pipeline), instance)
