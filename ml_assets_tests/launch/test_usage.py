"""What each attempt used is written when it ends; what no one saw end is told by its events."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from ml_assets.errors import TrainingFailed, TrainingInterrupted
from ml_assets.launch.launcher import ScoreJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.usage import MOST_MARKS, marks_of, session_usages, thinned, usage_of
from ml_assets.spec.training_program import Ref, TrainRequest
from ml_assets.spec.training_program.events import Checkpoint, Metrics, Progress
from ml_assets.spec.usage import AttemptUsage, Held, Mark

START = datetime(2026, 1, 5, tzinfo=UTC)


def used(stage):
    return session_usages(SessionFolder(stage.session))


def furthest(attempt: AttemptUsage) -> int:
    """The furthest step that an attempt told of."""
    return max(mark.step for mark in attempt.marks)


def test_an_attempt_leaves_what_it_used_beside_its_events(stage):
    before = datetime.now(UTC)
    result = stage.train()
    text = (stage.session / "attempts/1/usage.json").read_bytes()
    (found,) = used(stage)
    assert AttemptUsage.model_validate_json(text) == found
    assert (found.pipeline, found.session, found.attempt) == ("demo", result.session, 1)
    assert (found.verb, found.end, found.model) == ("train", "done", result.model.digest)
    assert (found.held.nodes, found.gpus, found.held.price_class) == (1, 0, "on-demand")
    held = found.held
    assert before <= held.created == held.scheduled == held.started < held.ended
    assert (found.marks[0].step, furthest(found)) == (1, 3)
    assert found.checkpoint_bytes > 0


@pytest.mark.parametrize(("where", "sent"), [("s3://bucket/sessions", 300), ("/home/sessions", 0)])
def test_checkpoints_that_went_to_an_object_store_are_transfer(stage, where, sent):
    stage.train()
    request = TrainRequest.model_validate_json(
        (stage.session / "attempts/1/request.json").read_bytes()
    )
    told = dict(session="s", attempt=1, time=START, best=False, metrics={})
    saved = [
        Checkpoint(
            seq=seq,
            step=seq,
            size=100 * seq,
            checkpoint=Ref(uri=f"{where}/step-{seq}", digest="e" * 64),
            **told,
        )
        for seq in (1, 2)
    ]
    held = Held(
        nodes=1, price_class="spot", created=START, scheduled=START, started=START, ended=START
    )
    staged = held.model_copy(update={"staged_bytes": 7})
    found = usage_of("demo", request, staged, "done", saved)
    assert (found.checkpoint_bytes, found.checkpoint_bytes_sent) == (300, sent)
    assert found.moved_bytes == 7 + sent


def test_each_attempt_has_its_own_end_and_where_it_went_on_from(stage):
    stage.plan(steps=4, attempts={"1": {"at": 2, "signal": 9}, "2": {"at": 3, "exit": 70}})
    with pytest.raises(TrainingFailed):
        stage.train()
    stage.train()
    assert [(u.attempt, u.end, furthest(u)) for u in used(stage)] == [
        (1, "lost", 2),
        (2, "failed", 3),
        (3, "done", 4),
    ]


def test_an_attempt_that_was_told_to_stop_says_so(stage):
    stage.plan(steps=100_000, pause=0.05)
    seen = threading.Event()

    def on_event(event):
        seen.set()

    with pytest.raises(TrainingInterrupted):
        stage.train(on_event, should_stop=seen.is_set)
    (found,) = used(stage)
    assert (found.end, found.model) == ("stopped", None)


def test_what_its_watcher_did_not_live_to_write_is_told_by_the_events(stage):
    stage.plan(steps=4, attempts={"1": {"at": 2, "signal": 9}})
    stage.train()
    written = used(stage)
    for number in ("1", "2"):
        (stage.session / "attempts" / number / "usage.json").unlink()
    told = used(stage)
    assert [(u.attempt, u.end, u.model) for u in told] == [
        (1, "lost", None),
        (2, "done", written[1].model),
    ]
    assert [furthest(u) for u in told] == [furthest(u) for u in written]
    for one, other in zip(told, written, strict=True):
        assert (other.pipeline, other.session) == (one.pipeline, one.session)
        assert one.held.created < one.held.ended


def test_an_attempt_that_goes_on_is_not_counted_yet(stage):
    stage.train()
    (stage.session / "attempts/1/usage.json").unlink()
    folder = SessionFolder(stage.session)
    with folder.held(lambda: None):
        assert session_usages(folder) == []
    assert len(session_usages(folder)) == 1


def test_a_score_is_counted_and_takes_no_steps(stage):
    ref = Ref(uri="/model", digest="e" * 64)
    stage.launcher().score(ScoreJob("demo", ref, ref, "holdout"), stage.events.append)
    (found,) = used(stage)
    assert (found.verb, found.end, found.marks) == ("score", "done", ())


def test_the_real_program_begins_at_step_0_and_says_how_many_steps_it_is_to_take(undisturbed):
    launcher, result, _ = undisturbed
    folder = SessionFolder(launcher._objects.path("sessions", result.session))
    (found,) = session_usages(folder)
    assert (found.marks[0].step, furthest(found)) == (0, result.step)
    assert found.steps is not None and found.steps >= result.step
    assert all(0 <= mark.waited <= 1 for mark in found.marks)


def test_a_training_on_spot_machines_is_bought_as_such(stage):
    stage.train(changes={"spot": {"notice_seconds": 30, "write_mb_per_second": 100}})
    assert used(stage)[0].held.price_class == "spot"


def told(step, second, kind=Metrics, seq=0, **metrics):
    head = {"session": "s", "attempt": 1, "seq": seq, "time": START + timedelta(seconds=second)}
    if kind is Progress:
        return Progress(**head, step=step, steps=100, message="")
    return Metrics(**head, step=step, metrics=metrics)


def test_a_step_that_is_told_twice_at_once_is_one_mark_and_a_new_beginning_is_another():
    events = [
        told(20, 10, data_wait_share=0.5),
        told(20, 10.001, Progress),
        told(20, 60, Progress),  # the processes began again, from the checkpoint of this step
        told(40, 70, data_wait_share=7.0),
    ]
    marks = [(m.after, m.step, m.waited) for m in marks_of(events, START)]
    assert marks == [(10_000, 20, 0.5), (60_000, 20, 0.0), (70_000, 40, 1.0)]


def test_days_of_marks_are_thinned_and_keep_their_ends_their_turns_and_their_waiting():
    up = [Mark(after=1000 * n, step=n, waited=0.25) for n in range(1, 3000)]
    back = [Mark(after=3_000_000 + 1000 * n, step=2500 + n, waited=0.25) for n in range(3000)]
    kept = thinned(iter([*up, *back]))
    assert len(kept) <= MOST_MARKS + 4
    assert (kept[0], kept[-1].step) == (up[0], back[-1].step)
    turn = next(n for n, mark in enumerate(kept) if mark.step == 2500)
    assert kept[turn - 1].step == 2999
    assert all(mark.waited == pytest.approx(0.25) for mark in kept)
