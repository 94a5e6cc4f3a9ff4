"""Jobs are followed for days with calls in the tens an hour, whatever breaks on the way."""

import pytest
from kubernetes.client import ApiException

from ml_assets.errors import ClusterAway, ClusterRefused
from ml_assets.launch.kubernetes.informer import (
    LONGEST_WAIT,
    REFUSED_SECONDS,
    Cache,
    Reflector,
    wait_after,
)
from ml_assets_tests.launch.kubernetes.objects import (
    JOB,
    RUNNING,
    condition,
    job_json,
    pod_json,
    terminated,
)
from ml_assets_tests.launch.kubernetes.simulated import AWAY, EXPIRED, HOUR, RESET, Simulated

DAYS = 72 * HOUR


def feed_of(cluster, kind="pods", cache=None):
    cache = cache or Cache()
    cache.put_all("jobs", [job_json()])
    reflector = Reflector(cluster, kind, "a=b", cache, cluster.clock, cluster.pause)
    reflector.begin()
    return reflector, cache


def follow(cluster, seconds=DAYS):
    reflector, cache = feed_of(cluster)
    while cluster.now < seconds:
        reflector.turn()
    return cache


def every(period, error, of="watching", lasting=1.0):
    def fault(what, now):
        return error if what == of and now > period and now % period < lasting else None

    return fault


def unavailable(what, now):
    return ApiException(status=503) if what == "watch" else None


def away_ten_minutes_an_hour(what, now):
    if now % HOUR >= HOUR - 600:
        return RESET if what == "watching" else AWAY
    return None


@pytest.mark.parametrize(
    ("how", "most"),
    [
        ({}, 12),
        ({"token_seconds": 600.0}, 24),
        ({"fault": every(300, RESET)}, 30),
        ({"fault": every(300, EXPIRED)}, 40),
        ({"bookmarks": None}, 20),
        ({"fault": unavailable}, 45),
        ({"fault": away_ten_minutes_an_hour}, 30),
    ],
    ids=["healthy", "tokens", "resets", "410", "no bookmarks", "no watches", "away"],
)
def test_three_days_of_one_kind_take_so_many_calls_an_hour(how, most):
    cluster = Simulated(pod_json(0), pod_json(1), **how)
    cache = follow(cluster)
    assert cluster.reached / 72 <= most
    assert [pod.index for pod in cache.now().pods] == [0, 1]


@pytest.mark.parametrize(
    ("how", "within"),
    [
        ({}, 1),
        ({"fault": every(300, RESET)}, 5),
        ({"fault": every(300, EXPIRED)}, 5),
        ({"fault": unavailable}, LONGEST_WAIT + 1),
        # each wait is up to twice the one before: the last of that minute is of 64 s at most
        ({"fault": lambda what, now: AWAY if 900 < now < 960 else None}, 60 + 64),
    ],
    ids=["healthy", "resets", "410", "no watches", "away for a minute"],
)
def test_a_pod_that_fails_is_known_soon(how, within):
    for moment in (1000.0, 1199.0, 1201.0, 902.0):
        cluster = Simulated(pod_json(0), **how)
        failed = pod_json(0, terminated(137, "OOMKilled"), phase="Failed")
        cluster.happens = [(moment, "MODIFIED", failed)]
        reflector, cache = feed_of(cluster)
        known = []
        put, put_all = cache.put, cache.put_all

        def noted(method, cluster=cluster, cache=cache, known=known):
            def call(*arguments):
                found = method(*arguments)
                if any(pod.lost for pod in cache.now().pods):
                    known.append(cluster.now)
                return found

            return call

        cache.put, cache.put_all = noted(put), noted(put_all)
        while not known and cluster.now < 2 * HOUR:
            reflector.turn()
        assert moment <= known[0] <= moment + within + 1


def test_what_was_missed_while_the_version_grew_too_old_is_found_by_a_look():
    gone = every(500, EXPIRED, of="watching", lasting=3.0)
    cluster = Simulated(pod_json(0), pod_json(1), fault=gone)
    cluster.happens = [(501.0, "DELETED", pod_json(1, deleted=3))]
    cache = follow(cluster, 600)
    lost = cache.now().pods[0]
    assert (lost.index, lost.gone) == (1, True)


def test_three_days_of_attempts_that_come_and_go_leave_only_what_is_there_now():
    cluster, cache = Simulated(), Cache()
    reflector = Reflector(cluster, "pods", "a=b", cache, cluster.clock, cluster.pause)
    reflector.begin()
    for number in range(2000):
        job = job_json(name=f"job-{number}")
        cache.put("jobs", job)
        pods = [pod_json(index, job=f"job-{number}") for index in range(2)]
        start = cluster.now
        cluster.happens = [(start + 1, "ADDED", pod) for pod in pods]
        cluster.happens += [(start + 60, "DELETED", pod) for pod in pods]
        while cluster.happens:
            reflector.turn()
        assert all(pod.gone for pod in cache.now().pods if pod.job == f"job-{number}")
        cache.drop("jobs", job)
    assert cluster.now > DAYS
    seen = cache.now()
    assert (seen.jobs, seen.pods) == ((), ())
    assert [len(held) for held in vars(cache).values() if isinstance(held, dict | list)] == [0] * 3


def test_a_refusal_of_what_was_allowed_may_pass():
    def refused(what, now):
        return ApiException(status=403) if 100 < now < 100 + REFUSED_SECONDS / 2 else None

    cache = follow(Simulated(pod_json(0), fault=refused), 2 * HOUR)
    assert len(cache.now().pods) == 1


@pytest.mark.parametrize("status", [403, 401])
def test_a_refusal_that_lasts_is_told_and_ends_nothing_that_runs(status):
    def refused(what, now):
        return ApiException(status=status) if now > 100 else None

    cluster = Simulated(pod_json(0), fault=refused)
    with pytest.raises(ClusterAway, match=rf"{status}.*15 minutes.*continues"):
        follow(cluster, 4 * HOUR)
    assert REFUSED_SECONDS < cluster.now < HOUR


def test_an_api_that_is_away_for_hours_ends_nothing():
    cluster = Simulated(pod_json(0), fault=lambda what, now: AWAY if 100 < now < 9 * HOUR else None)
    follow(cluster, 10 * HOUR)


def test_the_first_refusal_is_the_callers():
    with pytest.raises(ClusterRefused):
        feed_of(Simulated(fault=lambda what, now: ApiException(status=403)))


def test_waits_grow_to_their_longest():
    assert 0.5 <= wait_after(1, 60) <= 1
    assert 30 <= wait_after(50, 60) <= 60


# --- what is kept of pods that went ---------------------------------------------------------------


def board_of(*pods):
    cache = Cache()
    cache.put_all("jobs", [job_json()])
    cache.put_all("pods", pods)
    return cache


def test_a_pod_that_went_between_two_looks_is_known_to_be_gone():
    cache = board_of(pod_json(0), pod_json(1))
    assert cache.put_all("pods", [pod_json(0)])
    lost, kept = cache.now().pods
    assert (lost.index, lost.gone, kept.gone) == (1, True, False)
    assert not cache.put_all("pods", [pod_json(0)])


def test_lost_pods_come_in_the_order_in_which_they_were_lost():
    cache = board_of(pod_json(0), pod_json(1), pod_json(2))
    taken = condition("DisruptionTarget", "EvictionByEvictionAPI")
    cache.put("pods", pod_json(2, RUNNING, taken))
    cache.put("pods", pod_json(0, terminated(71), phase="Failed"))
    cache.drop("pods", pod_json(2, RUNNING, taken))
    assert [pod.index for pod in cache.now().pods] == [2, 0, 1]
    assert cache.now().pods[0].disrupted is not None


def test_a_job_takes_the_pods_that_went_with_it():
    cache = board_of(pod_json(0))
    cache.drop("pods", pod_json(0))
    assert len([pod for pod in cache.now().pods if pod.job == JOB]) == 1
    cache.drop("jobs", job_json())
    assert cache.now().pods == ()


def test_who_waits_is_told_of_a_change_and_of_an_error():
    cache = board_of()
    assert not cache.wait(0)
    cache.fail(ClusterRefused("no"))
    with pytest.raises(ClusterRefused):
        cache.now()
