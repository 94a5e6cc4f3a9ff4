"""A Job is created once, however often and through whatever fault it is asked for."""

import pytest

from ml_assets_tests.launch.kubernetes.api.claims import CUT_OFF, LABELS, SELECTOR


def test_a_job_is_created_once_and_found_by_the_next(api, a_job):
    first, second = api.create_job(a_job()), api.create_job(a_job())
    assert first.uid == second.uid
    assert api.job("claim").uid == first.uid and api.job("other") is None


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_create_gets_through_a_busy_server(cluster, api, a_job, code):
    server = cluster.own_server("a real API server is not busy when a test wants it")
    server.faults.refuse(code, times=2, verb="create", resource="jobs")
    assert api.create_job(a_job()).name == "claim"


def test_a_create_whose_answer_was_cut_off_is_found_not_repeated(cluster, api, a_job):
    server = cluster.own_server(CUT_OFF)
    server.faults.reset(verb="create", resource="jobs", after=True)
    assert api.create_job(a_job()).name == "claim"
    calls = server.calls
    assert len(calls.of("create", "jobs")) == 1 and calls.of("get", "jobs")


def test_a_create_that_was_cut_off_before_is_repeated(cluster, api, a_job):
    cluster.own_server(CUT_OFF).faults.reset(verb="create", resource="jobs")
    assert api.create_job(a_job()).name == "claim"
    assert len(api.jobs(SELECTOR)) == 1


def test_a_service_that_is_there_is_ours(api):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "claim", "labels": LABELS},
        "spec": {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 29500}]},
    }
    api.create_service(service)
    api.create_service(service)
    api.delete(SELECTOR, 20)
