"""Training sessions as local processes: one attempt's processes, followed to their end."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ml_assets.launch.attempts import POLL_SECONDS, Follower, SessionWork
from ml_assets.launch.events import attempt_numbers
from ml_assets.launch.failure import Ending, judge, stalled
from ml_assets.launch.local.process import GRACE_SECONDS, ChildProcess
from ml_assets.launch.next_attempt import ERROR_BUDGET, Budgets
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_launcher import SessionLauncher
from ml_assets.launch.staging.mirror import SessionMirror
from ml_assets.launch.stall_detection import StallDetector
from ml_assets.settings import is_s3
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.memory_estimate import Room, machine_room
from ml_assets.spec.training_program import SCHEMA_FILE, Request, ShardSchema, World
from ml_assets.spec.training_program.events import heartbeat_file, read_heartbeat
from ml_assets.spec.training_program.identity import Program
from ml_assets.spec.training_program.start import PROGRAM, RESTARTS, Start
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.objects import LocalObjects
from ml_assets.store.s3.objects import S3Objects
from ml_assets.store.signing import Keys


class LocalLauncher(SessionLauncher):
    """The launcher of a laptop: plain Python for one process, torchrun for more.

    Args:
        objects: the object store, or the folder of one; sessions lie in its ``sessions/``.
        program: how the training program is started, the interpreter first.
        grace: seconds from the notice to stop to the end of a program that does not.
        retries: attempts after the first, where running again may mend it.
        checkpoints: a folder or ``s3://bucket/prefix`` for all sessions; None: each beside its own.
        restarts: how often torchrun starts the processes of one attempt again.
        keys: the keys that make a score or a sanity check count; default: those of the environment.
    """

    def __init__(
        self,
        objects: Path | LocalObjects,
        program: Sequence[str] = PROGRAM,
        grace: float = GRACE_SECONDS,
        retries: int = ERROR_BUDGET,
        checkpoints: str | None = None,
        restarts: int = RESTARTS,
        keys: Callable[[], Keys] = given_keys,
    ) -> None:
        store = LocalObjects(objects) if isinstance(objects, Path) else objects
        shared = store if isinstance(store, S3Objects) else None
        super().__init__(
            store,
            LocalRunner(program, grace, restarts, shared),
            keys,
            Budgets(errors=retries),
            checkpoints,
        )

    def kill(self, session: str, attempt: int, rank: int) -> bool:
        """SIGKILL the process of a rank, for a drill; False: it does not run now."""
        folder = SessionFolder.of(self._objects, session).attempt(attempt)
        beat = read_heartbeat(heartbeat_file(folder, rank))
        if beat is None:  # it is not there yet
            return False
        try:
            os.kill(beat.pid, signal.SIGKILL)
        except OSError:  # it is no longer there
            return False
        return True


class LocalRunner:
    """Attempts as processes below this one, which never outlive it: there is none to adopt."""

    def __init__(
        self,
        program: Sequence[str] = PROGRAM,
        grace: float = GRACE_SECONDS,
        restarts: int = RESTARTS,
        shared: S3Objects | None = None,
    ) -> None:
        self._shared = shared
        self._program = tuple(program)
        self._grace = grace
        self._restarts = restarts

    def spread(self, world: World, cluster: ClusterSpec) -> World:
        """See ``AttemptRunner.spread``."""
        return world

    def room(self, cluster: ClusterSpec) -> Room:
        """See ``AttemptRunner.room``."""
        return machine_room()

    def older(self, asked: str, session: str) -> Program | None:
        """See ``AttemptRunner.older``: none outlives its follower."""
        return None

    def adopt(self, work: SessionWork[Any]) -> Request | None:
        """See ``AttemptRunner.adopt``."""
        return None

    def recall(self, folder: SessionFolder) -> None:
        """See ``AttemptRunner.recall``: what other homes left, where they share its store."""
        if self._shared is not None:
            SessionMirror(folder, self._shared).adopt()

    def run(self, work: SessionWork[Any], request: Request, follower: Follower) -> Ending:
        """See ``AttemptRunner.run``; an exception ends the processes, too."""
        folder, log = work.folder.attempt(request.attempt), work.folder.log(request.attempt)
        self._bring_rows(request)
        command = self.command(request, work.folder.request(request.attempt))
        threads, s3 = request.world.threads, is_s3(work.folder.checkpoints)
        stall, noticed = StallDetector(folder, request.world.procs), None
        with ChildProcess(command, threads, log, self._grace, s3=s3) as child:
            while (code := child.exit_code()) is None:
                follower.pass_on()
                noticed = noticed or stall.noticed(follower.passed_on)
                if noticed or follower.told_to_stop():
                    child.end()
                else:
                    time.sleep(POLL_SECONDS)
        follower.pass_on()
        if self._shared is not None:
            SessionMirror(work.folder, self._shared).publish(request)
        if noticed:
            return stalled(noticed)
        events = follower.of_attempt(request.attempt)
        return judge(code, events, log, workers=request.world.procs > 1)

    def _bring_rows(self, request: Request) -> None:
        """The rows of its splits, which a shared store may have alone."""
        schema = Path(request.data.uri) / SCHEMA_FILE
        if self._shared is not None and schema.is_file():
            shards = ShardSchema.model_validate_json(schema.read_bytes())
            read = [one.digest for one in shards.shards_of(request.splits)]
            missing = [one for one in read if not schema.parent.with_name(one).is_dir()]
            if missing:  # rows to be scored lie here alone
                self._shared.bring(request.data, missing)

    def leave(self, work: SessionWork[Any]) -> None:
        """See ``AttemptRunner.leave``: what ran below this process is gone."""
        if self._shared is not None:
            SessionMirror(work.folder, self._shared).vouch(max(attempt_numbers(work.folder.root)))

    def command(self, request: Request, path: Path) -> list[str]:
        """Return what starts the processes of an attempt.

        Args:
            path: of the request.
        """
        ranks = path.parent / "ranks"
        start = Start(self._program, request.world, ranks, self._grace, self._restarts)
        return start.command([request.verb, "--request", str(path)])
