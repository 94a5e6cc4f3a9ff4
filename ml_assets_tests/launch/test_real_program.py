"""The real program under the real launcher: its model, its scores, and its reasons."""

from dataclasses import replace

import pytest

from ml_assets.errors import DoesNotFit, TrainingFailed
from ml_assets.launch import session_name
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.launch.launcher import SanityJob, ScoreJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.settings import read_settings
from ml_assets.spec.memory_estimate import Room
from ml_assets.spec.training import Mlp
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST
from ml_assets.spec.training_program.identity import Program, program_here
from ml_assets_tests.launch.real import STEPS, named, train_job
from ml_assets_tests.training.networks import MODEL, code


def test_a_finished_session_replays_its_events_and_its_model_scores(undisturbed, training_set):
    launcher, result, events = undisturbed
    assert (result.attempt, result.step) == (1, STEPS)
    again = []
    assert launcher.train(train_job(training_set), again.append) == result
    assert again == events
    scored = launcher.score(ScoreJob("demo", result.model, training_set, "holdout"), again.append)
    assert scored.rows == 120


def test_each_attempt_says_first_which_program_it_runs_and_on_what(undisturbed):
    first = undisturbed[2][0]
    assert (first.kind, first.index) == ("began", 0)
    assert first.node.program == program_here("network")
    assert {"python", "torch", "numpy", "ml_assets"} <= first.node.versions.keys()
    assert first.node.machine.devices and first.node.machine.memory_bytes > 0


def test_another_program_than_the_session_s_is_refused_before_a_step(
    tmp_path, training_set, monkeypatch
):
    other = Program(sources="0" * 64, versions={"torch": "1.0.0"})
    monkeypatch.setattr(session_name, "program_here", lambda part: other)
    job, events = train_job(training_set), []
    with pytest.raises(TrainingFailed, match="another program than the session's") as caught:
        LocalLauncher(tmp_path / "objects").train(job, events.append)
    said, here = str(caught.value), program_here("network")
    assert "000000000000" in said and here.sources[:12] in said
    assert f"torch is {here.versions['torch']}, not 1.0.0" in said
    assert "ML_ASSETS_TRAINING_IMAGE" in said
    assert {event.exit_code for event in named(events, "error")} == {EXIT_BAD_REQUEST}
    assert {event.kind for event in events} == {"began", "error"}


def test_a_network_of_a_team_s_own_goes_with_its_code_into_each_request(
    tmp_path, training_set, monkeypatch
):
    own, launcher = code(tmp_path / "pipeline"), LocalLauncher(tmp_path / "objects")
    job = train_job(training_set, epochs=1, processes=1)
    trained = launcher.train(replace(job, model=MODEL, code=own), lambda _: None)
    scored = ScoreJob("demo", trained.model, training_set, "holdout", code=own)
    assert launcher.score(scored, lambda _: None).rows == 120
    examined = SanityJob("demo", MODEL, job.training, training_set, code=own)
    deep = replace(examined, deep=True)
    usual, every = (launcher.sanity(asked, lambda _: None).checks for asked in (examined, deep))
    assert {check.name for check in every} - {check.name for check in usual}, "it was deep"
    # its size is known now, and another training of it is held to it
    room = Room(10_000, "this machine")
    monkeypatch.setattr("ml_assets.launch.local.launcher.machine_room", lambda: room)
    again = replace(job, model=MODEL, code=own, salt="again")
    with pytest.raises(DoesNotFit, match=r"parameters x 4 .* Lower sizes in model\.config"):
        launcher.train(again, lambda _: None)


def test_equal_weights_of_a_fresh_session_are_the_same_model_and_nothing_else_stays(
    tmp_path, training_set, undisturbed, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    fresh = replace(train_job(training_set), salt="again")
    result = LocalLauncher(tmp_path / "objects").train(fresh, lambda _: None)
    assert result.session != undisturbed[1].session
    assert result.model.digest == undisturbed[1].model.digest
    left = [path.name for path in temporary.iterdir()]
    assert [name for name in left if not name.startswith("torchinductor_")] == [], "torch's cache"


def test_a_network_that_cannot_fit_is_refused_before_a_process_starts(tmp_path, training_set):
    started = tmp_path / "started"
    launcher = LocalLauncher(tmp_path / "objects", program=("touch", str(started)))
    wide = replace(train_job(training_set), model=Mlp(family="mlp", width=2**22, depth=2))
    with pytest.raises(DoesNotFit, match=r"2 of them .* and this .* has"):
        launcher.train(wide, [].append)
    assert not started.exists()


def test_a_reason_of_the_program_comes_through_torchrun_and_is_not_tried_again(
    tmp_path, training_set
):
    lost = training_set.model_copy(update={"uri": str(tmp_path / "nowhere")})
    events = []
    with pytest.raises(TrainingFailed, match="nowhere") as caught:
        LocalLauncher(tmp_path / "objects").train(train_job(lost), events.append)
    assert "Materialize that asset again" in str(caught.value)
    # torchrun starts them again three times; they read the verdict and end before they begin
    assert {event.generation for event in named(events, "error")} == {0}
    started = list((tmp_path / "objects").glob("sessions/*/attempts/1/ranks/*/attempt_*"))
    assert len(started) == 4


def test_where_nothing_stays_a_failure_names_no_log_and_says_what_the_program_said(
    tmp_path, training_set
):
    lost = training_set.model_copy(update={"uri": str(tmp_path / "nowhere")})
    settings = read_settings({"ML_ASSETS_HOME": str(tmp_path / "home")})
    with (
        pytest.raises(TrainingFailed, match="nowhere") as caught,
        ephemeral_launcher(settings, "deep", retries=0, restarts=0) as session,
    ):
        session.launcher.train(train_job(lost, processes=1), lambda _: None)
    said = str(caught.value)
    assert "  It said: " in said and "What to do:" in said
    assert "Log: " not in said


def test_a_few_steps_are_a_session_of_their_own(tmp_path, training_set, undisturbed):
    job = replace(train_job(training_set, processes=1), steps=7)
    result = LocalLauncher(tmp_path / "objects").train(job, lambda _: None)
    assert result.step == 7
    assert result.session != undisturbed[1].session
