"""The present evidence of a release, whatever was decided before."""

from collections.abc import Sequence

from ml_assets.assets.released_model.gates.decide import policy_digest
from ml_assets.assets.released_model.origins import require_made_here
from ml_assets.errors import EvidenceError
from ml_assets.graph.inputs import require_record
from ml_assets.records.loading import open_files
from ml_assets.records.provenance import provenance_of
from ml_assets.records.recalls import sound_champion
from ml_assets.spec.records import Evidence, LedgerEntry
from ml_assets.store.pipeline_context import PipelineState


def current_evidence(state: PipelineState, entries: Sequence[LedgerEntry]) -> Evidence:
    """The evidence as it is now: what a decision must be about to count.

    Raises:
        EvidenceError: the report is about another model than the one to release.
    """
    model = require_record(state, state.address("trained_model"))
    report = require_record(state, state.address("evaluation_report"))
    judged = [i.version for i in report.inputs if i.key == model.key]
    if judged != [model.data_version]:
        raise EvidenceError(
            f"{report.key} is about model {', '.join(v[:12] for v in judged) or 'none'}, but"
            f" {model.key} is {model.data_version[:12]}. Materialize {report.key} and its gates."
        )
    return Evidence(
        model=model.data_version,
        report=report.data_version,
        data=model.attributes["data"]["digest"],
        code=model.code_version,
        policy=policy_digest(state.spec.gates, state.spec.release),
        champion=sound_champion(
            state.store, state.commit, state.name, entries, state.spec.release.to
        ),
    )


def evidence_to_release(
    state: PipelineState,
    entries: Sequence[LedgerEntry],
) -> Evidence:
    """The evidence as it is now, about files that are what was judged.

    Raises:
        StorageError: a file of the model was changed or lost since.
        EvidenceError: see ``current_evidence``; or what is behind it was read elsewhere, or made by
            other code, than spec, code and settings of here say.
    """
    evidence = current_evidence(state, entries)
    provenance_of(state, evidence)
    require_made_here(state)
    open_files(state.objects, state.name, evidence.model)
    return evidence
