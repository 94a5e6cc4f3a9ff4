"""Makes one trial of a study again: is its loss the one in the study?"""

from dataclasses import replace

from ml_assets.assets.hyperparameter_search.asset import study_plan
from ml_assets.assets.hyperparameter_search.optuna_study import Proposal
from ml_assets.assets.hyperparameter_search.page import published_study, searched_by
from ml_assets.assets.hyperparameter_search.trial import Running
from ml_assets.errors import OtherCode, StorageError, UnknownRun
from ml_assets.extras.prove.reproduction import Reproduction
from ml_assets.graph.inputs import require_record
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.spec.study_record import Study, Trial
from ml_assets.store.pipeline_context import Pipeline


def trial_verdict(pipeline: Pipeline, wanted: int | None) -> Reproduction:
    """Train one trial of the newest study again, in a place of its own, and compare its loss.

    Args:
        wanted: its number; None: the best one.

    Raises:
        UnknownRun: there is no study, or no trial of that number that was trained whole.
        StorageError: the training set is another one by now.
        OtherCode: code, spec or search are others by now.
        TrainingFailed: it comes to no result now.
    """
    declared = pipeline.declared
    study = published_study(declared)
    if study is None:
        raise UnknownRun(
            f"{declared.name} has no study to prove: ml-assets run {declared.name} --search"
        )
    one = _trial(study, wanted)
    if one.round is not None:
        raise UnknownRun(
            f"Trial {one.number} of {study.name} is a round of a population, which began with the "
            "weights of another: only a trial that was trained from its beginning can be proved. "
            f"Its session is {one.session}."
        )
    data = require_record(declared.now(), declared.address("training_set"))
    by = replace(declared, search=searched_by(study))
    plan = study_plan(by, data, {})
    if plan.base.data.digest != study.data:
        raise StorageError(
            f"Study {study.name} was on training set {study.data[:12]}; there is"
            f" {plan.base.data.digest[:12]} now. Search on that one: ml-assets run {declared.name}"
            " --search"
        )
    if plan.name != study.name:
        raise OtherCode(
            f"Study {study.name} would be {plan.name} here: the spec, the training program or the"
            " weights to begin with have changed since, so another loss would prove nothing."
        )
    with ephemeral_launcher(declared.settings, "prove-trial") as room:
        proposal = Proposal(one.number, one.values, one.own)
        job = plan.job(proposal)
        there = replace(job, data=room.reachable(job.data))
        told = Running(proposal, there, repeat=False)
        result = room.launcher.train(there, told.story.take)
        now = told.came_to(result, plan.search.metric)
    named = f"{declared.name}/hyperparameter_search trial {one.number}"
    if now == one.loss:
        return Reproduction(named, "equal", f"{study.judged_by} {now:.6f}")
    said = f"{study.judged_by} {now!r} now, {one.loss!r} in the study"
    return Reproduction(named, "differs", said)


def _trial(study: Study, wanted: int | None) -> Trial:
    if wanted is None:
        return study.best
    found = next((one for one in study.finished if one.number == wanted), None)
    if found is None:
        numbers = ", ".join(str(one.number) for one in study.finished)
        raise UnknownRun(
            f"{wanted} is not a trial of {study.name} that was trained to its end; these are:"
            f" {numbers}"
        )
    return found
