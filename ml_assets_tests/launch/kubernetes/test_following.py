"""Who follows an attempt and cannot hear it waits: real cluster and store, a clock of the test."""

from datetime import UTC, datetime, timedelta
from itertools import count, repeat

import pytest
from pydantic_core import to_json

from ml_assets.launch.attempts import Follower, SessionWork
from ml_assets.launch.events import EVENTS_FILE, SessionReader
from ml_assets.launch.kubernetes.following import Following, Limits, recovered
from ml_assets.launch.kubernetes.manifest import HAND_OVER_SECONDS, JobOrder, job_manifest
from ml_assets.launch.kubernetes.starting import StartUp
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.staging import mirror as module
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Heartbeat, Metrics, Progress
from ml_assets.spec.training_program.pod import REQUEST, PodHeartbeats, attempt_of, heartbeats_name
from ml_assets.store.s3.client import client
from ml_assets_tests.launch.kubernetes.objects import a_job, a_pod, condition, terminated
from ml_assets_tests.launch.kubernetes.stage import IMAGE, ONE_NODE, URI, Stage
from ml_assets_tests.launch.test_stall_detection import BEGAN
from ml_assets_tests.servers.s3 import s3_server

SESSION = "demo-train-0123456789abcdef0123"
SILENT = 10 * 30.0
"""Seconds without a sign of life that are a stall."""


@pytest.fixture
def followed(tmp_path, cluster, monkeypatch):
    """An attempt that has shown a sign of life, and whose Job never ends by itself."""
    monkeypatch.setattr(module, "_BETWEEN_LOOKS", 0.0)
    with s3_server(monkeypatch) as store:
        yield Followed(Stage(tmp_path / "home", cluster, store).furnish())


class Followed:
    """Follows by a clock that the test moves, between two looks at the cluster."""

    def __init__(self, stage, *, suspended=True):
        self.store, self.now, self.events = stage.store, 0.0, []
        self._turns = repeat(False)
        objects = stage.objects
        self.place = objects.place.at(attempt_of(SESSION, 1))
        self.place.write(REQUEST, b"{}")
        self.beat(1)
        folder = SessionFolder(objects.path("sessions", SESSION))
        mirror = SessionMirror(folder, objects, client(tries=1))
        mirror.pull(1)
        order = JobOrder(
            pipeline="demo",
            session=SESSION,
            attempt=1,
            verb="train",
            world=World(),
            cluster=ONE_NODE,
            spot=False,
            request=f"{URI}/request.json",
            grace_seconds=1,
        )
        job = job_manifest(order, stage.settings)
        job["spec"]["suspend"] = suspended
        api = stage.api()
        api.create_job(job)
        work = SessionWork("demo", "train", folder, World(), _no_other, lambda: None, ONE_NODE)
        follower = Follower(SessionReader(folder.root), self.events.append, self._told)
        self._following = Following(api, work, order, mirror, follower, lambda: self.now)

    def beat(self, step):
        own = Heartbeat(
            attempt=1,
            generation=0,
            rank=0,
            pid=1,
            host="x",
            step=step,
            time=BEGAN + timedelta(seconds=step),
            patience=30,
        )
        self.place.write(heartbeats_name(0), canonical_json(PodHeartbeats(beats=(own,))))

    def until_over(self, turns):
        """What is seen last. A turn does a step of these; after the last it is told to stop."""
        self._turns = turns
        return self._following.until_over()

    def _told(self):
        return next(self._turns, True)

    def after(self, seconds):
        self.now += seconds
        return False

    def over(self, *pods):
        """Whether the attempt is over, with its pods like that, at this moment."""
        return self._following._over(a_job(), pods) is not None

    def tell(self, *events):
        """What the first rank told so far."""
        file = self._following._folder / EVENTS_FILE
        with file.open("ab") as stream:
            for seq, event in enumerate(events, len(self.events)):
                own = {"session": SESSION, "attempt": 1, "seq": seq, "time": BEGAN, **event}
                stream.write(to_json(own) + b"\n")
        self._following._follower.pass_on()


def _no_other(number, world):
    raise AssertionError("no other attempt is asked for")


def away(followed):
    """The store is away for ten minutes; what the pods told meanwhile is not there at once."""
    yield followed.after(1)
    followed.store.faults.failing = -1
    for _ in range(3):
        yield followed.after(200)
    followed.store.faults.failing = 0
    yield followed.after(20)


def test_a_store_that_is_away_is_no_stall_nor_is_what_comes_late_after_it(followed):
    """What stays silent then is one."""

    def turns():
        yield from away(followed)
        yield followed.after(SILENT)
        followed.beat(2)
        yield followed.after(20)
        yield followed.after(SILENT - 30)
        followed.events.append("still followed")
        yield followed.after(SILENT)

    over = followed.until_over(turns())
    assert "still followed" in followed.events
    assert over.noticed is not None and "last heartbeats: rank 0 at step 2" in over.noticed
    (warning,) = [e.message for e in followed.events if "store" in str(e)]
    assert "The object store does not answer; the training continues" in warning


@pytest.mark.daemon
def test_a_registry_that_is_away_is_told_of_every_minute(tmp_path, cluster, monkeypatch):
    cluster.server.images.failing[IMAGE] = "dial tcp 10.0.0.1:443: i/o timeout"
    with s3_server(monkeypatch) as store:
        followed = Followed(Stage(tmp_path / "home", cluster, store).furnish(), suspended=False)

        def told():
            return [e.message for e in followed.events if "RegistryAway" in str(e)]

        def turns():
            while not told():
                yield followed.after(0)
            for _ in range(8):
                yield followed.after(15)

        followed.until_over(turns())
    waits = ["waits (RegistryAway)", "waits (RegistryAway, 1 min by now)"]
    assert [text in one for text, one in zip(waits, told(), strict=False)] == [True, True]
    assert len(told()) in (2, 3)
    assert "i/o timeout" in told()[1]


STEP = {"kind": "metrics", "step": 5, "metrics": {}}
TOLD_TO_GO = a_pod(1, deleted=5)
REMOVED = a_pod(0, deleted=6)
"""By the Job controller, once another pod has failed."""
GRACE = 1.0 + HAND_OVER_SECONDS


def failed(index, code):
    return a_pod(index, terminated(code), phase="Failed")


@pytest.mark.parametrize(
    ("told", "pods", "seconds"),
    [
        ([], [TOLD_TO_GO, a_pod(0)], 2),
        ([], [failed(1, 143), REMOVED], 2),
        ([], [failed(1, 65), REMOVED], 10),
        ([STEP], [TOLD_TO_GO, a_pod(0)], GRACE),
        ([STEP], [failed(1, 75), a_pod(0)], GRACE),
        ([STEP], [failed(1, 70), REMOVED], 10),
        ([STEP], [failed(1, 137), REMOVED], 2),
    ],
    ids=[
        "a pod is told to go before training",
        "it has gone before training",
        "its program failed before training",
        "a pod is told to go in training",
        "it has saved",
        "its program failed in training",
        "it was killed in training",
    ],
)
def test_a_save_is_waited_for_only_where_there_can_be_one(followed, told, pods, seconds):
    followed.tell(*told)
    assert not followed.over(*pods)
    followed.after(seconds - 0.5)
    assert not followed.over(*pods)
    followed.after(1.0)
    assert followed.over(*pods)


LOST = datetime(2026, 1, 5, 9, 59, 56, tzinfo=UTC)


def told(second, kind, **more):
    own = {"session": "s", "attempt": 2, "seq": second, "step": 5}
    return kind(**own, **more, time=datetime(2026, 1, 5, 10, 0, second, tzinfo=UTC))


def test_time_in_a_queue_is_not_counted_against_the_wait_for_nodes(followed):
    words = condition("PodScheduled", "Unschedulable", "0/4 nodes are available", "False")
    pod = a_pod(0, None, words, phase="Pending", node=None)
    following, beats = followed._following, count(2)
    following._limits = Limits(60, 600, fewest=2)
    following._start = StartUp(following._api, 60, lambda: followed.now)

    def waited(job, *pods):
        for seconds in range(0, 1200, 30):
            if following._over(job, pods) is not None:
                return seconds
            followed.beat(next(beats))  # so that nothing is taken for a stall
            following._pull()
            followed.after(30)
        return None

    assert waited(a_job(suspend=True)) is None
    assert waited(a_job(), pod, pod) == 600  # since the last look at the queue


def test_each_part_is_the_time_since_the_one_before():
    pods = [a_pod(i, {"running": {"startedAt": "2026-01-05T10:00:02Z"}}, *on()) for i in (0, 1)]
    resumed = told(9, Progress, steps=60, message="resumed at step 5")
    assert recovered(LOST, a_job(), pods, [resumed]) is None, "there was no step yet"
    said = recovered(LOST, a_job(), pods, [resumed, told(11, Metrics, metrics={})])
    assert said == (
        "From the lost pod to the next step: 15 s (notice, save and end 4, schedule 1,"
        " image and start 1, import, fetch and meet 7, first step told 2)."
    )


def on():
    return [condition("PodScheduled", second=1)]
