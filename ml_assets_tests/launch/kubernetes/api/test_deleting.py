"""Nothing is left of a deleted Job, and what it said last can be read before."""

from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets_tests.launch.kubernetes.api.claims import CUT_OFF, SELECTOR, left
from ml_assets_tests.servers.kubernetes.sample_jobs import until


def test_a_deleted_job_leaves_nothing_and_its_pods_had_their_grace(cluster, api, running):
    api.delete(SELECTOR, 30)
    assert left(api) == []
    until(lambda: running.now().jobs == ())


def test_a_delete_of_nothing_is_fine(api):
    api.delete(SELECTOR, 5)


def test_a_delete_whose_answer_was_cut_off_is_finished(cluster, api, running):
    cluster.own_server(CUT_OFF).faults.reset(verb="delete", resource="jobs", after=True)
    api.delete(SELECTOR, 30)
    assert left(api) == []


def test_pods_that_will_not_end_are_deleted_by_force(api, a_job):
    deaf = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    grace = {"terminationGracePeriodSeconds": 3600}
    api.create_job(a_job(deaf + "time.sleep(3600)", template=grace))
    until(lambda: any("up" in api.tail(pod.name, 5) for pod in api.pods(SELECTOR)))
    api.delete(SELECTOR, 2)
    assert left(api) == []


def test_an_explanation_that_we_may_not_read_is_no_error(cluster, a_job, tmp_path):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]}]
    theirs, _ = cluster.account("few", rules, tmp_path / "few")
    few = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(theirs.kubeconfig)})
    made = few.create_job(a_job())
    assert (few.tail("any", 5), few.cluster_events(made.uid)) == ("", ())
    assert few.queue_word(made, "q") is None


def test_an_explanation_that_the_server_cannot_give_now_is_no_error(cluster, api, a_job):
    server = cluster.own_server("a real API server is not busy when a test wants it")
    made = api.create_job(a_job())
    server.faults.refuse(503, verb="list", resource="events")
    assert api.cluster_events(made.uid) == ()


def test_the_end_of_a_log_is_read_and_none_is_none(api, a_job):
    api.create_job(a_job("print('one'); print('two'); print('three')"))
    until(lambda: [pod for pod in api.pods(SELECTOR) if pod.phase == "Succeeded"])
    assert api.tail(api.pods(SELECTOR)[0].name, 2) == "two\nthree\n"
    assert api.tail("nobody", 2) == ""
