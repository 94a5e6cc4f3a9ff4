"""What is done to the pods of an attempt once it has saved a few steps."""

import os
import threading
from pathlib import Path

from ml_assets.launch.local.supervisor import descendants
from ml_assets_tests.servers.kubernetes.sample_jobs import until

AFTER = 2
"""Checkpoints of an attempt before something happens to it."""


class Saboteur:
    """Does one thing to each attempt in turn, when it has saved a few steps."""

    def __init__(self, stage, *faults):
        self._stage, self._faults = stage, faults
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.error = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(1)
        assert self.error is None, self.error

    def _work(self):
        try:
            for attempt, fault in enumerate(self._faults, 1):
                until(lambda attempt=attempt: self._stage.saves_of(attempt) >= AFTER)
                fault(self._stage)
        except BaseException as error:
            self.error = error


def delete(index):
    def fault(stage):
        stage.core.delete_namespaced_pod(stage.pod(index), stage.cluster.namespace)

    return fault


def evict(index):
    def fault(stage):
        name = stage.pod(index)
        body = {"metadata": {"name": name, "namespace": stage.cluster.namespace}}
        stage.core.create_namespaced_pod_eviction(name, stage.cluster.namespace, body)

    return fault


def signal_ranks(number):
    def fault(stage):
        for pid in descendants(os.getpid()):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"--request" in command and b"staging" not in command:
                os.kill(pid, number)

    return fault


def while_jobs_stay(fault):
    """The API server is being replaced: what is over is cleared away late."""

    def both(stage):
        stage.cluster.server.faults.refuse(503, times=2, verb="delete", resource="jobs")
        fault(stage)

    return both


def cut_off(index):
    return lambda stage: stage.cluster.server.cut_off(stage.pod(index))


def created(stage):
    return [call for call in stage.cluster.server.calls.of("create", "jobs") if call.code == 201]
