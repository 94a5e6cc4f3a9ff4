"""What a person at the command line sees of Jobs: `ml-assets run`, its program in real pods."""

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ml_assets
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.names import selector_of
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST
from ml_assets.spec.training_program.identity import Program, program_here
from ml_assets.spec.training_program.pod import TerminationMessage
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.kubernetes.resources import JOBS
from ml_assets_tests.servers.s3 import BUCKET, S3Server, s3_server
from ml_assets_tests.worlds.flight_pods import Run, begin
from ml_assets_tests.worlds.iris_pods import IMAGE, between_two_saves, over_two_pods, world_on
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # walks, each program in a pod
INTERRUPTED = "interrupted: what was made is kept; run again to continue\n"


@dataclass(frozen=True)
class Home:
    """A person's home, the cluster and the store that it uses."""

    world: World
    store: S3Server
    server: ApiServer

    def left(self) -> list[str]:
        """What carries our label on the cluster."""
        kubeconfig = self.world.extra["KUBECONFIG"]
        api = KubernetesApi(self.server.namespace, environment={"KUBECONFIG": kubeconfig})
        return api._left(selector_of())

    def trainings(self) -> set[str]:
        """Jobs to train that were made: those that are there, and those that were cleared away."""
        there = [job["metadata"]["name"] for job in self.server.store.all(JOBS)]
        cleared = [call.name for call in self.server.calls.of("delete", "jobs")]
        return {name for name in [*there, *cleared] if "-train-" in name}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with s3_server(monkeypatch) as store, ApiServer() as server:
        yield Home(world_on(store, server, tmp_path), store, server)
        assert server.failures == []


def other_version(folder: Path) -> Program:
    """Our package with one statement more in what trains; the program that this makes of it."""
    package, line = folder / "ml_assets", "    began = time.monotonic()\n"
    shutil.copytree(Path(ml_assets.__path__[0]), package, ignore=shutil.ignore_patterns("*.pyc"))
    file = package / "training" / "train.py"
    file.write_text(file.read_text().replace(line, line + line, 1))
    program = program_here("network", package)
    assert program != program_here("network")
    return program


def test_a_pod_of_another_program_is_refused_and_the_command_says_both_and_the_cure(
    home: Home, tmp_path: Path
) -> None:
    theirs, ours = other_version(tmp_path / "other"), program_here("network")
    home.server.images.packages[IMAGE] = tmp_path / "other"
    said = home.world.cli("run", "irises", code=1)
    assert "this is another program than the session's" in said
    assert ours.sources[:12] in said and theirs.sources[:12] in said
    assert "name it by digest in ML_ASSETS_TRAINING_IMAGE" in said
    assert "Traceback" not in said
    assert len(home.trainings()) == 1, "running again would only repeat it"
    assert home.left() == []
    (key,) = (key for key in home.store.everything() if "-train-" in key and "/exit/" in key)
    told = home.store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    assert TerminationMessage.model_validate_json(told).code == EXIT_BAD_REQUEST


def test_an_orchestrator_that_is_upgraded_in_mid_training_follows_the_job_and_then_trains(
    home: Home, tmp_path: Path
) -> None:
    over_two_pods(home.world)
    before = begin(home.world, "run", "irises")
    with between_two_saves(home.store, lambda: not before.over()):
        before.process.kill()
        before.ends(-signal.SIGKILL)
        (job,) = home.trainings()
        other_version(tmp_path / "newer")
        newer = World(home.world.root, {**home.world.extra, "PYTHONPATH": str(tmp_path / "newer")})
        after = begin(newer, "run", "irises")
        until_said(after, "A Job of an older program")
        assert home.trainings() == {job}, "nothing is begun beside it"
    said = after.ends()
    assert f"{program_here('network')}" in said, "which program it is of"
    assert home.trainings() == {job} and home.left() == []
    assert home.world.status("irises")["release"]["decision"] == "passed"
    home.server.images.packages[IMAGE] = tmp_path / "newer"  # the image of the new version
    assert "make  irises/trained_model" in newer.cli("run", "irises")
    assert len(home.trainings()) == 2, "what is due by the new program is trained by it"


def test_a_fresh_training_whose_command_is_killed_is_followed_by_the_next_command(
    home: Home,
) -> None:
    over_two_pods(home.world)
    killed = begin(home.world, "run", "irises", "--fresh")
    with between_two_saves(home.store, lambda: not killed.over()):
        killed.process.kill()
        killed.ends(-signal.SIGKILL)
        (job,) = home.trainings()
        after = begin(home.world, "run", "irises")
        until_said(after, "the fresh training that was interrupted continues")
    said = after.ends()
    assert "trains irises, too" not in said
    assert home.trainings() == {job} and home.left() == [], "none was begun beside it"
    assert home.world.status("irises")["release"]["decision"] == "passed"
    assert "skip  irises/trained_model" in home.world.cli("run", "irises")


def until_said(run: Run, words: str) -> None:
    while words not in run.said():
        assert not run.over(), run.said()[-6000:]
        time.sleep(0.1)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_in_mid_training_deletes_the_job_ends_in_one_sentence_and_costs_no_step(
    home: Home,
) -> None:
    over_two_pods(home.world, checkpoint_every=5)
    for attempt, number in enumerate((signal.SIGINT, signal.SIGTERM), 1):
        run = begin(home.world, "run", "irises")
        with between_two_saves(home.store, lambda run=run: not run.over(), attempt):
            run.process.send_signal(number)
        assert run.ends(130).endswith(f"\n{INTERRUPTED}")
        assert home.left() == [], number
    said = home.world.cli("run", "irises")
    assert "resumed" in said
    assert home.world.status("irises")["release"]["decision"] == "passed"
    assert len(home.trainings()) == 3
