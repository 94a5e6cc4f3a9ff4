"""Training that saves to S3: a real server over HTTP, the real client, kills and damage."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import Ref, World
from ml_assets.spec.training_program.events import Checkpoint, Event, Progress
from ml_assets.spec.training_program.start import TORCHRUN
from ml_assets.store.checkpoint_store import checkpoint_name, whole_checkpoints
from ml_assets.store.local_checkpoints import open_checkpoints
from ml_assets_tests.servers.s3 import BUCKET, SECRET, S3Server
from ml_assets_tests.training.conftest import MODEL, SPEC, Attempt, Sessions
from ml_assets_tests.training.test_checkpoints import warnings
from ml_assets_tests.worlds.world import free_ports


def on_s3(attempt: Attempt) -> Attempt:
    uri = f"s3://{BUCKET}/checkpoints/session"
    output = attempt.request.output.model_copy(update={"checkpoints": uri})
    return Attempt(attempt.folder, attempt.request.model_copy(update={"output": output}))


def as_node(machine: Attempt, rank: int, port: int) -> list[str]:
    """The command of one of two machines of one process each, as torchrun is started in a pod."""
    world = World(nodes=2, procs=1)
    request = machine.folder / "request.json"
    request.write_bytes(canonical_json(machine.request.model_copy(update={"world": world})))
    place = [f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}"]
    torchrun = [*TORCHRUN, "--nnodes=2", "--nproc-per-node=1", *place]
    program = ["-m", "ml_assets.training", "train", "--request", str(request)]
    return [sys.executable, *torchrun, *program]


def test_a_kill_in_mid_upload_and_a_flipped_bit_on_s3_do_not_show(
    sessions: Sessions, whole: Attempt, bucket: S3Server
) -> None:
    spec = SPEC.model_copy(update={"keep_last": 3})
    first = on_s3(sessions.attempt("uploading", spec=spec))
    process = first.start()
    first.wait_for(15)
    bucket.faults.at, bucket.faults.failing = "__1_", -1  # the second rank's share stays away
    stuck = wait_for_strikes(bucket)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    bucket.faults.failing = 0
    store = open_checkpoints(first.request.output.checkpoints)
    assert stuck not in {found.name for found in whole_checkpoints(store, "session")}
    newest = whole_checkpoints(store, "session")[-1]
    bucket.flip(f"checkpoints/session/{newest.name}/__0_0.distcp")

    resume = Ref(uri=f"{store.uri}/{newest.name}", digest=newest.digest)
    again = on_s3(sessions.attempt("uploading", number=2, spec=spec, resume=resume))
    assert again.run() == 0
    assert any("is damaged" in said and "before it is used" in said for said in warnings(again))
    assert again.weights() == whole.weights()
    kept = {found.name for found in whole_checkpoints(store, "session")}
    assert kept == set(store.names())  # the half uploaded one was cleared away
    assert len(kept) <= spec.keep_last + spec.keep_best
    assert not list((again.folder / "checkpoints").glob("*"))  # nothing is left on the machine
    assert SECRET not in "".join(file.read_text() for file in again.folder.glob("*.json*"))


def test_nothing_of_a_checkpoint_stays_on_any_of_two_machines(
    sessions: Sessions, whole: Attempt, bucket: S3Server
) -> None:
    machines = [on_s3(sessions.attempt(name, procs=1)) for name in ("first", "second")]
    (port,) = free_ports(1)
    processes = [
        subprocess.Popen(as_node(machine, rank, port), stderr=subprocess.DEVNULL)
        for rank, machine in enumerate(machines)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert machines[0].weights() == whole.weights()
    assert sum(isinstance(event, Checkpoint) for event in machines[0].events()) > 1
    for machine in machines:
        scratch = machine.folder / "checkpoints"
        assert scratch.is_dir() and not list(scratch.iterdir())


def test_what_a_killed_attempt_had_not_begun_to_upload_is_cleared_away(
    sessions: Sessions, bucket: S3Server
) -> None:
    once = SPEC.model_copy(update={"epochs": 1})
    attempt = on_s3(sessions.attempt("cleared", number=2, spec=once))
    draft = attempt.folder / "checkpoints" / checkpoint_name(5, 1)
    draft.mkdir(parents=True)
    (draft / "__0_0.distcp").write_bytes(b"half")
    assert attempt.run() == 0
    assert not list(draft.parent.glob("*"))


def wait_for_strikes(bucket: S3Server) -> str:
    """The name of a checkpoint whose upload was refused."""
    deadline, seen = time.monotonic() + 60, len(bucket.faults.requests)
    while time.monotonic() < deadline:
        for method, path in bucket.faults.requests[seen:]:
            if method == "PUT" and "__1_" in path:
                return path.split("/")[-2]
        time.sleep(0.02)
    raise AssertionError("nothing was uploaded")


def test_another_machine_goes_on_from_s3_where_the_first_one_ended(
    tmp_path: Path, data: Ref, bucket: S3Server
) -> None:
    spec = SPEC.model_copy(update={"processes": 1, "epochs": 1})
    job = TrainJob("demo", MODEL, spec, data)
    first, second = (
        LocalLauncher(tmp_path / name, checkpoints=f"s3://{BUCKET}/all") for name in ("a", "b")
    )
    told: list[Event] = []
    trained = first.train(job, told.append)
    there = second.train(job, told.append)
    assert (trained.attempt, there.attempt) == (1, 2)
    assert there.model.digest == trained.model.digest
    said = [event.message for event in told if isinstance(event, Progress) and event.attempt == 2]
    assert said[0].startswith(f"resumed at step {trained.step} ")
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".jsonl", ".txt")]
    assert files and all(SECRET not in path.read_text() for path in files)
