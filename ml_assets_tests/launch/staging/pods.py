"""Pods without a cluster: the program that a pod runs, as processes of this machine."""

import hashlib
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import train_session
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.spec.training_program import TrainOutput, TrainRequest, World
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.servers.s3 import BUCKET

URI = f"s3://{BUCKET}/state"


@dataclass
class Pod:
    """One process, what it printed, and its scratch."""

    process: subprocess.Popen
    log: Path
    scratch: Path

    def code(self, seconds=150):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(self.log.read_text()[-5000:]) from None

    def said(self):
        return self.log.read_text()


@dataclass
class Home:
    """A state folder of its own, which shares nothing but the store with others."""

    folder: Path
    pods: list[Pod] = field(default_factory=list)

    @property
    def objects(self):
        return S3Objects(self.folder / "objects", URI)

    def mirror(self, session):
        checkpoints = f"{URI}/sessions/{{session}}/checkpoints"
        folder = SessionFolder(self.objects.path("sessions", session), checkpoints)
        return SessionMirror(folder, self.objects)

    def train(self, job: TrainJob, number=1, nodes=2):
        """Send an attempt; its session's mirror and the request's address."""
        mirror = self.mirror(train_session(job))
        folder = mirror.folder
        request = TrainRequest(
            session=folder.session,
            attempt=number,
            model=job.model,
            training=job.training,
            data=job.data,
            teacher=job.teacher,
            resume=folder.newest_checkpoint(),
            output=TrainOutput(
                checkpoints=folder.checkpoints,
                model=str(folder.model),
                events=str(folder.events(number)),
                result=str(folder.result(number)),
            ),
            world=World(nodes=nodes, procs=job.training.processes // nodes),
        )
        return mirror, mirror.send(request)

    def start(self, uri, nodes=2, grace=20, data_cache=None, **env):
        """The pods of an attempt, by index."""
        port = free_port()
        more = ["--data-cache", str(data_cache)] if data_cache else []
        started = [self._pod(uri, index, nodes, port, grace, more, env) for index in range(nodes)]
        self.pods += started
        return started

    def _pod(self, uri, index, nodes, port, grace, more, env):
        number = len(self.pods) + index
        scratch, log = self.folder / f"scratch{number}", self.folder / f"pod{number}.txt"
        command = [sys.executable, "-m", "ml_assets.training.staging", "--request", uri]
        command += ["--scratch", str(scratch), "--grace", str(grace), *more]
        if nodes > 1:
            command += ["--rendezvous", f"127.0.0.1:{port}", "--address", f"127.0.0.{1 + index}"]
        scratch.mkdir(parents=True)
        place = {"JOB_COMPLETION_INDEX": str(index), "TMPDIR": str(scratch / "tmp"), **env}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **place},
                start_new_session=True,
            )
        return Pod(process, log, scratch)

    def end(self):
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.process.kill()
            pod.process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def weights(model: Path):
    return hashlib.sha256((model / "weights.safetensors").read_bytes()).hexdigest()


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"nothing came in {seconds} s"
        time.sleep(0.05)
    return value
