"""``search.yaml`` beside a spec: which fields of the spec are searched, how, and for how much.

It is a file of its own because a search changes often, and only the winner's values are part of a
model's record.
"""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from ml_assets.errors import SpecError, counted, did_you_mean
from ml_assets.spec.automation import Timed
from ml_assets.spec.base import Frozen, Misfit, Misfits, Positive, digest_of
from ml_assets.spec.cluster import QueueName
from ml_assets.spec.load import Location, Mistake, check_document, rules_of
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search_parameter import Parameter, Value, Values, same
from ml_assets.spec.training import Boosted, validation_metrics, without_meaning

SEARCH_FILE = "search.yaml"
Method = Literal["grid", "random", "quasi_random", "tpe", "population"]

_BY_ITSELF = ("parameters", "metric", "budget", "after_refusals")
"""Keys that fit, or do not, whatever the others of the search say."""
PARTS = ("model", "training")
NO_PARAMETER = {
    "family": "a search is over one family: write a spec for each",
    "seed": "the best seed is luck: search.seeds says how much seeds matter",
    "init_from": "it names a file",
    "profile": "it only records a trace",
    "spot": "it says where the training runs",
    "processes": "it distributes the work, and decides no result",
    "strategy": "it distributes the work, and decides no result",
    "activation_checkpointing": "it does not change what the model learns",
    "compile": "it is for speed",
    "cpu_offload": "it distributes the work, and decides no result",
    "prefetch": "it does not change what the model learns",
    "max_steps": "a trial that learns for longer is not better: fix it in the spec",
    "augmentation": "it is not a single value",
    "curriculum": "it is not a single value",
    "ensemble": "it is not a single value",
    "distill": "it is not a single value",
    "betas": "it is not a single value",
    "parallel": "it distributes the work, and decides no result",
    "hang_timeout_seconds": "it does not change what the model learns",
    "checkpoint_minutes": "it does not change what the model learns",
    "checkpoint_every": "it does not change what the model learns",
    "keep_last": "it does not change what the model learns",
    "keep_best": "it does not change what the model learns",
    "patience": "a trial that waits longer is not better: fix it in the spec",
    "evaluate_every": "a trial is judged at its evaluations: fix them in the spec",
}
"""Fields that are not searched -> why."""


class Then(Frozen):
    """The method that continues when the space is explored."""

    method: Literal["tpe"] = "tpe"
    """How settings are proposed from then on."""
    after: Positive
    """Trials by the first method."""


class Prune(Frozen):
    """When a hopeless trial is stopped."""

    kind: Literal["successive_halving", "hyperband", "median"]
    """The rule of pruning."""
    min_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The share of its training that each trial gets in any case."""


class Budget(Frozen):
    """The most that a study may use, as the cost account counts it. Running trials are then
    stopped."""

    machine_hours: Annotated[float, Field(gt=0)] | None = None
    """Hours of machines: two trials side by side on one machine are two."""
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """Hours of GPUs, where ``cluster.gpus_per_node`` of the spec asks for some."""


class SearchSpec(Frozen):
    """The settings that a study tries, and how it chooses among them."""

    method: Method = "quasi_random"
    """How settings are proposed."""
    then: Then | None = None
    """What searches on after the first trials. None: the same method."""
    trials: Positive = 16
    """The number of trials, besides the spec's own setting, which every study trains too. For a
    population: its members, each of which trains as long as a full training."""
    rounds: Annotated[int, Field(ge=2)] | None = None
    """For a population: the parts of a training. After each, the worst quarter takes over from the
    best."""
    parallel: Positive | None = None
    """Trials side by side. None: as many as this machine has cores, or four on a cluster."""
    prune: Prune | None = None
    """When a trial is stopped early. None: never."""
    budget: Budget | None = None
    """The most that the study may use. None: no limit."""
    seeds: Annotated[int, Field(ge=0, le=20)] = 3
    """The number of seeds with which the best setting is trained, to measure their effect; 0 or 1:
    none."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The seed of the search; the same seed tries the same settings."""
    schedule: Timed | None = None
    """When the study starts automatically. None: not on a schedule."""
    after_refusals: Annotated[int, Field(ge=2)] | None = None
    """Trainings in a row that drift asked for and the gates refused, after which the study is asked
    for by itself; one alone may be the period's fault. None: never for that."""
    queue: QueueName | None = None
    """Kueue's LocalQueue that the trials wait in. None: that of the spec's ``cluster``."""
    queue_priority: QueueName | None = None
    """Kueue's WorkloadPriorityClass of the trials. None: that of the spec's ``cluster``."""
    metric: str = "validation_loss"
    """What a trial is judged by, at each evaluation and in the end; ``check`` names those of the
    task. In the end that evaluation counts whose weights are the model's."""
    adopt: bool = False
    """Whether ``trained_model`` is trained by the winner; else a study changes nothing."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """Path of a field of ``model`` or ``training``, such as ``model.width`` -> its possible
    values."""

    @model_validator(mode="after")
    def _fits(self, asked: ValidationInfo) -> Self:
        problems = [
            Misfit(("parameters", path, key), f"parameters.{path}: {said}")
            for path, one in self.parameters.items()
            for key, said in one.problems()
        ]
        if not problems and not self.searched:
            said = "every parameter is fixed: there is nothing to search"
            problems.append(Misfit(("parameters",), said))
        problems += _method_problems(self)
        if isinstance(spec := (asked.context or {}).get("spec"), PipelineSpec):
            problems += space_problems(self, spec)
        if problems:
            raise Misfits(problems)
        return self

    @property
    def searched(self) -> dict[str, Parameter]:
        """The parameters that are searched: those that are not fixed."""
        return {path: one for path, one in self.parameters.items() if one.kind is not None}

    @property
    def fixed(self) -> dict[str, Value]:
        """Path -> value of the others."""
        return {path: one.value for path, one in self.parameters.items() if one.kind is None}

    @property
    def space(self) -> str:
        """Digest of the space: which fields, and what they may be."""
        plain = {path: one.model_dump(mode="json") for path, one in self.parameters.items()}
        return digest_of(plain)

    @property
    def size(self) -> int:
        """How many settings a grid of the space has."""
        return prod(len(one.grid()) for one in self.searched.values())

    def holds(self, values: Values) -> bool:
        """Whether these are values of the space: every field of it, and no other."""
        return set(values) == set(self.parameters) and all(
            one.holds(values[path]) for path, one in self.parameters.items()
        )

    def proposes(self, values: Values) -> bool:
        """Whether these are values that its method may come to: of a grid, its points alone."""
        if self.method != "grid":
            return self.holds(values)
        return self.holds(values) and all(
            any(same(values[path], point) for point in one.grid())
            for path, one in self.searched.items()
        )

    def own(self, spec: PipelineSpec) -> dict[str, Value]:
        """What the spec itself says of the fields of the space."""
        return {path: value_at(spec, path) for path in self.parameters}


def _method_problems(search: SearchSpec) -> list[Misfit]:
    found: list[Misfit] = []
    if search.then is not None and search.then.after >= search.trials:
        told = counted(search.trials, "trial")
        said = f"then.after is {search.then.after} of {told}: none is left for it"
        found.append(Misfit(("then", "after"), said))
    if search.then is not None and search.method in ("grid", "tpe"):
        said = f"method {search.method} is not followed by another: remove 'then'"
        found.append(Misfit(("then",), said))
    found += _population_problems(search)
    if search.budget is not None and not (search.budget.machine_hours or search.budget.gpu_hours):
        said = "a budget needs 'machine_hours' or 'gpu_hours'"
        found.append(Misfit(("budget",), said))
    for path, one in search.searched.items() if search.method == "grid" else ():
        if one.kind in ("float", "log_float") and one.points is None:
            said = f"parameters.{path}: a grid needs 'points', 3 for example, or kind: choice"
            found.append(Misfit(("parameters", path, "kind"), said))
    return found


def _population_problems(search: SearchSpec) -> list[Misfit]:
    """What a population is, and what it cannot be asked for."""
    if search.method != "population":
        said = f"rounds are of method: population, and this one is {search.method}: remove them"
        return [Misfit(("rounds",), said)] if search.rounds is not None else []
    found: list[Misfit] = []
    if search.rounds is None:
        found.append(Misfit(("method",), "a population needs 'rounds', 4 for example"))
    if search.trials < 4:
        said = f"a population of {search.trials} has no worst quarter: write trials: 4 or more"
        found.append(Misfit(("trials",), said))
    if search.prune is not None:
        said = "a population ends no trial early: its worst go on from its best; remove 'prune'"
        found.append(Misfit(("prune",), said))
    if search.then is not None:
        found.append(Misfit(("then",), "a population is not followed by another: remove 'then'"))
    if search.adopt:
        said = (
            "a population finds a schedule over its rounds, which a spec cannot express, so"
            " trained_model cannot adopt it: remove 'adopt', and read the schedule on the"
            " page of the study. method: tpe finds settings that can be adopted"
        )
        found.append(Misfit(("adopt",), said))
    for path, one in search.searched.items():
        if one.role == "scientific":
            said = f"parameters.{path}: a member changes its settings from round to round, so the"
            at = ("parameters", path, "role")
            more = "effect of one cannot be isolated: write role: nuisance"
            found.append(Misfit(at, f"{said} {more}"))
    return found


_NOT_IN_A_ROUND = {
    "epochs": "the rounds share the epochs out",
    "schedule": "a round is at constant settings, and the rounds are the schedule",
    "warmup": "only the first round has one",
}


def _no_member(search: SearchSpec, spec: PipelineSpec) -> list[Misfit]:
    """What of a population does not go with the spec."""
    if isinstance(spec.model, Boosted):
        said = f"trees cannot continue from weights: search {spec.model.family} by another method"
        return [Misfit(("method",), f"{said}, such as tpe")]
    found: list[Misfit] = []
    if search.rounds and spec.training.epochs < search.rounds:
        told = counted(search.rounds, "round"), counted(spec.training.epochs, "epoch")
        said = f"{' for '.join(told)}: each round needs at least one epoch, so write fewer rounds"
        found.append(Misfit(("rounds",), said))
    if spec.training.max_steps is not None:
        said = "the rounds share the epochs out, and training.max_steps would end each: remove it"
        found.append(Misfit(("method",), said))
    for path in search.searched:
        part, _, field = path.partition(".")
        why = _NOT_IN_A_ROUND.get(field)
        if part == "model" and field != "dropout":
            why = "a member takes over the weights of another, which have another shape then"
        if why:
            found.append(Misfit(("parameters", path), f"parameters.{path}: {why}: remove it"))
    return found


def with_values(spec: PipelineSpec, values: Values) -> PipelineSpec:
    """The spec with other values in some fields of its model and training.

    Raises:
        ValidationError: they do not go into these fields, or not together.
    """
    plain = spec.model_dump(mode="json")
    for path, value in values.items():
        part, _, field = path.partition(".")
        plain[part][field] = value
    return PipelineSpec.model_validate(plain)


def value_at(spec: PipelineSpec, path: str) -> Value:
    """What a spec says in a field of its model or training."""
    part, _, field = path.partition(".")
    return getattr(getattr(spec, part), field)


def check_search(folder: Path, spec: PipelineSpec) -> tuple[SearchSpec | None, tuple[Mistake, ...]]:
    """The search beside a spec (None: there is none), or every mistake in it."""
    file = folder / SEARCH_FILE
    if not file.is_file():
        return None, ()

    def beside(asked: Mapping[str, Any], wrong: Sequence[Location]) -> Sequence[Misfit]:
        return _misfits_beside(asked, wrong, spec)

    return check_document(file, "search", SearchSpec, {"spec": spec}, beside)


def _misfits_beside(
    asked: Mapping[str, Any], wrong: Sequence[Location], spec: PipelineSpec
) -> Sequence[Misfit]:
    """What does not fit of a search without what is wrong by itself; none that may be due to it."""
    names = {place[1] for place in wrong if place[0] == "parameters" and len(place) > 1}
    keys = {place[0] for place in wrong} - ({"parameters"} if names else set())
    kept = {key: value for key, value in asked.items() if key not in keys}
    if names:
        kept["parameters"] = {n: one for n, one in asked["parameters"].items() if n not in names}
    try:
        SearchSpec.model_validate(kept, context={"spec": spec})
    except ValidationError as error:
        causes = [details.get("ctx", {}).get("error") for details in error.errors()]
        found = [one for cause in causes if isinstance(cause, Misfits) for one in cause.found]
        found = [one for one in found if one.path != ("parameters",)]
        return [one for one in found if not keys or one.path[0] in _BY_ITSELF]
    return []


def load_search(folder: Path, spec: PipelineSpec) -> SearchSpec | None:
    """Read and check ``folder/search.yaml``; None: there is none.

    Raises:
        SpecError: it has mistakes; all of them are listed.
    """
    search, mistakes = check_search(folder, spec)
    if mistakes:
        listed = "\n".join(str(mistake) for mistake in mistakes)
        number = counted(len(mistakes), "mistake")
        raise SpecError(f"{folder.name}: {number} in {folder / SEARCH_FILE}:\n{listed}")
    return search


def space_problems(search: SearchSpec, spec: PipelineSpec) -> list[Misfit]:
    """Every parameter that is no field of the spec, or may be what the field does not allow; and
    what else the search and the spec do not agree about."""
    found: list[Misfit] = []
    if search.queue_priority and not (search.queue or spec.cluster.queue):
        said = "queue_priority needs a queue: set queue here or in the spec's cluster, or remove it"
        found.append(Misfit(("queue_priority",), said))
    if search.after_refusals and not (spec.drift and spec.drift.retrain):
        said = "after_refusals counts the trainings of drift.retrain, which the spec does not set"
        found.append(Misfit(("after_refusals",), f"{said}: remove it"))
    if search.budget and search.budget.gpu_hours and not spec.cluster.gpus_per_node:
        said = "the spec asks for no GPU (cluster.gpus_per_node is 0), so no GPU hour would"
        found.append(Misfit(("budget", "gpu_hours"), f"{said} be spent: write machine_hours"))
    if search.method == "population":
        found += _no_member(search, spec)
    known = validation_metrics(spec.label.task)
    if search.metric not in known:
        said = f"a training by this spec reports no {search.metric} of the validation split."
        told = f"{said}{did_you_mean(search.metric, known)} There are {', '.join(known)}"
        found.append(Misfit(("metric",), told))
    for path, one in search.parameters.items():
        at = ("parameters", path)
        if said := _no_field(path, spec):
            found.append(Misfit(at, f"parameters.{path}: {said}"))
            continue
        for key, value in _extremes(one) if not one.problems() else ():
            if said := refused(spec, {**search.fixed, path: value}, path):
                found.append(Misfit((*at, key), f"parameters.{path}: {value!r}: {said}"))
    return found


def _no_field(path: str, spec: PipelineSpec) -> str:
    part, _, field = path.partition(".")
    known = [f"{p}.{name}" for p in PARTS for name in sorted(_fields(spec, p))]
    if part not in PARTS or field not in type(getattr(spec, part)).model_fields:
        said = "no such field of model or training: only these are searched."
        return f"{said}{did_you_mean(path, known)} There are {', '.join(known)}"
    if field in NO_PARAMETER:
        return f"it is not searched: {NO_PARAMETER[field]}"
    if part == "training" and field in without_meaning(spec.model):
        return f"of no meaning for model.family {spec.model.family!r}: remove it"
    return ""


def _fields(spec: PipelineSpec, part: str) -> set[str]:
    """The fields of a part that may be searched."""
    left_out = set(NO_PARAMETER) | (without_meaning(spec.model) if part == "training" else set())
    return set(type(getattr(spec, part)).model_fields) - left_out


def _extremes(one: Parameter) -> Sequence[tuple[str, Value]]:
    """Values that stand for all: where a field allows these, it allows what lies between."""
    if one.kind is None:
        return [("value", one.value)]
    if one.kind == "choice":
        return [("values", value) for value in one.values]
    low, high = one.bounds
    return [("low", one.plain(low)), ("high", one.plain(high))]


def refused(spec: PipelineSpec, values: Values, path: str) -> str:
    """Why the spec does not take these values; empty: it does."""
    known = {p: value for p, value in values.items() if not _no_field(p, spec)}
    try:
        with_values(spec, {**known, path: values[path]})
    except ValidationError as error:
        return rules_of(error)
    return ""
