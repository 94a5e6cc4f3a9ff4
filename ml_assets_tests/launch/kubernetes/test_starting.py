"""An attempt that does not come up says why, soon where only a person can mend it."""

import pytest

from ml_assets.launch.failure import Ending
from ml_assets.launch.kubernetes.observations import QueueWord
from ml_assets.launch.kubernetes.pod_failures import CAUSES
from ml_assets.launch.kubernetes.starting import PATIENCE, StartUp, Stuck, too_small
from ml_assets_tests.launch.kubernetes.objects import (
    RUNNING,
    a_job,
    a_pod,
    an_event,
    condition,
    waiting,
)

HOUR = 3600.0
IMAGE = "registry.internal.example:5000/team-forbidden/training-of-models@sha256:" + "5" * 64
PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
HEAD = f'{PULL}failed to do request: Head "https://{IMAGE}": '
BACK_OFF = f'Back-off pulling image "{IMAGE}": ErrImagePull: '
QUEUE = (("kueue.x-k8s.io/queue-name", "flights"),)


class Asked:
    """Answers as a cluster would, and counts the questions."""

    def __init__(self, *cluster_events, queue=None):
        self.events, self.queue, self.questions = cluster_events, queue, 0

    def cluster_events(self, uid):
        self.questions += 1
        return self.events

    def queue_word(self, job, queue):
        self.questions += 1
        return self.queue


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def start_up(clock):
    def start_up(*cluster_events, queue=None, room=600.0):
        return StartUp(Asked(*cluster_events, queue=queue), room, clock)

    return start_up


def pending(index=0, state=None, *conditions, node="node-1"):
    return a_pod(index, state, *conditions, phase="Pending", node=node)


def unscheduled(index, words="0/4 nodes are available: 4 Insufficient nvidia.com/gpu."):
    return pending(
        index, None, condition("PodScheduled", "Unschedulable", words, "False"), node=None
    )


def ended_after(start, clock, job, pods, most=2 * HOUR):
    """The verdict and after how many seconds it came, by the second."""
    while clock.now <= most:
        found = start.look(job, pods)
        if isinstance(found, Ending):
            return found, clock.now
        clock.now += 1
    raise AssertionError(f"it still waits: {found}")


def test_once_all_pods_run_there_is_nothing_to_wait_for(start_up):
    start = start_up()
    assert start.look(a_job(), [a_pod(0), a_pod(1)]) is None
    assert start.look(a_job(), [a_pod(0), pending(1)]) is not None
    assert start.look(a_job(), [a_pod(0)]) is not None


@pytest.mark.parametrize(
    ("reason", "words", "cause"),
    [
        ("ErrImagePull", 'failed to resolve reference "x@sha256:0": not found', "ImagePull"),
        ("ErrImagePull", "pull access denied, repository does not exist", "ImagePull"),
        ("ErrImagePull", "401 Unauthorized", "ImagePull"),
        ("ErrImagePull", "dial tcp: lookup registry.exmaple: no such host", "ImagePull"),
        ("SignatureValidationFailed", "Source image rejected", "SignatureValidationFailed"),
        ("InvalidImageName", "couldn't parse image name", "InvalidImageName"),
        ("ErrImageNeverPull", "Container image is not present", "ErrImageNeverPull"),
        ("CreateContainerConfigError", 'secret "keys" not found', "CreateContainerConfigError"),
        ("RunContainerError", "exec: not found in $PATH", "ContainerStart"),
    ],
)
def test_what_only_a_person_can_mend_is_told_within_half_a_minute(
    start_up, clock, reason, words, cause
):
    pods = [pending(0, waiting(reason, words)), pending(1, waiting(reason, words))]
    found, seconds = ended_after(start_up(), clock, a_job(), pods)
    assert (found.cause, found.then, found.kind) == (cause, "stop", "error")
    assert seconds <= 30
    assert words in found.report("attempt 1")


@pytest.mark.parametrize(
    "words",
    [
        f"{PULL}{IMAGE}: not found",
        f"{HEAD}dial tcp: lookup registry.internal.example on 10.96.0.10:53: no such host",
        f"{PULL}pull access denied, repository does not exist or may require authorization:"
        " server message: insufficient_scope: authorization failed",
        f"{PULL}unexpected status from HEAD request to https://{IMAGE}: 403 Forbidden",
        f"{PULL}failed to authorize: failed to fetch oauth token: unexpected status: 401"
        " Unauthorized",
        f'failed to pull and unpack image "{IMAGE}": no match for platform in manifest: not found',
        f"{HEAD}http: server gave HTTP response to HTTPS client",
        # CRI-O
        f'initializing source docker://{IMAGE}: reading manifest sha256:5 in "{IMAGE}": manifest'
        " unknown",
        f"initializing source docker://{IMAGE}: pinging container registry: Get"
        ' "https://registry.internal.example/v2/": dial tcp: lookup registry.internal.example: no'
        " such host",
        f"copying system image from manifest list: Manifest does not match provided manifest digest"
        f" sha256:{'5' * 64}",
        f"choosing image instance: no image found in image index for architecture arm64 ({IMAGE})",
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_what_a_registry_refuses_is_final_however_long_its_words_are(
    start_up, clock, reason, words
):
    said = BACK_OFF + words if reason == "ImagePullBackOff" else words
    pods = [pending(0, waiting(reason, said))]
    found, seconds = ended_after(start_up(), clock, a_job(parallelism=1), pods)
    assert (found.cause, found.then) == ("ImagePull", "stop")
    assert seconds <= 30
    assert found.words.endswith(words[-60:]), "the cause is at the end"


@pytest.mark.parametrize(
    "words",
    [
        "dial tcp 10.0.0.1:443: i/o timeout",
        "dial tcp 10.0.0.1:443: connect: connection refused",
        "dial tcp: lookup registry.internal.example on 10.96.0.10:53: server misbehaving",
        "dial tcp: lookup registry.internal.example: Temporary failure in name resolution",
        "dial tcp: lookup registry.internal.example: Try again",
        "unexpected status from HEAD request: 503 Service Unavailable",
        "429 Too Many Requests - Server message: toomanyrequests: You have reached your limit",
        "429 Too Many Requests - Server message: toomanyrequests: You have reached your"
        " unauthenticated pull rate limit",
        "pull QPS exceeded",
    ],
)
def test_a_registry_that_does_not_answer_is_waited_for(start_up, clock, words):
    pods = [pending(0, waiting("ErrImagePull", HEAD + words))]
    found, seconds = ended_after(start_up(), clock, a_job(parallelism=1), pods)
    assert (found.cause, found.then) == ("RegistryAway", "stop")
    assert seconds == PATIENCE["RegistryAway"] == 1800


def test_a_refusal_after_a_registry_was_away_is_told_as_such(start_up, clock):
    start, job = start_up(), a_job(parallelism=1)
    start.look(job, [pending(0, waiting("ErrImagePull", HEAD + "i/o timeout"))])
    clock.now = 60
    refused = [pending(0, waiting("ImagePullBackOff", f"{BACK_OFF}{PULL}{IMAGE}: not found"))]
    found, _ = ended_after(start, clock, job, refused)
    assert found.cause == "ImagePull"


def test_a_back_off_does_not_hide_the_error_before_it(start_up, clock):
    start, job = start_up(), a_job(parallelism=1)
    start.look(job, [pending(0, waiting("ErrImagePull", "x@sha256:0: not found"))])
    backing_off = [pending(0, waiting("ImagePullBackOff", 'Back-off pulling image "x@sha256:0"'))]
    found, seconds = ended_after(start, clock, job, backing_off)
    assert (found.cause, seconds) == ("ImagePull", PATIENCE["ImagePull"])
    assert found.words == "x@sha256:0: not found"


def test_a_cause_that_passes_begins_anew_when_it_comes_back(start_up, clock):
    start, job = start_up(), a_job(parallelism=1)
    denied = [pending(0, waiting("ErrImagePull", "denied"))]
    start.look(job, denied)
    clock.now = 15
    assert start.look(job, [a_pod(0)]) is None
    assert isinstance(start.look(job, denied), Stuck)
    clock.now = 30
    assert isinstance(start.look(job, denied), Stuck)


def test_no_room_is_waited_for_as_long_as_the_spec_says_and_tells_how_many_fit(start_up, clock):
    pods = [a_pod(0), unscheduled(1)]
    found, seconds = ended_after(start_up(room=900.0), clock, a_job(), pods)
    assert (found.cause, found.then, found.room, seconds) == ("Unschedulable", "no_room", 1, 900)
    assert "1 of 2 pods have a node; 0/4 nodes are available: 4 Insufficient" in found.words


def test_a_quota_that_is_spent_for_now_is_waited_for(start_up, clock):
    words = "exceeded quota: team, requested: cpu=2, used: cpu=7, limited: cpu=8"
    start = start_up(an_event("FailedCreate", f'pods "a" is forbidden: {words}'), room=300.0)
    found, seconds = ended_after(start, clock, a_job(), [a_pod(0)])
    assert (found.cause, found.then, found.room, seconds) == ("QuotaExceeded", "no_room", 1, 300)
    assert words in found.words


def test_a_quota_that_is_too_small_is_told_at_once(start_up, clock):
    words = "exceeded quota: team, requested: cpu=5, used: cpu=0, limited: cpu=8"
    found, seconds = ended_after(
        start_up(an_event("FailedCreate", words)), clock, a_job(parallelism=2), []
    )
    assert (found.cause, found.then, seconds) == ("QuotaTooSmall", "stop", 0)


def test_pods_that_a_rule_forbids_are_told_with_the_rule(start_up, clock):
    words = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'
    found, seconds = ended_after(start_up(an_event("FailedCreate", words)), clock, a_job(), [])
    assert (found.cause, found.then) == ("PodsForbidden", "stop")
    assert seconds <= 30 and "runAsNonRoot" in found.words


@pytest.mark.parametrize(
    "words",
    [
        'Internal error occurred: failed calling webhook "mpod.kb.io": connection refused',
        "etcdserver: request timed out",
        'Operation cannot be fulfilled on resourcequotas "team": the object has been modified',
    ],
)
def test_what_keeps_a_pod_from_being_made_for_a_while_is_waited_for(start_up, clock, words):
    start = start_up(an_event("FailedCreate", f"Error creating: {words}"))
    found, seconds = ended_after(start, clock, a_job(), [])
    assert (found.cause, seconds) == ("NotStarted", 1800)
    assert words in found.words


def test_a_quota_is_told_from_a_rule_however_long_its_words_are(start_up, clock):
    amounts = ",".join(f"requests.example.com/accelerator-{number}=1" for number in range(12))
    words = f"exceeded quota: team, requested: {amounts}, used: {amounts}, limited: {amounts}"
    start = start_up(an_event("FailedCreate", f"(combined from similar events): {words}"))
    assert ended_after(start, clock, a_job(), [a_pod(0)])[0].cause.startswith("Quota")


def test_an_old_refusal_does_not_count_once_the_pods_are_made(start_up, clock):
    start = start_up(an_event("FailedCreate", "exceeded quota: team, requested: cpu=2"))
    start.look(a_job(parallelism=1), [])
    found = start.look(a_job(parallelism=1), [pending(0, waiting("ContainerCreating"))])
    assert isinstance(found, Stuck) and found.cause == "NotStarted"


def test_a_queue_that_is_not_there_is_told_at_once(start_up, clock):
    word = QueueWord("LocalQueue flights doesn't exist", missing=True)
    job = a_job(suspend=True, labels=QUEUE)
    found, seconds = ended_after(start_up(queue=word), clock, job, [])
    assert (found.cause, found.then, seconds) == ("QueueMissing", "stop", 0)


def test_a_place_in_the_queue_is_kept_for_ever_and_told(start_up, clock):
    word = QueueWord("insufficient unused quota for nvidia.com/gpu, 8 more needed", missing=False)
    start, job = start_up(queue=word), a_job(suspend=True, labels=QUEUE)
    for clock.now in range(0, 48 * 3600, 600):
        found = start.look(job, [])
        assert isinstance(found, Stuck) and found.cause == "Queued"
    assert "8 more needed" in str(found)


def test_a_job_that_somebody_suspended_is_told_and_waited_for(start_up, clock):
    start = start_up()
    for clock.now in (0, 10 * HOUR):
        assert "suspended" in str(start.look(a_job(suspend=True), []))


def test_a_volume_that_cannot_be_mounted_is_told_with_the_events_words(start_up, clock):
    event = an_event("FailedMount", 'MountVolume.SetUp failed: secret "tls" not found')
    pods = [pending(0, waiting("ContainerCreating"))]
    found, _ = ended_after(start_up(event), clock, a_job(parallelism=1), pods)
    assert (found.cause, found.then) == ("VolumeMount", "unstarted")
    assert 'secret "tls" not found' in found.words


def test_a_network_that_came_late_is_not_what_a_pod_waits_for_now(start_up, clock):
    late = an_event("FailedCreatePodSandBox", "plugin type aws-cni failed (add)")
    pods = [pending(0, waiting("ContainerCreating"))]
    start = start_up(late, an_event("Pulling", "Pulling image"))
    found, seconds = ended_after(start, clock, a_job(parallelism=1), pods)
    assert (found.cause, seconds) == ("NotStarted", 1800)


def test_a_slow_pull_of_a_large_image_is_no_failure_for_half_an_hour(start_up, clock):
    pods = [pending(0, waiting("ContainerCreating"))]
    found, seconds = ended_after(start_up(), clock, a_job(parallelism=1), pods)
    assert (found.cause, seconds) == ("NotStarted", 1800)


def test_the_cluster_is_asked_for_words_only_now_and_then(start_up, clock):
    asked = Asked()
    start = StartUp(asked, 600, clock)
    for clock.now in range(600):
        start.look(a_job(), [])
    assert asked.questions == 4 + 585 / 15  # after 0, 1, 3 and 7 seconds, then every fifteen
    for clock.now in range(600, 1200):
        start.look(a_job(), [a_pod(0, RUNNING), a_pod(1, RUNNING)])
    assert asked.questions == 4 + 585 / 15


def test_every_patience_is_of_a_line_of_the_table():
    assert set(PATIENCE) - set(CAUSES) == set()


# --- a quota that is spent for now is told from one that could never hold what is asked for -------

SAID = 'Error creating: pods "a-0" is forbidden: exceeded quota: team, requested: {0}'


@pytest.mark.parametrize(
    ("numbers", "pods", "small"),
    [
        ("requests.cpu=2, used: requests.cpu=7, limited: requests.cpu=8", 4, False),
        ("requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=8", 5, True),
        ("cpu=500m,memory=9Gi, used: cpu=0,memory=0, limited: cpu=8,memory=8Gi", 1, True),
        ("cpu=500m, used: cpu=0, limited: cpu=2", 4, False),
        ("memory=1.5G, used: memory=0, limited: memory=2e9", 1, False),
        ("memory=1Zi, used: memory=0, limited: memory=1", 1, False),
        ("pods=1, used: pods=10, limited: pods=10", 2, False),
    ],
)
def test_what_all_pods_need_is_held_against_the_whole_quota(numbers, pods, small):
    assert too_small(SAID.format(numbers), pods) is small


def test_other_words_are_no_verdict_on_the_quota():
    assert not too_small("pods is forbidden: must specify cpu", 2)
    assert not too_small("exceeded quota: team, requested: nonsense", 2)
