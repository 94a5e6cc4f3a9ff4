"""Resolves ``training.init_from`` and ``training.distill``: the initial weights, the teacher."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ml_assets.adapters.step import RunLog
from ml_assets.errors import SpecError
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, find_model
from ml_assets.records.load_release import load_model, load_release, require_other_weights
from ml_assets.records.run_record import RunInput
from ml_assets.spec.ensemble import RELEASE, WeightsFile, weights_file
from ml_assets.spec.records import InputVersion
from ml_assets.spec.training_program import Ref
from ml_assets.store.objects import file_digest
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.safetensors_file import check_safetensors

INIT_FROM, DISTILL = "init_from", "distill"
"""The fields of ``training``, and the names among the inputs of a model."""


@dataclass(frozen=True)
class GivenModel:
    """The weights, and what is written down about them."""

    key: str
    ref: Ref
    said: str
    """As the spec has it."""

    def as_input(self) -> InputVersion:
        """Read and written down, but no part of what makes a model due: see ``Work.seen``.

        A release would otherwise make the model due that it is the release of.
        """
        return InputVersion(key=self.key, partition=None, version=self.ref.digest, commit=None)

    def as_run_input(self) -> RunInput:
        return RunInput(**self.as_input().model_dump(), rows=None, path=self.said)


Given = Mapping[str, GivenModel]
"""By the field of ``training`` that names it."""


def given_models(log: RunLog, state: PipelineState) -> Given:
    """Return what the spec's ``init_from`` and ``distill`` name at this moment.

    Raises:
        SpecError: it names a file that is not there, or holds something else.
        EvidenceError: the release does not hold; see ``records.load_release``.
        Recalled: the file, or the release, is a recalled model's.
        StorageError: the file is no safetensors file, or the release is damaged.
        UnknownModel: the ledger has no such version, or several.
    """
    training = state.spec.training
    init, distill = training.init_from, training.distill
    found: dict[str, GivenModel] = {}
    if named := weights_file(init):
        file = initial_file(state.pipeline.folder, named)
        check_safetensors(file)
        require_other_weights(state.pipeline, named.sha256, f"training.init_from {named.path!r}")
        ref = Ref(uri=str(file), digest=named.sha256)
        found[INIT_FROM] = GivenModel(INIT_FROM, ref, named.path)
    elif init == RELEASE and (ref := _released(state)) is not None:
        found[INIT_FROM] = GivenModel(INIT_FROM, ref, init)
    if distill is not None:
        ref = _released(state) if distill.teacher == RELEASE else _version(state, distill.teacher)
        if ref is not None:
            found[DISTILL] = GivenModel(DISTILL, ref, distill.teacher)
    lacks = {
        INIT_FROM: ("training.init_from is 'release'", "begins with random weights"),
        DISTILL: ("training.distill is from 'release'", "learns from the labels alone"),
    }
    for key, (named, instead) in lacks.items():
        if getattr(training, key) is not None and key not in found:
            where = f"{state.name} has none in {state.spec.release.to} yet"
            log.warning(f"{named}, but {where}: this training {instead}")
    return found


def _released(state: PipelineState) -> Ref | None:
    """The released model; None: there is none yet."""
    stage = state.spec.release.to
    if champion(read(state.store, state.name, state.commit), stage) is None:
        return None
    return load_release(state.store, state.objects, state.name, stage, state.commit).model


def _version(state: PipelineState, beginning: str) -> Ref:
    entries = read(state.store, state.name, state.commit)
    version = find_model(entries, beginning)
    return load_model(state.store, state.objects, state.name, version, state.commit).model


def initial_file(folder: Path, named: WeightsFile) -> Path:
    """The .safetensors file that a spec in a folder names.

    Raises:
        SpecError: it is not there, or holds something else.
    """
    file = (folder / named.path).resolve()
    if not file.is_file():
        raise SpecError(
            f"training.init_from {named.path!r}: there is no file {file}. Put it there, or give"
            " another path (from the pipeline's folder, or absolute), or remove init_from."
        )
    found = file_digest(file)
    if found != named.sha256:
        raise SpecError(
            f"training.init_from: {file} is not what the spec names: its SHA-256 is {found}, not"
            f" {named.sha256}. Put the old file back; or, if the new weights never saw rows of the"
            f" holdout, write @sha256:{found}."
        )
    return file
