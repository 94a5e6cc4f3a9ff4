"""Runs attempts as Jobs of a cluster: they outlive their launcher, and the next one adopts them.

A Job is named by its session and attempt, so it is created only once. At the first lost pod it is
deleted whole and the next attempt begins at once: left to Kubernetes, the others would wait for the
lost one, and the Job for its back-off (docs/cluster.md).
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ml_assets.errors import ClusterAway, ClusterRefused, MlAssetsError, StoreAway
from ml_assets.launch.attempts import Follower, SessionWork
from ml_assets.launch.events import (
    attempt_numbers,
    avoided_nodes,
    session_events,
)
from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.diagnosis import PodObservations, ending_of, held_by, why
from ml_assets.launch.kubernetes.following import Following, Over
from ml_assets.launch.kubernetes.logs import tails
from ml_assets.launch.kubernetes.manifest import (
    HAND_OVER_SECONDS,
    JobOrder,
    job_manifest,
    runs_on_spot,
    save_seconds,
    service_manifest,
)
from ml_assets.launch.kubernetes.names import (
    ASKED_LABEL,
    ATTEMPT_LABEL,
    PIPELINE_LABEL,
    SESSION_LABEL,
    VERB_LABEL,
    asked_label,
    index_of,
    job_name,
    pipeline_label,
    selector_of,
    slug_of,
)
from ml_assets.launch.kubernetes.observations import JobState
from ml_assets.launch.kubernetes.pod_failures import of_cause
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.staging.mirror import AttemptTaken, SessionMirror
from ml_assets.settings import Cluster, PriceClass
from ml_assets.spec.cluster import ClusterSpec, over_nodes
from ml_assets.spec.memory_estimate import Room, pod_room
from ml_assets.spec.training_program import Request, TrainRequest, World
from ml_assets.spec.training_program.events import Checkpoint, Event
from ml_assets.spec.training_program.identity import Program
from ml_assets.spec.training_program.pod import REQUEST, REQUESTS, TerminationMessage, attempt_of
from ml_assets.store.objects import write_whole
from ml_assets.store.open import mark_of
from ml_assets.store.s3.client import client
from ml_assets.store.s3.objects import S3Objects

T = TypeVar("T")
_SLACK_SECONDS = 40
"""A pod that never found a node goes when Kubernetes next collects such, every 20 seconds."""
_MADE_AGAIN = {"lost", "unstarted", "no_room"}
"""Ends of an attempt that the next one need not wait for: what is left of it can write nothing that
counts."""
_HASTY_TRIES, _HASTY_SECONDS = 2, 15.0
"""Tries and seconds of a request to the store while an attempt is followed: the next is soon,
and who waits for its answer hears neither of a lost pod nor that it is told to stop."""
_LEAVE_SECONDS = 120.0
"""For what the last attempts left to be gone; each has had its own time before."""
_MOST_LEFT = 500
"""Attempts of which something may be left: a selector that names more is too long for a proxy."""
_SUCCESSOR_SECONDS, _BETWEEN_LOOKS = 30.0, 1.0
"""Who clears an attempt away has begun the next one within so many; between two looks for it."""


class KubernetesRunner:
    """Runs attempts on one cluster.

    Args:
        settings: what every pod is given.
        objects: the store that the pods share with us.
        goes_on: asked when this process is interrupted: whether the Job goes on without it, to be
            adopted by who comes next; else it is ended, and saves.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: Cluster,
        objects: S3Objects,
        goes_on: Callable[[], bool],
    ) -> None:
        self._api = api
        self._settings = settings
        self._objects = objects
        self._mark = mark_of(objects.place.uri)
        self._goes_on = goes_on
        self._hasty = client(_HASTY_TRIES, _HASTY_SECONDS)
        self._over: dict[str, set[int]] = {}
        """Session -> its attempts that this runner saw end."""
        self._lost: dict[str, datetime] = {}
        """Session -> when its last attempt began to lose its pods."""

    def spread(self, world: World, cluster: ClusterSpec) -> World:
        """See ``AttemptRunner.spread``."""
        return over_nodes(world, cluster)

    def room(self, cluster: ClusterSpec) -> Room:
        """See ``AttemptRunner.room``."""
        return pod_room(cluster)

    def recall(self, folder: SessionFolder) -> None:
        """See ``AttemptRunner.recall``."""
        SessionMirror(folder, self._objects).adopt()

    def older(self, asked: str, session: str) -> Program | None:
        """See ``AttemptRunner.older``: the newest, by what its request says.

        Raises:
            StoreAway: nobody can tell.
        """
        self._api.require_rights()
        jobs = self._api.jobs(f"{selector_of()},{ASKED_LABEL}={asked_label(asked)}")
        others = [
            job
            for job in jobs
            if job.labels.get(SESSION_LABEL) != slug_of(session, self._mark)
            and job.request.startswith(f"{self._objects.place.uri}/")
            and not (job.deleting or job.failure)
        ]
        for job in sorted(others, key=lambda job: str(job.created), reverse=True):
            folder, _, name = job.request.rpartition("/")
            data = self._objects.place.elsewhere(folder).read(name)
            if data is not None:
                return REQUESTS.validate_json(data).program
        return None

    def adopt(self, work: SessionWork[Any]) -> Request | None:
        """See ``AttemptRunner.adopt``: the newest attempt, if its Job is there.

        Raises:
            ClusterRefused: not all is allowed that it takes, or the session's Job is not ours.
        """
        self._api.require_rights()
        known = self._over.get(work.folder.session, ())
        numbers = SessionMirror(work.folder, self._objects).adopt(known)
        selector = selector_of(work.folder.session, self._mark)
        jobs = [job for job in self._api.jobs(selector) if not job.deleting]
        self._require_ours(jobs)
        there = {job.labels.get(ATTEMPT_LABEL) for job in jobs}
        # one that this runner saw end may be there still: it is being cleared away
        if not numbers or numbers[-1] in known or str(numbers[-1]) not in there:
            return None
        return _begun(work.folder, numbers[-1])

    def run(self, work: SessionWork[Any], request: Request, follower: Follower) -> Ending:
        """See ``AttemptRunner.run``. Where cluster or store are out of reach the Job goes on."""
        mirror = SessionMirror(work.folder, self._objects, self._hasty)
        sent = partial(self._sent, mirror, request)  # the store answered a moment ago: ``adopt``
        request, address = follower.persist(sent, work, request.attempt)
        order = self._order(work, request, address)
        try:
            self._create(order)
            self._tell_of_others(work, order)
            lost = self._lost.pop(order.session, None)
            over = Following(self._api, work, order, mirror, follower, lost=lost).until_over()
        except (ClusterAway, StoreAway):
            raise
        except BaseException as first:
            try:
                if not self._goes_on():
                    self._clear(order)
            except Exception as also:  # what went wrong first is what counts
                first.add_note(f"Job {order.name} may still be running: {also}")
            raise
        return self._ended(work, order, over, mirror, follower)

    def leave(self, work: SessionWork[Any]) -> None:
        """See ``AttemptRunner.leave``. What cannot be done now costs no result that is there."""
        known = attempt_numbers(work.folder.root)  # a newer one is another follower's
        number = known[-1]
        try:
            left = self._selector(work.folder.session, *known[-_MOST_LEFT:])
            self._api.delete(left, _LEAVE_SECONDS)
            SessionMirror(work.folder, self._objects).vouch(number)
        except (ClusterAway, ClusterRefused, StoreAway) as error:
            said = f"Some objects of this session could not be deleted: {error}"
            work.folder.warn(number, said)

    def kill(self, session: str, attempt: int, rank: int) -> bool:
        """Delete the pod that a rank of an attempt runs in, without a grace; False: none does."""
        request = _begun(SessionFolder.of(self._objects, session), attempt)
        index = index_of(job_name(session, attempt, self._mark), rank, request.world)
        for pod in self._api.pods(self._selector(session, attempt)):
            if pod.index == index and pod.started and not pod.lost:
                self._api.delete_pod(pod.name)
                return True
        return False

    def _require_ours(self, jobs: Sequence[JobState]) -> None:
        """The same training for another store has the same names; its result would never come."""
        store = f"{self._objects.place.uri}/"
        for job in jobs:
            if not job.request.startswith(store):
                raise ClusterRefused(
                    f"Job {job.name} in namespace {self._settings.namespace} does the same work "
                    f"for another store: its request is {job.request or '(not reported)'}, and "
                    f"ours would be below {store}. Wait until it has ended, or give each store "
                    "its own namespace (ML_ASSETS_NAMESPACE)."
                )

    # --- the beginning ----------------------------------------------------------------------------

    def _sent(self, mirror: SessionMirror, request: Request) -> tuple[Request, str]:
        """The request that counts, and its address: that of whoever began the attempt first."""
        try:
            return request, mirror.send(request)
        except AttemptTaken:
            number = request.attempt
            mirror.take_up(number, instead=True)
            mirror.pull(number)
            folder = attempt_of(request.session, number)
            return _begun(mirror.folder, number), f"{self._objects.place.uri}/{folder}/{REQUEST}"

    def _order(self, work: SessionWork[Any], request: Request, address: str) -> JobOrder:
        training = request.training if isinstance(request, TrainRequest) else None
        told = session_events(work.folder.root)
        return JobOrder(
            pipeline=work.pipeline,
            session=request.session,
            attempt=request.attempt,
            verb=work.verb,
            world=request.world,
            cluster=work.cluster,
            spot=work.spot and runs_on_spot(work.verb, work.cluster),
            request=address,
            grace_seconds=save_seconds(training, _largest_checkpoint(told)),
            avoid=avoided_nodes(told),
            mark=self._mark,
            asked=work.asked,
        )

    def _create(self, order: JobOrder) -> None:
        """The Job, by us or by whoever was first; then its Service, which goes with it."""
        job = self._api.create_job(job_manifest(order, self._settings))
        if order.world.nodes > 1:
            self._api.create_service(service_manifest(order, self._settings, job.uid))

    def _tell_of_others(self, work: SessionWork[Any], order: JobOrder) -> None:
        """Tell of Jobs that train for the same pipeline: whoever asked may not know of them."""
        if order.verb != "train":
            return
        alike = {PIPELINE_LABEL: pipeline_label(order.pipeline), VERB_LABEL: order.verb}
        chosen = "".join(f",{label}={value}" for label, value in alike.items())
        own = slug_of(order.session, self._mark)
        for job in self._api.jobs(selector_of() + chosen):
            over = job.deleting or job.complete or job.failure is not None
            if over or job.labels.get(SESSION_LABEL) == own:
                continue
            since = f" since {job.created:%Y-%m-%d %H:%M} UTC" if job.created else ""
            where = self._settings.namespace
            message = (
                f"Job {job.name} in namespace {where} trains {order.pipeline}, too{since}. It "
                "belongs to another state folder, or to a run that was killed before its spec or "
                "data changed. To follow it, run that command in that folder, or here with the "
                "earlier spec and data. To end it, after it has saved: kubectl delete job "
                f"{job.name} --namespace {where}"
            )
            work.folder.warn(order.attempt, message)

    # --- the end ----------------------------------------------------------------------------------

    def _ended(
        self,
        work: SessionWork[Any],
        order: JobOrder,
        over: Over,
        mirror: SessionMirror,
        follower: Follower,
    ) -> Ending:
        """Clear away what ended, bring what it left, and say what it means."""
        number = order.attempt

        def brought(asked: Callable[[], T], nothing: T) -> T:
            """Nothing for who was told to stop while the store is away: the Job has to go."""
            try:
                return follower.persist(asked, work, number)
            except StoreAway:
                if follower.told_to_stop():
                    return nothing
                raise

        words = partial(mirror.exits, number)
        seen = self._looked_at(order, over, brought(words, ()))
        then = why(over, seen, follower.of_attempt(number)).then
        if then in _MADE_AGAIN and not (over.complete or over.told or over.noticed):
            threading.Thread(target=self._clear_behind, args=[order], daemon=True).start()
        else:
            if over.complete:  # the result counts, whatever cannot be cleared away now
                self._clear_behind(order)
            else:
                self._clear(order, trained=over.trained)
            seen = replace(seen, words=brought(words, seen.words))
        brought(partial(mirror.pull, number), 0)
        follower.pass_on()
        collected = brought(partial(mirror.collect, number), False)
        self._over.setdefault(order.session, set()).add(number)
        times = [pod.lost_at for pod in over.pods if pod.lost and pod.lost_at is not None]
        if times:
            self._lost[order.session] = min(times)
        log = work.folder.log(number)
        followed = log.read_bytes() if log.is_file() else b""  # of the first pod
        write_whole(log, followed + seen.log.encode())
        told = follower.of_attempt(number)
        ending = ending_of(over, seen, told, log)
        held = held_by(order, seen, self._bought(order), told)
        if ending.cause == "JobDeleted" and not collected:
            continued = partial(self._continued, order, mirror, follower)
            ending = of_cause("Superseded") if brought(continued, False) else ending
        return replace(ending, held=held)

    def _looked_at(
        self, order: JobOrder, over: Over, words: Sequence[TerminationMessage]
    ) -> PodObservations:
        """What tells why it ended, as long as it is there."""
        job, spoken = over.job, {word.index for word in words}
        failed = [pod for pod in over.pods if pod.phase == "Failed" and not pod.gone]
        return PodObservations(
            job,
            over.pods,
            self._api.cluster_events(job.uid) if job and not job.complete else (),
            words,
            tails(self._api, [pod for pod in failed if pod.index not in spoken]),
            order.spot,
        )

    def _continued(self, order: JobOrder, mirror: SessionMirror, follower: Follower) -> bool:
        """Whether another follower cleared the Job away, and goes on or has a result.

        Else a person deleted it, or the training was stopped meanwhile.
        """
        session = selector_of(order.session, self._mark)
        deadline = time.monotonic() + _SUCCESSOR_SECONDS
        while not any(job.continues(order.attempt) for job in self._api.jobs(session)):
            if follower.told_to_stop() or time.monotonic() > deadline:
                newest = max(mirror.attempts())
                return newest > order.attempt and mirror.has_result(newest)
            time.sleep(_BETWEEN_LOOKS)
        return True

    def _clear(self, order: JobOrder, *, trained: bool = True) -> None:
        """Delete an attempt's Job, pods and Service, and wait until they have ended in peace.

        What never trained has nothing to save, and gets no time for it.
        """
        selector = self._selector(order.session, order.attempt)
        grace = order.grace_seconds + HAND_OVER_SECONDS if trained else 0
        self._api.delete(selector, grace + _SLACK_SECONDS, at_once=not trained)

    def _clear_behind(self, order: JobOrder) -> None:
        with suppress(MlAssetsError):  # ``leave`` sees to what is left
            self._clear(order)

    def _selector(self, session: str, *attempts: int) -> str:
        numbers = ",".join(map(str, attempts))
        return f"{selector_of(session, self._mark)},{ATTEMPT_LABEL} in ({numbers})"

    def _bought(self, order: JobOrder) -> PriceClass:
        return "spot" if order.spot else self._settings.bought


def _begun(folder: SessionFolder, number: int) -> Request:
    """The request of an attempt that was begun, by us or by another launcher."""
    return REQUESTS.validate_json(folder.request(number).read_bytes())


def _largest_checkpoint(told: Sequence[Event]) -> int | None:
    """Bytes, as told so far; None: none was told."""
    return max((event.size for event in told if isinstance(event, Checkpoint)), default=None)
