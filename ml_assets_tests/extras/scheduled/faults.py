"""What goes wrong on a day: each fault once, at a run that is at work, and counted when it hit."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import dagster as dg
from dagster._grpc.types import ExecuteRunArgs

from ml_assets.definitions import PROJECT
from ml_assets.launch.kubernetes.names import ATTEMPT_LABEL, VERB_LABEL
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.s3 import S3Server

POD_FAULTS: dict[str, Callable[[ApiServer, str], object]] = {
    "preempted": ApiServer.preempt,
    "drained": ApiServer.drain,
    "evicted": ApiServer.evict_for_pressure,
    "out of memory": ApiServer.run_out_of_memory,
}
API_AWAY, STORE_AWAY, KILLED = "API says 503", "store says 503", "worker killed"
BAD_FILE = "bad file"
KINDS = (*POD_FAULTS, API_AWAY, STORE_AWAY, KILLED, BAD_FILE)
REFUSALS = 3
"""So many answers in a row are 503."""
_LOOK_SECONDS = 0.02


@dataclass
class Faults:
    """Plants them on a cluster and its store, and tells how often each hit."""

    server: ApiServer
    store: S3Server
    hits: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def planted(self, kinds: Sequence[str]) -> Iterator[None]:
        """While this lasts they strike the training that begins; of pods each another attempt."""
        of_pods = [kind for kind in kinds if kind in POD_FAULTS]
        with ExitStack() as stack:
            for attempt, kind in enumerate(of_pods, start=1):
                stack.enter_context(self._striker(kind, attempt))
            for kind in {API_AWAY, STORE_AWAY}.intersection(kinds):
                stack.enter_context(self._refusals(kind))
            yield

    @contextmanager
    def _refusals(self, kind: str) -> Iterator[None]:
        if kind == API_AWAY:
            self.server.faults.refuse(503, times=REFUSALS, resource="jobs")
        else:
            self.store.faults.at, self.store.faults.failing = "/attempts/", REFUSALS
        before = self._refused()
        yield
        self.hits[kind] += self._refused() - before == REFUSALS

    def _refused(self) -> int:
        """How often cluster and store have said 503."""
        here = sum(call.code == 503 for call in self.server.calls)
        return here - self.store.faults.failing

    @contextmanager
    def _striker(self, kind: str, attempt: int) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._strike, args=(kind, attempt, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _strike(self, kind: str, attempt: int, over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            name = self._training(attempt)
            if name is not None:
                POD_FAULTS[kind](self.server, name)
                self.hits[kind] += 1
                return

    def _training(self, attempt: int) -> str | None:
        """The pod of a training that is at work: nothing stays of one that is over."""
        for pod in self.server.pods():
            labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
            started = [one.get("started") for one in status.get("containerStatuses", ())]
            ours = labels.get(VERB_LABEL) == "train" and labels.get(ATTEMPT_LABEL) == str(attempt)
            if ours and status.get("phase") == "Running" and started and all(started):
                return pod["metadata"]["name"]
        return None

    def kill_worker(self, run: dg.DagsterRun, instance: dg.DagsterInstance) -> bool:
        """Run it as a pod of `K8sRunLauncher` does, and kill that once its training is at work."""
        assert run.job_code_origin is not None
        command = ExecuteRunArgs(run.job_code_origin, run.run_id, instance.get_ref(), True)
        arguments = [*command.get_command_args()]
        worker = subprocess.Popen(
            [sys.executable, "-m", "dagster", *arguments[arguments.index("api") :]],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while worker.poll() is None:
                if self._training(1) is not None:
                    self.hits[KILLED] += 1
                    return False
                time.sleep(_LOOK_SECONDS)
        finally:
            worker.kill()
            worker.wait()
        return True
