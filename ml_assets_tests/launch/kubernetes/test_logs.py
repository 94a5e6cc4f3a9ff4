"""A log is followed to its end, each line once, whatever breaks on the way."""

import threading

import pytest

from ml_assets.errors import ClusterRefused
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.launch.kubernetes.calls import NoAnswer, Trouble
from ml_assets.launch.kubernetes.logs import LogFollower, tails
from ml_assets_tests.launch.kubernetes.objects import a_pod
from ml_assets_tests.servers.kubernetes.sample_jobs import SLEEP, job, until

BROKEN = NoAnswer("broke off", Trouble("reset", done=True))


def line(second, text, fraction="000000000"):
    return f"2026-01-05T10:00:{second:02d}.{fraction}Z {text}".encode()


class Answer:
    """One connection: its lines, then its end: an error, or none."""

    def __init__(self, *lines, error=None):
        self.lines, self.error = lines, error

    def __iter__(self):
        yield from self.lines
        if self.error is not None:
            raise self.error

    def close(self):
        pass


class Pod:
    """Answers in turn; when they are used up, the pod is gone."""

    def __init__(self, *answers):
        self.answers, self.asked, self.done = list(answers), [], threading.Event()

    def log(self, pod, since_seconds=None):
        self.asked.append(since_seconds)
        answer = self.answers.pop(0) if self.answers else ClusterRefused("gone", 404)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tail(self, pod, lines):
        return f"the end of {pod}" if "-a1-1-" in pod else ""


@pytest.fixture
def followed(tmp_path, monkeypatch):
    monkeypatch.setattr("ml_assets.launch.kubernetes.logs.wait_after", lambda failures, most: 0.0)

    def followed(*answers, file=tmp_path / "attempt" / "log.txt"):
        pod = Pod(*answers)
        with LogFollower(pod, file) as follower:
            follower.follow("pod-0")
            follower.follow("pod-0")
            assert pod.done.wait(60)
        return file.read_text().splitlines()

    return followed


def test_each_line_is_written_once_though_connections_break(followed):
    one, two, three = line(1, "one"), line(2, "two"), line(3, "three")
    found = followed(Answer(one, two, error=BROKEN), BROKEN, Answer(one, two, three), Answer(three))
    assert found == ["one", "two", "three"]


def test_lines_of_the_same_moment_are_told_apart(followed):
    same = [line(1, "a"), line(1, "a"), line(1, "b")]
    assert followed(Answer(*same[:2], error=BROKEN), Answer(*same)) == ["a", "a", "b"]


def test_lines_of_one_moment_are_all_written_when_they_come_together(followed):
    same = [line(1, "a"), line(1, "b"), line(1, "c"), line(2, "d")]
    assert followed(Answer(*same)) == ["a", "b", "c", "d"]
    assert followed(Answer(*same, error=BROKEN), Answer(*same, line(2, "e"))) == [*"abcde"]


def test_a_moment_is_the_same_however_many_digits_it_is_written_with(followed):
    first, then = line(1, "first", "1"), line(1, "then", "12")
    assert followed(Answer(first, error=BROKEN), Answer(first, then)) == ["first", "then"]


def test_a_container_that_is_still_to_come_is_waited_for(followed):
    creating = ClusterRefused("container is waiting to start: ContainerCreating", 400)
    assert followed(creating, creating, Answer(line(1, "up"))) == ["up"]


def test_a_log_that_may_not_be_read_says_so_once(followed):
    found = followed(ClusterRefused("cannot get resource pods/log", 403))
    assert found == ["(the log cannot be read: cannot get resource pods/log)"]


def test_a_file_that_a_former_follower_began_is_continued(followed, tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("one\ntwo\nthr")
    answer = Answer(line(1, "one"), line(2, "two"), line(3, "three"))
    assert followed(answer, file=file) == ["one", "two", "three"]


def test_a_file_of_another_pod_is_kept(followed, tmp_path):
    file = tmp_path / "log.txt"
    file.write_text("of another\n")
    assert followed(Answer(line(1, "one")), file=file) == ["of another", "one"]


def test_only_what_is_young_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("ml_assets.launch.kubernetes.logs.wait_after", lambda failures, most: 0.0)
    now = iter([0.0, 500.0])
    pod = Pod(Answer(line(1, "one"), error=BROKEN), Answer())
    with LogFollower(pod, tmp_path / "log.txt", clock=lambda: next(now, 500.0)) as follower:
        follower.follow("pod-0")
        assert pod.done.wait(60)
    assert pod.asked[:2] == [None, 510]


def test_what_cannot_be_read_is_left_out_of_the_ends():
    first, second = a_pod(0), a_pod(1)
    told = tails(Pod(), [first, second])
    assert f"the end of {second.name}" in told and first.name not in told


# --- real HTTP ------------------------------------------------------------------------------------

COUNTS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('told to stop', flush=True), sys.exit(143)))
for number in range(1000):
    print(f'line {number}', flush=True)
    time.sleep(0.01)
"""


def test_the_log_of_a_pod_arrives_whole_though_the_api_goes_away(cluster, tmp_path):
    server = cluster.server
    api = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(cluster.kubeconfig)})
    api.create_job(job(cluster, COUNTS))
    file = tmp_path / "log.txt"
    with LogFollower(api, file) as follower:
        pod = until(lambda: api.pods("claim=claim"))[0]
        follower.follow(pod.name)
        until(lambda: file.exists() and "line 20\n" in file.read_text())
        with server.faults.api_down():
            pass
        before = len(file.read_text().splitlines())
        until(lambda: len(file.read_text().splitlines()) > before + 20)
        api.delete("claim=claim", 30)
    lines = file.read_text().splitlines()
    assert lines[:-1] == [f"line {number}" for number in range(len(lines) - 1)]
    assert lines[-1] == "told to stop"


def test_the_ends_of_the_logs_of_others_come_under_their_names(cluster):
    api = KubernetesApi(cluster.namespace, 30.0, {"KUBECONFIG": str(cluster.kubeconfig)})
    script = "import os; print('rank', os.environ['JOB_COMPLETION_INDEX'], flush=True)"
    grace = {"terminationGracePeriodSeconds": 1}
    api.create_job(job(cluster, f"{script}\n{SLEEP}", pods=2, template=grace))

    def both_have_spoken():
        spoken = [pod for pod in api.pods("claim=claim") if api.tail(pod.name, 5)]
        return len(spoken) == 2

    until(both_have_spoken)
    pods = sorted(api.pods("claim=claim"), key=lambda pod: pod.index)
    told = tails(api, pods)
    assert told.index(pods[0].name) < told.index("rank 0") < told.index(pods[1].name)
    api.delete("claim=claim", 30)
