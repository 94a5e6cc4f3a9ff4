"""A checkpoint is whole or absent, an orphan can write none that counts, a full disk loses none."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ml_assets.launch.local.supervisor import descendants
from ml_assets.spec.training_program import CheckpointManifest
from ml_assets.spec.training_program.events import Checkpoint, DrawnRows, Failed, Progress, Warning
from ml_assets.store.checkpoint_store import FoundCheckpoint, claim_session, whole_checkpoints
from ml_assets.store.local_checkpoints import LocalCheckpoints
from ml_assets.training.events import EventWriter
from ml_assets_tests.training.conftest import EVENT, SPEC, Attempt, Sessions
from ml_assets_tests.training.test_exactness import newest

LONG = SPEC.model_copy(update={"epochs": 40})
"""Saves often enough for a test to come between."""


def saved(attempt: Attempt) -> list[FoundCheckpoint]:
    return whole_checkpoints(LocalCheckpoints(attempt.folder / "checkpoints"), "session")


def warnings(attempt: Attempt) -> list[str]:
    return [event.message for event in attempt.events() if isinstance(event, Warning)]


def wait_for_warning(attempt: Attempt, said: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in warnings(attempt):
            if said in message:
                return message
        time.sleep(0.05)
    raise AssertionError(f"nothing said {said!r}: {warnings(attempt)}")


# --- orphans --------------------------------------------------------------------------------------


def test_an_orphan_that_wakes_up_changes_nothing_and_ends_by_itself(
    sessions: Sessions, whole: Attempt
) -> None:
    orphan = sessions.attempt("orphan")
    process = orphan.start()
    orphan.wait_for(10)
    stopped = [process.pid, *descendants(process.pid)]  # torchrun gives ranks a group of their own
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    before = {found.name for found in saved(orphan)}
    again = sessions.attempt("orphan", number=2, resume=newest(orphan.folder / "checkpoints"))
    assert again.run() == 0
    counted = [(found.name, found.digest) for found in saved(again)]
    weights = again.weights()
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert process.wait(60) != 0
    said = [event for event in orphan.events() if isinstance(event, Failed)]
    assert {event.exit_code for event in said} == {77}
    assert "attempt 2" in said[0].reason and "superseded" in said[0].reason
    assert [(found.name, found.digest) for found in saved(again)] == counted
    assert {name for name, _ in counted if name.endswith("a1")} <= before
    assert again.weights() == weights == whole.weights()
    assert not Path(orphan.request.output.result).exists()


def test_what_an_older_attempt_seals_after_a_newer_claimed_is_there_and_does_not_count(
    tmp_path: Path,
) -> None:
    store = LocalCheckpoints(tmp_path)
    claim_session(store, "s", 1, resume=False)
    seal(store, 10, 1)
    seal(store, 20, 1)
    claim_session(store, "s", 2, resume=True)
    seal(store, 30, 1)  # it had looked before the claim, and was stopped until now
    seal(store, 25, 2)
    names = [found.name for found in whole_checkpoints(store, "s")]
    assert names == ["step-000010.a1", "step-000020.a1", "step-000025.a2"]
    claim_session(store, "s", 3, resume=True)
    claim_session(store, "s", 2, resume=True)  # an older one that is late claims nothing
    seal(store, 40, 2)
    assert [found.name for found in whole_checkpoints(store, "s")] == names
    claim_session(store, "s", 4, resume=False)
    assert whole_checkpoints(store, "s") == []


def seal(store: LocalCheckpoints, step: int, attempt: int) -> None:
    name = f"step-{step:06d}.a{attempt}"
    store.draft(name)
    manifest = CheckpointManifest(
        session="s",
        attempt=attempt,
        step=step,
        validation_loss=None,
        world=1,
        parent=None,
        files=(),
    )
    store.commit(name, manifest.model_dump_json().encode())


def test_the_names_of_a_checkpoint_are_on_the_disk_too_before_older_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name.strip("."))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    store = LocalCheckpoints(tmp_path / "session")
    seal(store, 10, 1)
    assert synced[0].startswith("manifest.json")
    assert synced[1:] == ["step-000010.a1", "session"]


# --- damage ---------------------------------------------------------------------------------------


def test_a_crash_before_the_manifest_and_a_flipped_bit_are_both_passed_by(
    sessions: Sessions, whole: Attempt
) -> None:
    spec = SPEC.model_copy(update={"keep_last": 3})
    first = sessions.attempt("crashed", spec=spec)
    first.kill_after(20)
    *_, third, second, last = saved(first)
    folder = first.folder / "checkpoints"
    (folder / last.name / "manifest.json").unlink()
    flip(folder / second.name)
    again = sessions.attempt("crashed", number=2, spec=spec, resume=newest(folder))
    assert again.run() == 0
    assert any("is damaged" in said and "before it is used" in said for said in warnings(again))
    told = [event.message for event in again.events() if isinstance(event, Progress)]
    assert told[0].startswith(f"resumed at step {third.manifest.step} ")
    assert again.weights() == whole.weights()
    assert last.name not in {path.name for path in folder.iterdir()}  # half written: cleared away


def test_a_damaged_best_one_is_passed_by_for_the_next_best_that_is_whole(
    sessions: Sessions,
) -> None:
    changes = {"keep_best": 1, "learning_rate": 0.3, "epochs": 40, "patience": 2}
    spec = SPEC.model_copy(update=changes)
    first = sessions.attempt("best", procs=1, spec=spec)
    assert first.run() == 0
    assert first.result().stopped == "patience"  # so the best one is not the newest
    best, folder = first.result().best_step, first.folder / "checkpoints"
    assert best == min((loss, step) for step, loss in first.validation_losses().items())[1]
    flip(folder / f"step-{best:06d}.a1")
    again = sessions.attempt("best", number=2, procs=1, spec=spec, resume=newest(folder))
    assert again.run() == 0
    assert any("next best one is used" in said for said in warnings(again))
    losses = {f.manifest.step: f.manifest.validation_loss for f in saved(first)}
    del losses[best]
    assert again.result().metrics["validation_loss"] == min(losses.values(), key=float)


def test_a_damaged_one_that_is_written_anew_by_the_same_attempt_is_kept(
    sessions: Sessions,
) -> None:
    """As where torchrun starts the processes again: a step has the name that it had."""
    attempt = sessions.attempt("anew", procs=1)
    best, weights = attempt.run_here().best_step, attempt.weights()
    last = saved(attempt)[-1]
    assert last.manifest.step == best
    flip(attempt.folder / "checkpoints" / last.name)
    assert attempt.run_here().best_step == best
    assert any("is damaged" in said for said in warnings(attempt))
    assert last.name in {found.name for found in saved(attempt)}
    assert attempt.weights() == weights


def flip(checkpoint: Path) -> None:
    file = sorted(checkpoint.glob("*.distcp"))[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


# --- full disks -----------------------------------------------------------------------------------


def test_a_rank_that_cannot_write_is_told_and_training_goes_on_and_saves_again(
    sessions: Sessions,
) -> None:
    attempt = sessions.attempt("full", spec=LONG)
    process = attempt.start()
    attempt.wait_for(5)
    rank = rank_pid(process.pid, 1)
    resource.prlimit(rank, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    said = wait_for_warning(attempt, "was not saved")
    assert "File too large" in said and "MB are free" in said and "tries again" in said
    kept = re.search(r"The last whole checkpoint, step-(\d+)\.a1, is kept", said)
    assert kept is not None
    resource.prlimit(rank, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert process.wait(120) == 0
    steps = [event.step for event in attempt.events() if isinstance(event, Checkpoint)]
    assert int(kept[1]) in steps  # the last good one, whole all the while
    assert steps[-1] == attempt.result().step


def test_a_full_disk_keeps_the_last_good_one_and_ends_with_a_code_of_its_own(
    sessions: Sessions, whole: Attempt
) -> None:
    first = sessions.attempt("small")
    with small_disk(first.folder / "checkpoints", "2m") as disk:
        size = sum(file.size for file in saved(whole)[-1].manifest.files)
        (disk / "filler").write_bytes(bytes((2 << 20) - 3 * size))
        assert first.run() != 0
        assert {e.exit_code for e in first.events() if isinstance(e, Failed)} == {74}
        said = wait_for_warning(first, "was not saved")
        assert "No space left" in said and "is kept. Training continues" in said
        last = saved(first)[-1].manifest.step
        assert 0 < last < whole.result().step
        (disk / "filler").unlink()
        again = sessions.attempt("small", number=2, resume=newest(disk))
        assert again.run() == 0
        assert again.weights() == whole.weights()


def test_a_result_that_a_read_only_disk_refuses_is_no_bug(sessions: Sessions) -> None:
    attempt = sessions.attempt("refused", procs=1)
    with small_disk(attempt.folder / "results", "1m") as disk:
        output = attempt.request.output.model_copy(update={"result": str(disk / "result.json")})
        request = attempt.request.model_copy(update={"output": output})
        there = replace(attempt, request=request)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert there.run() != 0
    (failed,) = (event for event in there.events() if isinstance(event, Failed))
    assert failed.exit_code == 74
    assert failed.reason.endswith("could not be written: Read-only file system")


def test_events_that_a_full_disk_refuses_are_written_with_the_next_one(tmp_path: Path) -> None:
    events = EventWriter(tmp_path / "events.jsonl", "session", 1, rank=0)
    events.warning("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        events.warning("held back")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    events.warning("after")
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    told = [EVENT.validate_json(line) for line in lines]
    assert [e.message for e in told if isinstance(e, Warning)] == ["before", "held back", "after"]
    assert [event.seq for event in told] == [0, 1, 2]


def test_events_that_a_read_only_disk_refuses_are_written_with_the_next_one(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        events = EventWriter(disk / "events.jsonl", "session", 1, rank=0)
        events.warning("before")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        events.warning("held back")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        events.warning("after")
        lines = (disk / "events.jsonl").read_bytes().splitlines()
    told = [EVENT.validate_json(line) for line in lines]
    assert [e.message for e in told if isinstance(e, Warning)] == ["before", "held back", "after"]


def test_the_end_of_an_epoch_waits_for_no_disk_and_is_there_with_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flushed = tmp_path / "events.jsonl", list[int]()
    monkeypatch.setattr(os, "fsync", lambda _: flushed.append(len(file.read_bytes().splitlines())))
    events = EventWriter(file, "session", 1, rank=0)
    events.epoch_ended(1, DrawnRows.all_of(3))
    assert flushed == []
    events.warning("after")
    assert flushed == [2]


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here; needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def rank_pid(root: int, rank: int) -> int:
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == f"rank{rank}\n":
                return pid
    raise AssertionError(f"no rank {rank} below {root}")


# --- when, and beside -----------------------------------------------------------------------------


def test_a_checkpoint_every_few_steps_changes_no_bit(sessions: Sessions, whole: Attempt) -> None:
    attempt = sessions.attempt("every", spec=SPEC.model_copy(update={"checkpoint_every": 3}))
    assert attempt.run() == 0
    steps = [event.step for event in attempt.events() if isinstance(event, Checkpoint)]
    last = attempt.result().step
    assert steps == [s for s in range(1, last + 1) if s % 3 == 0 or s % 5 == 0 or s == last]
    assert attempt.weights() == whole.weights()


def test_the_best_one_has_its_weights_as_bf16_beside_it(whole: Attempt) -> None:
    best = next(f for f in saved(whole) if f.manifest.step == whole.result().best_step)
    assert best.manifest.bf16_weights in {file.path for file in best.manifest.files}
    assert best.manifest.bf16_weights is not None
    half = load_file(whole.folder / "checkpoints" / best.name / best.manifest.bf16_weights)
    full = load_file(whole.folder / "model" / "weights.safetensors")
    assert half.keys() == full.keys()
    for name, tensor in full.items():
        assert half[name].dtype == torch.bfloat16
        assert torch.equal(half[name], tensor.bfloat16())
