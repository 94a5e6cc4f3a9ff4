"""Proves a claim: makes it again in a clean home, and compares each asset."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ml_assets.adapters.execute import Tell
from ml_assets.assets.trained_model.initial_weights import DISTILL, INIT_FROM
from ml_assets.assets.trained_model.training_job import MEMBER, data_ref
from ml_assets.assets.training_set.split import plan_time_split
from ml_assets.assets.training_set.window import feature_order
from ml_assets.definitions import definitions_of
from ml_assets.errors import OtherCode, UnknownRun
from ml_assets.extras.prove.claim import Claim, Claims, in_order
from ml_assets.extras.prove.clean_home import clean_home
from ml_assets.extras.prove.code import (
    network_differences,
    package_differences,
    package_notes,
    stage_differences,
)
from ml_assets.extras.prove.data import DataWalk
from ml_assets.extras.prove.model import ModelWalk
from ml_assets.extras.prove.reproduction import Reproduction
from ml_assets.launch.events import attempt_numbers
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import train_session
from ml_assets.launch.staging.mirror import session_here
from ml_assets.records.recalls import recalled
from ml_assets.records.record_history import Made, RunHistory, read_history
from ml_assets.records.run_record import RunRecord, contradiction, environment
from ml_assets.settings import Settings
from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import StageRecord
from ml_assets.spec.split import WindowSplit
from ml_assets.spec.training_program import Ref, TrainRequest
from ml_assets.spec.training_program.pod import REQUEST
from ml_assets.store.open import has_snapshots, open_snapshots
from ml_assets.store.pipeline_context import Pipeline


@dataclass(frozen=True)
class ProofRequest:
    """Holds what ``ml-assets release prove`` was asked for."""

    first: str
    """A pipeline; alone also a run, session or model of any."""
    second: str | None = None
    despite_code: bool = False
    from_snapshots: bool = False
    keep: Path | None = None


class Proof:
    """One claim, and what is found when it is made again.

    Raises:
        UnknownRun: nothing is called so, or several are.
        StorageError: what it was made from is no longer kept.
    """

    def __init__(self, settings: Settings, asked: ProofRequest, tell: Tell) -> None:
        if not has_snapshots(settings.snapshots):
            raise UnknownRun(f"Nothing is made yet in the state folder {settings.home}.")
        self.settings, self.asked, self.tell = settings, asked, tell
        store = open_snapshots(settings.snapshots)
        self.history: RunHistory = read_history(store)
        self.claims = Claims(store, self.history)
        self.claim: Claim = _find(settings, asked, self.claims)
        folder = find_pipeline(pipeline_folders(settings), self.claim.pipeline)
        now = load_spec(folder)
        spec = _spec(self.claim.training, now) or now
        self.pipeline = Pipeline(spec, folder, settings)
        self.judging = Pipeline(_spec(self.claim.evaluation, now) or spec, folder, settings)
        self.data = sorted((*self.claim.data, *self._embargo()), key=in_order(self.pipeline))
        self._now = environment(settings)

    @property
    def notes(self) -> list[str]:
        """What is not as it was then, and refused nothing; and whether the model is recalled."""
        claim, store = self.claim, self.claims.store
        notes = package_notes(claim.training, self._now) if claim.training else []
        model = claim.model.record.data_version if claim.model else ""
        if model and (bad := recalled(store, store.resolve(), claim.pipeline, model)):
            notes.append(f"model {model[:12]} is RECALLED, and is not used ({bad.told})")
        return notes

    def differences(self) -> list[str]:
        """Code that is not what made it."""
        return [*self._package(), *self._network(), *self._stages()]

    def verdicts(self) -> Iterator[Reproduction]:
        """A verdict for each asset, as it is found; the last one may be the first that differs.

        Raises:
            OtherCode: what would make it again is not what made it.
            StorageError: something of the claim is no longer kept.
            Interrupted: somebody stopped it.
        """
        for verdict in self._walk():
            yield verdict
            if verdict.outcome in ("differs", "not compared"):
                return

    def _walk(self) -> Iterator[Reproduction]:
        claim = self.claim
        self._require([*self._package(), *self._network()])
        if claim.training and claim.training_set:
            data = claim.training_set.record
            yield configuration(self.pipeline, claim.training, data)
        self._require(self._stages())
        with clean_home(self.settings, self.asked.keep) as home:
            made = replace(self.pipeline, settings=home.settings)
            judged = replace(self.judging, settings=home.settings)
            defs = definitions_of(made)
            judging = defs if judged == made else definitions_of(judged)
            walk = DataWalk(made, defs, home, self.tell, self.asked.from_snapshots)
            yield from walk.verdicts(self.data)
            yield from ModelWalk(
                made,
                defs,
                judged,
                judging,
                home,
                self.tell,
            ).verdicts(claim)

    def _package(self) -> list[str]:
        records = (self.claim.training, self.claim.evaluation)
        return package_differences([record for record in records if record], self._now)

    def _network(self) -> list[str]:
        made = self.claim.model
        return network_differences(self.pipeline, made.record.data_version) if made else []

    def _stages(self) -> list[str]:
        claim = self.claim
        made = [(self.pipeline, one) for one in self.data]
        made += [(self.pipeline, one) for one in (claim.training_set, claim.model) if one]
        made += [(self.judging, one) for one in (claim.report,) if one]
        return stage_differences(made)

    def _require(self, differences: list[str]) -> None:
        if differences and not self.asked.despite_code:
            listed = "".join(f"\n  {one}" for one in differences)
            raise OtherCode(
                f"{self.claim.said} of {self.claim.pipeline} cannot be proved here, because it"
                f" would be made by other code or contracts than then.{listed}\nCheck out"
                " the earlier ones, or make it again with the present ones: --despite-code"
            )

    def _embargo(self) -> tuple[Made, ...]:
        """The partitions between the splits: nothing is trained on them, and a split wants them."""
        made, split = self.claim.training_set, self.pipeline.spec.split
        as_of = made.record.attributes.get("as_of") if made else None
        if made is None or as_of is None or not isinstance(split, WindowSplit):
            return ()
        order = feature_order(self.pipeline)
        keys = plan_time_split(split, as_of, order, order).embargo
        key = f"{self.pipeline.name}/feature_set"
        before = made.record.time
        found = (self.history.newest(key, partition, before) for partition in keys)
        known = {(one.record.key, one.record.partition) for one in self.claim.data}
        lineage = self.claims.lineage([one for one in found if one])
        return tuple(m for m in lineage if (m.record.key, m.record.partition) not in known)


def _find(settings: Settings, asked: ProofRequest, claims: Claims) -> Claim:
    folders = pipeline_folders(settings)
    if asked.second is not None:
        find_pipeline(folders, asked.first)
        return claims.find(asked.second, asked.first)
    if asked.first in folders:
        spec = load_spec(folders[asked.first])
        return claims.of_release(asked.first, spec.release.to)
    return claims.find(asked.first)


def _spec(record: RunRecord | None, now: PipelineSpec) -> PipelineSpec | None:
    """The spec of a record; one that was written with sorted keys takes the order of now's."""
    if record is None:
        return None
    config, present = record.config, now.model_dump(mode="json")
    if list(config) == sorted(config) and config == present:
        config = present
    return PipelineSpec.model_validate_json(json.dumps(config))


def configuration(
    pipeline: Pipeline,
    record: RunRecord,
    data: StageRecord,
) -> Reproduction:
    """The verdict on what was asked for: spec, seed, data, initial weights.

    Args:
        pipeline: by the record's spec; the session's own request is read, if it is kept.
        data: the training set's record.
    """
    asset = f"{pipeline.name}/configuration"
    said = contradiction(record)
    if said:
        return Reproduction(asset, "differs", f"the run record contradicts itself: {said}")
    given = {i.key: Ref(uri=i.path, digest=i.version) for i in record.inputs}
    job = TrainJob(
        pipeline.name,
        pipeline.spec.model,
        pipeline.spec.training,
        data_ref(pipeline, data),
        record.salt,
        given.get(INIT_FROM),
        given.get(DISTILL),
        members=tuple(Ref(uri=i.path, digest=i.version) for i in record.inputs if i.key == MEMBER),
        program=record.program,
        code=pipeline.network,
    )
    session = train_session(job)
    if session == record.session:
        return Reproduction(asset, "equal", f"seed {record.seed}")
    said = _other_request(pipeline, record) or (
        "its session is named after another model, training, seed, training set or initial weights"
    )
    then, now = (name.rpartition("-")[2] for name in (record.session, session))
    return Reproduction(asset, "differs", said, 1, then, now)


def _other_request(pipeline: Pipeline, record: RunRecord) -> str:
    """Which fields differ from the request that ran, where that is kept."""
    folder = session_here(pipeline.objects, record.session)
    for number in reversed(attempt_numbers(folder)):
        try:
            data = (folder / "attempts" / str(number) / REQUEST).read_bytes()
        except OSError:
            continue
        request = TrainRequest.model_validate_json(data)
        differing = [
            f"{part}.{name} is {getattr(said, name, None)!r} in the record and"
            f" {getattr(ran, name, None)!r} in the request that ran"
            for part, said, ran in (
                ("model", pipeline.spec.model, request.model),
                ("training", pipeline.spec.training, request.training),
            )
            for name in type(ran).model_fields
            if getattr(said, name, None) != getattr(ran, name, None)
        ]
        here = pipeline.network
        if here and request.code and here.digest != request.code.digest:
            differing.append("the network's code is not that of the request that ran")
        return "; ".join(differing)
    return ""
