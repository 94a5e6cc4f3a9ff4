"""Opens what every command needs: settings, state folder, definitions, a Dagster instance."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ml_assets.settings import Settings, read_settings

if TYPE_CHECKING:
    from ml_assets.adapters.runs import Definitions
    from ml_assets.adapters.step import Instance
    from ml_assets.store.pipeline_context import Pipeline


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


def prepared_settings() -> Settings:
    """Settings, with the state folder there and DAGSTER_HOME pointing into it."""
    from ml_assets.store import home

    settings = read_settings()
    home.prepare(settings)
    os.environ["DAGSTER_HOME"] = str(settings.dagster_home)
    return settings


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
