"""A session has one run in MLflow, whose parameters, metrics and files are each logged once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from ml_assets.records.tracking.mlflow import SESSION_TAG, Logged, Tracking, Unavailable
from ml_assets_tests.records.tracking.mlflow.conftest import SESSION


def history(client, run, name):
    return [(m.step, m.value) for m in client.get_metric_history(run, name)]


# --- runs -----------------------------------------------------------------------------------------


def test_a_session_has_one_run_however_often_it_is_opened(tracking, client):
    first = tracking.open_run("delays", SESSION, {"a": "1"}, {"width": "64"})
    again = tracking.open_run("delays", SESSION, {"a": "2"}, {"width": "64", "depth": "3"})
    other = tracking.open_run("delays", "07" * 32, {}, {})
    run = client.get_run(first)
    assert first == again != other
    assert run.data.tags[SESSION_TAG] == SESSION
    assert run.data.tags["a"] == "2"
    assert run.data.params == {"width": "64", "depth": "3"}


def test_threads_that_open_a_session_at_once_get_one_run(tracking):
    with ThreadPoolExecutor(4) as pool:
        runs = set(pool.map(lambda _: tracking.open_run("delays", SESSION, {}, {}), range(4)))
    assert len(runs) == 1


def test_long_values_are_cut_and_many_are_taken(tracking, client):
    tags = {f"t{n}": "x" for n in range(150)} | {"long": "y" * 9000}
    params = {f"p{n}": "x" for n in range(150)} | {"long": "y" * 9000}
    run = client.get_run(tracking.open_run("delays", SESSION, tags, params))
    assert len(run.data.params) == 151
    assert run.data.params["long"].endswith("y...")
    assert run.data.tags["t149"] == "x"


def test_a_parameter_that_differs_keeps_its_first_value(tracking, client):
    tracking.open_run("delays", SESSION, {}, {"width": "64"})
    run = tracking.open_run("delays", SESSION, {}, {"width": "65"})
    assert client.get_run(run).data.params == {"width": "64"}


def test_a_failed_run_runs_again_and_a_finished_one_stays_finished(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    seen = [client.get_run(run).info.status]
    for status in ("FAILED", "FINISHED"):
        assert tracking.close(run, status) == Logged()
        seen.append(client.get_run(run).info.status)
        tracking.open_run("delays", SESSION, {}, {})
        seen.append(client.get_run(run).info.status)
    assert seen == ["RUNNING", "FAILED", "RUNNING", "FINISHED", "FINISHED"]


def test_a_run_that_finished_is_no_failed_one_because_an_older_failure_is_told_late(
    tracking, client
):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.close(run, "FINISHED")
    assert tracking.close(run, "FAILED") == Logged()
    assert client.get_run(run).info.status == "FINISHED"


def test_closing_twice_keeps_the_first_end(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.close(run, "FINISHED")
    ended = client.get_run(run).info.end_time
    tracking.close(run, "FINISHED")
    assert client.get_run(run).info.end_time == ended


def test_an_experiment_deleted_by_hand_comes_back(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    client.delete_experiment(client.get_run(run).info.experiment_id)
    assert isinstance(tracking.open_run("delays", "07" * 32, {}, {}), str)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_logged_twice_are_there_once(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    metrics = {10: {"loss": 0.5, "rate": 0.1}, 20: {"loss": 0.4}}
    assert tracking.log_metrics(run, metrics) == Logged()
    assert tracking.log_metrics(run, metrics) == Logged()
    assert history(client, run, "loss") == [(10, 0.5), (20, 0.4)]
    assert history(client, run, "rate") == [(10, 0.1)]


def test_a_replay_by_another_process_adds_only_what_is_missing(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {20: {"loss": 0.4}})
    other = Tracking(tracking.uri, tracking.home)
    other.log_metrics(run, {10: {"loss": 0.5}, 20: {"loss": 0.4, "auc": 0.7}, 30: {"loss": 0.3}})
    assert sorted(history(client, run, "loss")) == [(10, 0.5), (20, 0.4), (30, 0.3)]
    assert history(client, run, "auc") == [(20, 0.7)]


def test_two_that_follow_one_session_at_once_log_each_step_once(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    followers = [Tracking(tracking.uri, tracking.home) for _ in range(2)]

    def follow(follower):
        for step in range(0, 60, 3):
            chunk = {step + i: {"loss": 1.0 / (1 + step + i)} for i in range(3)}
            assert follower.log_metrics(run, chunk) == Logged()

    threads = [threading.Thread(target=follow, args=(f,)) for f in followers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(step for step, _ in history(client, run, "loss")) == list(range(60))


def test_more_metrics_than_one_call_takes_are_all_logged(tracking, client):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {step: {"a": 1.0, "b": 2.0, "c": 3.0} for step in range(700)})
    assert len(history(client, run, "c")) == 700


def test_a_batch_whose_answer_was_lost_is_not_logged_again(tracking, client, monkeypatch):
    run = tracking.open_run("delays", SESSION, {}, {})
    tracking.log_metrics(run, {1: {"loss": 0.9}})
    real = type(client).log_batch

    def loses_the_answer(*args, **kwargs):
        real(*args, **kwargs)
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(type(client), "log_batch", loses_the_answer)
    assert isinstance(tracking.log_metrics(run, {2: {"loss": 0.8}}), Unavailable)
    monkeypatch.undo()
    assert tracking.log_metrics(run, {2: {"loss": 0.8}, 3: {"loss": 0.7}}, now=True) == Logged()
    assert history(client, run, "loss") == [(1, 0.9), (2, 0.8), (3, 0.7)]


def test_a_point_that_a_slow_server_takes_late_is_there_once(tracking, client, monkeypatch):
    """The first call is given up, and arrives after the second one."""
    run = tracking.open_run("delays", SESSION, {}, {})
    metrics, times = {2: {"loss": 0.8}}, {2: datetime(2026, 1, 2, 3, tzinfo=UTC)}
    real, late = type(client).log_batch, []

    def gives_up(*args, **kwargs):
        late.append((args, kwargs))
        raise TimeoutError("read timed out")

    monkeypatch.setattr(type(client), "log_batch", gives_up)
    assert isinstance(tracking.log_metrics(run, metrics, times), Unavailable)
    monkeypatch.undo()
    assert tracking.log_metrics(run, metrics, times, now=True) == Logged()
    for args, kwargs in late:
        real(*args, **kwargs)
    assert history(client, run, "loss") == [(2, 0.8)]
    (point,) = client.get_metric_history(run, "loss")
    assert point.timestamp == times[2].timestamp() * 1000


def test_an_artifact_logged_twice_is_the_newer_one_below_the_state_folder(tracking, tmp_path):
    run = tracking.open_run("delays", SESSION, {}, {})
    page = tmp_path / "report.html"
    for content in ("old", "new"):
        page.write_text(content)
        assert tracking.log_artifact(run, page) == Logged()
    (found,) = (tracking.home / "mlartifacts").rglob("report.html")
    assert found.read_text() == "new"
