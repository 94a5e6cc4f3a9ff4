"""Certificates for decisions from before there were any, where a signed store vouches for them."""

from collections.abc import Iterator

from ml_assets.errors import EvidenceError, StorageError
from ml_assets.registry.ledger.certificate import certificate_path, seal
from ml_assets.registry.ledger.chain import path_of, read, run_key
from ml_assets.registry.records.provenance import provenance_of
from ml_assets.spec.records import LedgerEntry
from ml_assets.storage.snapshots import MAIN, RUN_KEY, CommitId, Conflict, SnapshotStore


def certify_history(store: SnapshotStore) -> int:
    """Certify the decisions that are on ``main`` without a certificate; how many there were.

    A line counts where a trusted key signed the very commit that published it, and the records of
    that commit say what its model was made from. The others stay without, and are not loaded.

    Raises:
        StorageError: somebody else wrote at the same time; nothing was written.
    """
    base = store.resolve(MAIN)
    envelopes = dict(_missing(store, base))
    if not envelopes:
        return 0
    with store.open(base, f"certify-{base}") as workspace:
        for path, envelope in envelopes.items():
            workspace.put_bytes(path, envelope, if_absent=True)
        workspace.commit(f"certify {len(envelopes)} decisions from before certificates", {})
        outcome = workspace.publish()
    if isinstance(outcome, Conflict):
        raise StorageError("The ledger was written to at the same time. Run the command again.")
    return len(envelopes)


def _missing(store: SnapshotStore, base: CommitId) -> Iterator[tuple[str, bytes]]:
    published = {c.metadata.get(RUN_KEY): c.id for c in reversed(store.log())}
    for pipeline in sorted({entry.path.split("/")[1] for entry in store.list(base, "ledger/")}):
        digests = {entry.path: entry.digest for entry in store.list(base, f"ledger/{pipeline}/")}
        for line in read(store, pipeline, base):
            path = certificate_path(pipeline, line.seq)
            if line.decision is None or store.exists(base, path):
                continue
            commit = published.get(run_key(pipeline, digests[path_of(pipeline, line.seq)]))
            envelope = _envelope(store, pipeline, line, commit) if commit else None
            if envelope is not None:
                yield path, envelope


def _envelope(
    store: SnapshotStore, pipeline: str, line: LedgerEntry, commit: CommitId
) -> bytes | None:
    """None where nothing signed says what the model was made from."""
    if line.decision is None:
        return None
    try:
        at = store.resolve(commit)  # held to its own signature: grafts and metadata have none
        content = store.read_bytes(at, path_of(pipeline, line.seq))
        provenance = provenance_of(store, at, pipeline, line.decision.evidence)
    except (StorageError, EvidenceError):
        return None
    return seal(store.keys, line, content, provenance, by_an_upgrade=True)
