"""``training.init_from``: which weights a training begins with, resolved when it is asked for."""

from dataclasses import dataclass
from pathlib import Path

from ml_assets.adapters.step import RunLog
from ml_assets.errors import SpecError
from ml_assets.graph.code_version import file_digest
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.loading import load_release
from ml_assets.records.run_record import RunInput
from ml_assets.spec.program import Ref
from ml_assets.spec.records import InputVersion
from ml_assets.spec.training import RELEASE
from ml_assets.store.pipeline_context import PipelineState
from ml_assets.store.safetensors_file import check_safetensors

KEY = "init_from"


@dataclass(frozen=True)
class InitialWeights:
    """The weights, and what is written down about them."""

    ref: Ref
    said: str
    """As the spec has it."""

    def as_input(self) -> InputVersion:
        """Read and written down, but no part of what makes a model due: see ``Work.seen``.

        A release would otherwise make the model due that it is the release of.
        """
        return InputVersion(key=KEY, partition=None, version=self.ref.digest, commit=None)

    def as_run_input(self) -> RunInput:
        return RunInput(**self.as_input().model_dump(), rows=None, path=self.said)


def initial_weights(
    log: RunLog,
    state: PipelineState,
) -> InitialWeights | None:
    """What the spec's ``init_from`` names at this moment; None: fresh values.

    Raises:
        SpecError: it names a file that is not there.
        EvidenceError: the release does not hold; see ``registry.release.loading``.
        StorageError: the file is no safetensors file, or the release is damaged.
    """
    said = state.spec.training.init_from
    if said is None:
        return None
    if said != RELEASE:
        file = initial_file(state.pipeline.folder, said)
        check_safetensors(file)
        return InitialWeights(Ref(uri=str(file), digest=file_digest(file)), said)
    stage = state.spec.release.to
    model = champion(read(state.store, state.name, state.commit), stage)
    if model is None:
        log.warning(
            f"training.init_from is 'release', and {state.name} has none in {stage} yet: this"
            " training begins with fresh values"
        )
        return None
    release = load_release(state.store, state.objects, state.name, stage, state.commit)
    return InitialWeights(release.model, said)


def initial_file(folder: Path, said: str) -> Path:
    """The .safetensors file that a spec in a folder names.

    Raises:
        SpecError: it is not there.
    """
    file = (folder / said).resolve()
    if not file.is_file():
        raise SpecError(
            f"training.init_from {said!r}: there is no file {file}. Put it there, or give another"
            " path (from the pipeline's folder, or absolute), or remove init_from."
        )
    return file
