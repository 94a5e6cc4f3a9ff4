"""A dead MLflow neither stops training nor loses a point: real servers, killed and restarted."""

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from ml_assets.launch.events import session_events
from ml_assets.records.tracking.curves import LiveCurves
from ml_assets.records.tracking.mlflow import Logged, Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry, tell_whole
from ml_assets.spec.training_program.pod import REQUEST, attempt_of, chunk_name
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.store.objects import LocalObjects
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.servers.s3 import BUCKET, S3Server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.mlflow_process import MlflowProcess
from ml_assets_tests.worlds.world import World

THROUGH = ("run", "irises", "--through", "trained_model")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    process = MlflowProcess(tmp_path_factory.mktemp("mlflow") / "server")
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, server: MlflowProcess) -> World:
    return World(tmp_path_factory.mktemp("world"), {"MLFLOW_TRACKING_URI": server.uri}).plant(
        irises
    )


@pytest.fixture(scope="module")
def bereft(world: World, server: MlflowProcess) -> str:
    """A run whose server was killed in the middle of its training: what it said."""
    with subprocess.Popen(
        [sys.executable, "-m", "ml_assets.cli.main", *THROUGH],
        env=world.environment,
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as command:
        assert command.stdout is not None
        said = ""
        while "step 20 of" not in said:
            said += (line := command.stdout.readline())
            assert line, said
        server.kill()
        said += command.communicate(timeout=200)[0]
    assert command.returncode == 0, said
    return said


def story(world: World) -> TrainingStory:
    (session,) = (world.root / "state" / "objects" / "sessions").glob("irises-train-*")
    told = TrainingStory()
    for event in session_events(session):
        told.take(event)
    return told


def points(client: MlflowClient, run: str) -> dict[str, list[int]]:
    names = client.get_run(run).data.metrics
    return {name: sorted(m.step for m in client.get_metric_history(run, name)) for name in names}


def expected(told: TrainingStory) -> dict[str, list[int]]:
    names = {name for metrics in told.metrics.values() for name in metrics}
    return {name: [int(step) for step, _ in told.curve(name)] for name in names}


def entry(pipeline: str, session: str = "5e" * 32) -> OutboxEntry:
    return OutboxEntry(pipeline=pipeline, session=session, status="FINISHED", tags={}, params={})


@pytest.mark.daemon
def test_training_ends_well_though_mlflow_died_and_the_next_run_delivers_every_point_once(
    world: World, server: MlflowProcess, bereft: str
) -> None:
    assert "MLflow lacks events of this training; the next run delivers them" in bereft
    assert (world.root / "state" / "mlflow_outbox").is_dir()
    server.start()
    again = world.cli(*THROUGH)
    assert "MLflow received what it lacked of irises-train-" in again
    assert "make  " not in again, "nothing is trained again for it"
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("irises")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert points(client, run.info.run_id) == expected(story(world))
    assert run.data.tags["ml_assets.pipeline"] == "irises"
    assert run.data.params["family"] == "mlp"
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["run.json"]
    assert "MLflow" not in world.cli(*THROUGH), "nothing is owed any more"


@pytest.mark.daemon
def test_a_server_that_comes_back_while_training_runs_has_every_point_once(
    world: World, server: MlflowProcess, bereft: str, tmp_path: Path
) -> None:
    if server.process is None:
        server.start()
    told, about = story(world), entry("comes_back")
    steps = sorted(told.metrics)
    tracking = Tracking(server.uri, tmp_path, pause=0.1)
    curves = LiveCurves(tracking, lambda: tracking.open_run("comes_back", about.session, {}, {}))

    def so_far(count: int) -> Logged | Unavailable:
        """Tell the first points until an answer is about them."""
        answers: list[Logged | Unavailable] = []
        deadline = time.monotonic() + 120
        while len(answers) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
            answer = curves.tell({step: told.metrics[step] for step in steps[:count]}, told.times)
            answers += [answer] if answer is not None else []
        return answers[-1]

    assert so_far(2) == Logged()
    server.kill()
    assert isinstance(so_far(4), Unavailable)
    server.start()
    time.sleep(0.2)
    assert so_far(5) == Logged()
    curves.close()
    run = tell_whole(tracking, about, told)
    assert isinstance(run, str)
    assert points(MlflowClient(server.uri), run) == expected(told)


def test_a_server_that_never_answers_makes_nobody_wait_while_training_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        tracking = Tracking(f"http://127.0.0.1:{mute.getsockname()[1]}", tmp_path)
        opened = LiveCurves(tracking, lambda: tracking.open_run("mute", "5e" * 32, {}, {}))
        for step in range(1000):  # two seconds for each would be longer than a test may take
            opened.tell({step: {"loss": 0.5}}, {})
        opened.close()
        assert isinstance(opened.last, Unavailable)


def test_what_is_owed_of_a_session_that_was_collected_is_forgotten(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, LocalObjects(tmp_path))
    outbox.note(entry("gone"))
    delivered = outbox.deliver(Tracking("http://127.0.0.1:9", tmp_path))
    assert (delivered.left, outbox.all()) == (0, [])


def test_what_is_owed_of_a_session_whose_folder_here_is_gone_is_kept_while_s3_has_it(
    tmp_path: Path, bucket: S3Server
) -> None:
    objects = S3Objects(tmp_path / "objects", f"s3://{BUCKET}/state")
    place = objects.place.at(attempt_of("kept", 1))
    place.write(REQUEST, b"{}")
    place.write(chunk_name("events.jsonl", 0), b"{}\n")
    outbox, dead = Outbox(tmp_path, objects), Tracking("http://127.0.0.1:9", tmp_path)
    for session in ("gone", "kept"):
        outbox.note(entry("away", session))
    delivered = outbox.deliver(dead)
    assert "127.0.0.1:9" in delivered.reason
    assert [one.session for one in outbox.all()] == ["kept"]
    assert (tmp_path / "objects/sessions/kept/attempts/1/events.jsonl").is_file()


def test_no_draft_of_a_note_is_left_by_a_disk_that_refuses_it_or_by_a_kill(tmp_path: Path) -> None:
    outbox, folder = Outbox(tmp_path, LocalObjects(tmp_path)), tmp_path / "mlflow_outbox"
    note = entry("gone")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            outbox.note(note)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*folder.iterdir()] == []
    outbox.note(note)
    (folder / f".{note.session}.json.0123").write_bytes(b"half")
    outbox.forget(note.session)
    assert [*folder.iterdir()] == []


def test_what_is_still_owed_is_counted_with_the_reason(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, LocalObjects(tmp_path))
    for session in ("a", "b"):
        (tmp_path / "sessions" / session).mkdir(parents=True)
        outbox.note(entry("away", session))
    delivered = outbox.deliver(Tracking("http://127.0.0.1:9", tmp_path))
    assert delivered.left == 2
    assert "127.0.0.1:9" in delivered.reason
    assert len(outbox.all()) == 2


def test_a_signal_while_its_thread_begins_keeps_no_process_from_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # whoever holds the error holds the executor
        LiveCurves(Tracking(f"sqlite:///{tmp_path}/none.db", tmp_path), lambda: Unavailable("no"))
    (begun,) = [one for one in threading.enumerate() if one.name == "mlflow_0"]
    begun.join(30)
    assert not begun.is_alive() and kept.tb is not None
