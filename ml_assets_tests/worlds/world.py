"""A state folder with its outside world, driven through the command line as a user drives it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import dagster as dg
import pytest

from ml_assets.cli.main import main
from ml_assets.settings import Settings, read_settings
from ml_assets_tests.worlds.warm_commands import warm

IN_PROCESS = {
    ("check",),
    ("status",),
    ("data", "card"),
    ("data", "diff"),
    ("data", "list"),
    ("data", "read"),
    ("data", "recall"),
    ("data", "tag"),
    ("models", "compare"),
    ("models", "cost"),
    ("models", "experiments"),
    ("models", "note"),
    ("models", "report"),
    ("models", "search"),
    ("release", "history"),
    ("release", "override"),
    ("release", "verify"),
    ("release", "was-serving"),
}
"""Commands that begin neither a run nor another process."""

_LONGEST = 240
"""Seconds of a command."""


def edit(file: Path, *changes: tuple[str, str]) -> None:
    """Put the second text of each change in the place of the first, which has to be there."""
    text = file.read_text()
    for before, after in changes:
        assert before in text, f"{before!r} is not in {file}"
        text = text.replace(before, after)
    file.write_text(text)


@dataclass(frozen=True)
class World:
    """One state folder, with the outside world and the pipelines that it reads."""

    root: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    """More of the environment."""

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
        inherited.pop("MLFLOW_TRACKING_URI", None)
        return {
            **inherited,
            "ML_ASSETS_HOME": str(self.root / "state"),
            "ML_ASSETS_SOURCES": str(self.sources),
            "ML_ASSETS_PIPELINES": str(self.pipelines),
            **self.extra,
        }

    @property
    def settings(self) -> Settings:
        return read_settings(self.environment)

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def pipelines(self) -> Path:
        return self.root / "pipelines"

    def plant(self, *pipelines: ModuleType, **options: Any) -> Self:
        """Lay out pipelines of ``ml_assets_tests.worlds``, with the data that they read."""
        for one in pipelines:
            one.plant(self.pipelines, self.sources, **options)
        return self

    def edit(self, pipeline: str, *changes: tuple[str, str], file: str = "defs.yaml") -> None:
        edit(self.pipelines / pipeline / file, *changes)

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Give this process the environment of the world's commands."""
        environment = self.environment
        for name in {*os.environ} - {*environment}:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)

    def cli(self, *arguments: str, code: int = 0) -> str:
        """Run ml-assets, hold it to an exit code, and return all it printed.

        What begins no run is called in this process: one of its own takes two seconds to begin.
        The others are forks of a process that has loaded what they load.
        """
        if arguments[:1] in IN_PROCESS or arguments[:2] in IN_PROCESS:
            return self._called(*arguments, code=code)
        done = self.streams(*arguments, code=code)
        return done.stdout + done.stderr

    def _called(self, *arguments: str, code: int) -> str:
        out, err = StringIO(), StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            self.enter(patch)
            patch.setenv("DAGSTER_HOME", "")  # the command sets its own
            patch.chdir(self.root)
            ended = main(arguments)
        said = out.getvalue() + err.getvalue()
        assert ended == code, said
        return said

    def streams(
        self, *arguments: str, code: int = 0, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """The same with what is given on standard input, and the two outputs apart."""
        environment = self.environment
        if warm().takes(environment):
            done = warm().run(arguments, environment, self.root, given, _LONGEST)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "ml_assets.cli.main", *arguments],
                env=environment,
                cwd=self.root,
                input=given,
                capture_output=True,
                text=True,
                timeout=_LONGEST,
                check=False,
            )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def stopped_at(self, moment: str, stop: signal.Signals, *arguments: str) -> tuple[int, str]:
        """Run ml-assets until a line holds ``moment``, send the signal: exit code and stderr.

        SIGINT goes to the processes that it started, too, as Ctrl-C in a terminal does.
        """
        with subprocess.Popen(
            [sys.executable, "-m", "ml_assets.cli.main", *arguments],
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as command:
            assert command.stdout is not None
            assert any(moment in line for line in command.stdout)
            (os.killpg if stop is signal.SIGINT else os.kill)(command.pid, stop)
            _, said = command.communicate(timeout=60)
        return command.returncode, said

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The world's Dagster instance, in this process."""
        home = str(self.settings.dagster_home)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("DAGSTER_HOME", home)  # dagster.yaml reads it
            with dg.DagsterInstance.from_config(home) as instance:
                yield instance

    def page(self, *asset: str) -> dict[str, Any]:
        """What the page of an asset shows: the metadata of its newest materialization."""
        found = self._newest(*asset).metadata
        return {name: value.value for name, value in found.items()}

    def data_version(self, *asset: str) -> str:
        """The data version of an asset's newest materialization."""
        return (self._newest(*asset).tags or {})["dagster/data_version"]

    def _newest(self, *asset: str) -> dg.AssetMaterialization:
        with self.instance() as instance:
            event = instance.get_latest_materialization_event(dg.AssetKey([*asset]))
        assert event is not None and event.asset_materialization is not None
        return event.asset_materialization

    def evaluations(self) -> list[dg.AssetCheckEvaluation]:
        """All that checks of assets said, oldest first."""
        kind = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        with self.instance() as instance:
            records = instance.event_log_storage.get_event_records(kind, ascending=True)
        events = [record.event_log_entry.get_dagster_event() for record in records]
        return [event.asset_check_evaluation_data for event in events]

    def status(self, pipeline: str) -> dict[str, Any]:
        return json.loads(self.cli("status", pipeline, "--json"))


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
