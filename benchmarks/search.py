"""What a study costs beside its trainings, and what pruning saves.

    python benchmarks/search.py              # all of it, in some minutes
    python benchmarks/search.py --many       # only 1,000 trials: asking, and the page
    python benchmarks/search.py --prune      # only pruning, on the curves that were recorded
    python benchmarks/search.py --overhead   # only 16 trainings, by a study and by bare Optuna
    python benchmarks/search.py --record     # trains 32 settings of the irises for these curves

The overhead is that of 16 trials and the spec's own setting, two at once, over a loop of bare
Optuna that asks the same launcher for the same trainings; both in this process, in turn. Wall time
tells on a quiet machine alone, processor time on any. One figure a line: NAME VALUE [AIM
holds|short].
"""

import argparse
import json
import resource
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from math import log10
from os import cpu_count, getloadavg
from pathlib import Path
from statistics import median
from typing import Any

from figures import tell

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, Sampler, pruner
from ml_assets.assets.hyperparameter_search.page import study_page
from ml_assets.assets.hyperparameter_search.plan import StudyPlan
from ml_assets.assets.hyperparameter_search.run_study import StudyRun, outcome
from ml_assets.launch.events import session_events
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.outbox import OutboxEntry, tell_whole
from ml_assets.spec.search import Prune, SearchSpec
from ml_assets.spec.search_parameter import Values
from ml_assets.spec.study_record import Study, Trial
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

CURVES = Path(__file__).parent / "results" / "search_curves.json"
TRIALS = 16
PARAMETERS = {
    "training.learning_rate": {"kind": "log_float", "low": 0.0003, "high": 0.1},
    "training.weight_decay": {"kind": "log_float", "low": 0.0001, "high": 0.1},
    "model.width": {"kind": "choice", "values": [8, 16, 32, 64], "role": "scientific"},
}


def main() -> None:
    """Print the figures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("many", "prune", "record", "overhead"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--pairs", type=int, default=3, help="of --overhead")
    asked = parser.parse_args()
    every = not (asked.many or asked.prune or asked.record or asked.overhead)
    with tempfile.TemporaryDirectory() as folder:
        if asked.record:
            record(Path(folder))
        if asked.prune or every:
            prunes(Path(folder))
        if asked.many or every:
            many(Path(folder))
        if asked.overhead or every:
            overhead(Path(folder), asked.pairs)


def search(trials: int, method: str = "quasi_random", **more: Any) -> SearchSpec:
    """A search of the irises' network; no other seeds."""
    plain = {"method": method, "trials": trials, "seeds": 0, "parameters": PARAMETERS, **more}
    return SearchSpec.model_validate(plain)


def plan_of(folder: Path, by: SearchSpec, parallel: int = 2) -> StudyPlan:
    """A study of the irises, whose training set is made here."""
    world = World(folder)
    if not world.pipelines.is_dir():
        irises.plant(world.pipelines, world.sources)
        world.cli("run", "irises", "--through", "training_set")
    pipeline = open_pipeline("irises", world.settings)
    from ml_assets.assets.trained_model.training_job import train_job
    from ml_assets.graph.inputs import require_record

    data = require_record(pipeline.now(), pipeline.address("training_set"))
    base = train_job(pipeline, data, None, {})
    return StudyPlan(pipeline.spec, by, base, parallel, 1)


def study(plan: StudyPlan, folder: Path) -> Study:
    """Run a study by real processes."""
    sampler = Sampler(plan.search, plan.search.own(plan.spec), plan.name, str(folder), plan.fits)
    run = StudyRun(
        plan,
        sampler,
        LocalLauncher(folder),
        LocalObjects(folder),
        lambda line: None,
        lambda trial, one: None,
    )
    why = run.run()
    return outcome(plan, run, why)


def overhead(folder: Path, pairs: int) -> None:
    """The same trainings by a study and by bare Optuna, in turn: wall time and processor time.

    The processor time of all processes says most where others use the machine, too.
    """
    plan = plan_of(folder / "world", search(TRIALS))
    found: Study | None = None
    taken: dict[str, list[tuple[float, float, float]]] = {"study": [], "bare": []}
    for pair in range(pairs):
        here = folder / f"pair-{pair}"
        began = _seconds()
        found = study(plan, here / "study")
        taken["study"].append(_since(began))
        began = _seconds()
        bare_optuna(plan, found, here / "bare")
        taken["bare"].append(_since(began))
    assert found is not None
    told = in_mlflow(found, folder, folder / f"pair-{pairs - 1}" / "study")
    wall, cpu, own = [median(one[n] for one in taken["study"]) for n in range(3)]
    bare_wall, bare_cpu, _ = [median(one[n] for one in taken["bare"]) for n in range(3)]
    print(f"search_load_of_the_machine {getloadavg()[0]:.1f} on {cpu_count()} cores")
    print(f"search_pairs {pairs}")
    print(f"search_wall_seconds {wall:.1f}")
    print(f"search_bare_wall_seconds {bare_wall:.1f}")
    why = "Optuna is told of every evaluation, and the importances come at the end."
    tell("search_wall_over_bare", wall / bare_wall, 1.15, why=why)
    print(f"search_cpu_seconds {cpu:.1f}")
    print(f"search_bare_cpu_seconds {bare_cpu:.1f}")
    tell("search_cpu_over_bare", cpu / bare_cpu, 1.15)
    print(f"search_mlflow_cpu_seconds_of_a_trial {told:.3f}")
    tell("search_cpu_seconds_of_a_trial", own / len(found.trials) + told, 0.5)


def _seconds() -> tuple[float, float, float]:
    """Wall time, processor time of all processes that ended, that of this one alone."""
    below, own = resource.getrusage(resource.RUSAGE_CHILDREN), _own_seconds()
    return time.monotonic(), own + below.ru_utime + below.ru_stime, own


def _since(began: tuple[float, float, float]) -> tuple[float, float, float]:
    wall, cpu, own = (now - then for now, then in zip(_seconds(), began, strict=True))
    return wall, cpu, own


def in_mlflow(found: Study, folder: Path, sessions: Path) -> float:
    """Processor seconds of here that MLflow takes for the curves of a trial, its database made."""
    tracking = Tracking(f"sqlite:///{folder / 'mlflow.db'}", folder)
    entries: list[tuple[OutboxEntry, TrainingStory]] = []
    for one in found.trials:
        story = TrainingStory()
        for event in session_events(LocalObjects(sessions).path("sessions", one.session)):
            story.take(event)
        params = {path: str(value) for path, value in one.values.items()}
        entry = OutboxEntry(
            pipeline="irises", session=one.session, status="FINISHED", tags={}, params=params
        )
        entries.append((entry, story))
    tell_whole(tracking, *entries[0])
    began = _own_seconds()
    for entry, story in entries[1:]:
        said = tell_whole(tracking, entry, story)
        assert not isinstance(said, Unavailable), said.reason
    return (_own_seconds() - began) / (len(entries) - 1)


def bare_optuna(plan: StudyPlan, found: Study, folder: Path) -> None:
    """Optuna's own loop over the same trainings, two at once."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    launcher, values = LocalLauncher(folder), [one for one in found.trials]
    loop = optuna.create_study()

    def objective(trial: optuna.Trial) -> float:
        one = values[trial.number]
        job = plan.job(Proposal(one.number, one.values))
        trial.suggest_float("learning_rate", 0.0003, 0.1, log=True)
        return launcher.train(replace(job, salt="bare"), lambda _: None).metrics["validation_loss"]

    loop.optimize(objective, n_trials=len(values), n_jobs=2)


def many(folder: Path) -> None:
    """A thousand finished trials: the next proposal, and the page."""
    by = search(2000, "tpe")
    sampler = Sampler(by, {}, "many", str(folder / "many"))
    began = time.monotonic()
    for number in range(1000):
        proposal = sampler.ask()
        assert proposal is not None
        sampler.tell(proposal.number, "finished", _bowl(proposal.values) + number * 1e-9)
    each = (time.monotonic() - began) / 1000
    began, cpu = time.monotonic(), _own_seconds()
    for _ in range(10):
        sampler.ask()
    ask, cpu = (time.monotonic() - began) / 10, (_own_seconds() - cpu) / 10
    plan = plan_of(folder / "world", by)
    began = time.monotonic()
    again = Sampler(by, {}, "many", str(folder / "many"))
    opened = time.monotonic() - began
    trials = tuple(_trial(one) for one in again.known[:1000])
    began = time.monotonic()
    importances = again.importances()
    learned = time.monotonic() - began
    written = _study(plan, trials, importances).model_dump_json()
    began = time.monotonic()
    said = study_page(Study.model_validate_json(written), by, plan.spec)
    page = time.monotonic() - began
    print(f"search_ask_and_tell_ms {1000 * each:.1f}")
    tell("search_ask_at_1000_ms", 1000 * ask, 50)
    print(f"search_ask_at_1000_cpu_ms {1000 * cpu:.1f}")
    print(f"search_open_at_1000_seconds {opened:.2f}")
    print(f"search_importances_at_1000_seconds {learned:.2f}")
    tell("search_page_at_1000_seconds", page, 2)
    print(f"search_page_at_1000_kb {len(said) / 1000:.0f}")


def _bowl(values: Values) -> float:
    rate, decay = values["training.learning_rate"], values["training.weight_decay"]
    assert isinstance(rate, float) and isinstance(decay, float)
    return 0.4 + (log10(rate) + 2) ** 2 / 10 + (log10(decay) + 3) ** 2 / 50


def _trial(one: Proposal) -> Trial:
    loss = _bowl(one.values)
    return Trial(
        number=one.number,
        values=dict(one.values),
        session=f"irises-train-{one.number}",
        own=one.number == 0,
        end="finished",
        loss=loss,
        curve=tuple((n / 10, loss + 0.1 * (1 - n / 10)) for n in range(1, 11)),
        machine_hours=0.01,
        gpu_hours=0.0,
        attempts=1,
    )


def _study(plan: StudyPlan, trials: tuple[Trial, ...], importances: dict[str, float]) -> Study:
    return Study(
        pipeline="irises",
        name=plan.name,
        space=plan.search.space,
        data=plan.base.data.digest,
        search=plan.search.model_dump(mode="json"),
        trials=trials,
        winner=None,
        seeds=(0.4, 0.41, 0.42),
        importances=importances,
        ended="1000 trials were asked for",
        time=datetime.now(UTC),
    )


def prunes(folder: Path) -> None:
    """Steps that each pruner takes of the recorded trainings, and the best that it finds."""
    curves = [json.loads(line) for line in CURVES.read_text().splitlines()]
    whole = sum(len(one) for one in curves)
    best = min(min(y for _, y in one) for one in curves)
    for kind in ("successive_halving", "hyperband", "median"):
        steps, found = _pruned(curves, Prune(kind=kind, min_share=0.1))
        tell(f"search_{kind}_steps_saved", 1 - steps / whole, 0.4, at="least")
        why = "It ends the best one early, whose loss is high at first: the price of what it saves."
        tell(f"search_{kind}_best_percent_above", 100 * (found / best - 1), 0, why=why)


def _pruned(curves: list[list[tuple[float, float]]], prune: Prune) -> tuple[int, float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    loop = optuna.create_study(pruner=pruner(prune), study_name="curves")
    steps, best = 0, float("inf")
    for place, curve in enumerate(curves):
        trial = loop.ask()
        for number, (share, loss) in enumerate(curve, 1):
            steps += 1
            at = max(1, round(100 * share))
            trial.report(loss, at)
            spared = place == 0  # the spec's own
            if number < len(curve) and not spared and trial.should_prune():
                loop.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            done = min(y for _, y in curve)
            best = min(best, done)
            loop.tell(trial, done)
    return steps, best


def record(folder: Path) -> None:
    """Train 32 settings to their end and keep their curves, a line each."""
    found = study(plan_of(folder / "world", search(32)), folder / "study")
    kept = [[(round(x, 4), round(y, 6)) for x, y in one.curve] for one in found.trials]
    CURVES.parent.mkdir(exist_ok=True)
    CURVES.write_text("".join(json.dumps(one) + "\n" for one in kept))
    print(f"search_curves_recorded {len(kept)}")


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
