"""Finds the jobs of a pipeline, each a session with all its attempts: in the records of its runs,
and in the folders of sessions that no run has recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from ml_assets.assets.trained_model.cost.money import of_bytes, of_time
from ml_assets.assets.trained_model.cost.split import PAID, Split, Standing, split_session
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.usage import session_usages
from ml_assets.records.ledger.chain import read
from ml_assets.records.run_usage import Whose, run_usages
from ml_assets.settings import Prices, prices_of
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.usage import AttemptUsage
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN


@dataclass(frozen=True)
class Use:
    """One attempt: what it was used for, and what that costs."""

    usage: AttemptUsage
    split: Split
    node_hour: Decimal | None
    """The price of an hour of one of its machines; None: not known."""
    transfer: Fraction | None
    """What the bytes that it moved cost; None: not known."""

    @property
    def paid(self) -> int:
        """Microseconds of machines that were held."""
        return sum(self.split[part] for part in PAID)

    @property
    def cost(self) -> Fraction | None:
        return of_time(self.paid, self.node_hour)


@dataclass(frozen=True)
class Job:
    """A session: a training, a scoring, a sanity check."""

    name: str
    pipeline: str
    owner: str
    run: str | None
    """Dagster run id of who wrote it down first; None: nobody did."""
    uses: tuple[Use, ...]
    """Its attempts, oldest first; there is one at least."""

    @property
    def verb(self) -> str:
        return self.uses[0].usage.verb

    @property
    def created(self) -> datetime:
        return self.uses[0].usage.held.created

    @property
    def done(self) -> bool:
        """Return whether it came to a whole result."""
        return any(use.usage.end == "done" for use in self.uses)

    @property
    def paid(self) -> int:
        """Microseconds of machines that were held."""
        return sum(use.paid for use in self.uses)


def jobs_of(pipeline: Pipeline, now: Prices) -> tuple[Job, ...]:
    """Every job of a pipeline that is known, oldest first.

    Args:
        now: prices for what has none of its own time.

    Raises:
        StorageError: a record cannot be read.
    """
    records = run_usages(pipeline.store, pipeline.store.resolve(MAIN), pipeline.name)
    found: dict[str, dict[int, tuple[AttemptUsage, Whose | None]]] = {}
    for one in records:  # the first run that wrote an attempt down counts
        known = found.setdefault(one.usage.session, {})
        known.setdefault(one.usage.attempt, (one.usage, one.whose))
    for usage in _on_disk(pipeline):
        found.setdefault(usage.session, {}).setdefault(usage.attempt, (usage, None))
    refused = refused_models(read(pipeline.store, pipeline.name))
    jobs = [_job(pipeline, attempts, now, refused) for attempts in found.values()]
    return tuple(sorted(jobs, key=lambda job: job.created))


def refused_models(entries: Sequence[LedgerEntry]) -> frozenset[str]:
    """Models that every decision on them refused, and that nobody let pass."""
    decided = [entry for entry in entries if entry.decision is not None]
    refused = {e.model for e in decided if e.decision and not e.decision.passed}
    passed = {e.model for e in decided if e.decision and e.decision.passed}
    overridden = {entry.model for entry in entries if entry.kind == "override"}
    return frozenset(refused - passed - overridden)


def session_uses(folder: SessionFolder, now: Prices) -> list[Use]:
    """The attempts of one session, which nobody has judged yet."""
    usages = session_usages(folder)
    splits = split_session(usages, _standing(usages, frozenset()))
    return [_use(usage, split, None, now) for usage, split in zip(usages, splits, strict=True)]


def _on_disk(pipeline: Pipeline) -> list[AttemptUsage]:
    """The usage of the sessions of this pipeline whose folders are there."""
    folders = pipeline.objects.path("sessions").glob(f"{pipeline.name}-*-*")
    own = [one for one in folders if one.name.rsplit("-", 2)[0] == pipeline.name and one.is_dir()]
    return [usage for one in sorted(own) for usage in session_usages(SessionFolder(one))]


def _job(
    pipeline: Pipeline,
    attempts: Mapping[int, tuple[AttemptUsage, Whose | None]],
    now: Prices,
    refused: frozenset[str],
) -> Job:
    ordered = [attempts[number] for number in sorted(attempts)]
    usages = [usage for usage, _ in ordered]
    splits = split_session(usages, _standing(usages, refused))
    whose = next((whose for _, whose in ordered if whose is not None), None)
    uses = [
        _use(usage, split, then, now) for (usage, then), split in zip(ordered, splits, strict=True)
    ]
    return Job(
        name=usages[0].session,
        pipeline=pipeline.name,
        owner=whose.owner if whose else pipeline.spec.owner,
        run=whose.run if whose else None,
        uses=tuple(uses),
    )


def _standing(usages: Sequence[AttemptUsage], refused: frozenset[str]) -> Standing:
    if not any(usage.end in ("done", "pruned") for usage in usages):
        return "failed"
    models = {usage.model for usage in usages if usage.model is not None}
    return "refused" if models & refused else "useful"


def _use(usage: AttemptUsage, split: Split, whose: Whose | None, now: Prices) -> Use:
    """Prices of its own time come first."""
    then = prices_of(whose.prices.items()) if whose else Prices()
    asked = (usage.held.price_class, usage.held.gpus_per_node)
    hour = then.node_hour(*asked)
    hour = now.node_hour(*asked) if hour is None else hour
    gb = now.transfer if then.transfer is None else then.transfer
    return Use(usage, split, hour, of_bytes(usage.moved_bytes, gb))
