"""The certificate: signed, about exactly one line, and in any other case refused with a reason."""

import base64
import json

import pytest

from ml_assets.errors import CertificateRefused
from ml_assets.records.ledger.certificate import (
    certificate_path,
    open_envelope,
    require_about,
    seal,
)
from ml_assets.records.ledger.chain import append, path_of, read, record_decision
from ml_assets.records.load_release import certificate_of
from ml_assets.spec.base import canonical_json
from ml_assets.spec.certificate import PAYLOAD_TYPE, Provenance
from ml_assets.spec.records import InputVersion, LedgerEntry
from ml_assets.spec.training_program.identity import Machine, Node, NodePlace, Program
from ml_assets.store.signing import Keys
from ml_assets_tests.records.conftest import PIPELINE, A, B, decision, evidence, gate

OURS, THEIRS = (Keys.of(base64.b64encode(bytes([n]) * 32).decode()) for n in (1, 2))
PROGRAM = Program(sources="88" * 32, versions={"torch": "2.13.0"})
PROVENANCE = Provenance(
    training_set="22" * 32,
    inputs=(
        InputVersion(key="p/feature_set", partition="w1", version="ab" * 32, commit="cd" * 32),
    ),
    init=None,
    sources="44" * 32,
    git_sha=None,
    lock="55" * 32,
    settings="99" * 32,
    spec="66" * 32,
    reproduces="77" * 32,
    program=PROGRAM,
    nodes=(
        Node(
            program=PROGRAM,
            versions={"python": "CPython 3.11.2", "torch": "2.13.0+cu126"},
            machine=Machine(
                system="Linux",
                machine="x86_64",
                cpu="a CPU",
                cores=8,
                memory_bytes=None,
                gpus=("NVIDIA H100",),
                gpu_driver=None,
            ),
            place=NodePlace(index=0, pod="p-0", node="n", node_type="a3", image="r/t@sha256:5"),
        ),
    ),
)


@pytest.fixture
def line(store) -> tuple[LedgerEntry, bytes]:
    entry = record_decision(store, decision(), "me", PROVENANCE)
    return entry, store.read_bytes(store.resolve(), path_of(PIPELINE, entry.seq))


def test_a_certificate_says_everything_that_was_decided_and_from_what(store, line):
    entry, content = line
    found = open_envelope(seal(OURS, entry, content, PROVENANCE), {OURS.public})
    about = decision().evidence
    assert (found.model, found.report, found.policy) == (about.model, about.report, about.policy)
    assert (found.passed, found.gates, found.author) == (True, (gate(),), "me")
    assert found.provenance == PROVENANCE
    assert (found.line.seq, found.line.previous) == (1, None)


def test_without_a_key_nothing_is_signed_and_nothing_signed_is_taken_for_that(line):
    unsigned = seal(Keys(), *line, PROVENANCE)
    assert json.loads(unsigned)["signatures"] == []
    assert open_envelope(unsigned, ()).model == A
    with pytest.raises(CertificateRefused, match="foreign"):
        open_envelope(seal(OURS, *line, PROVENANCE), ())


def test_where_keys_are_set_a_certificate_that_nobody_signed_is_refused(line):
    stripped = json.loads(seal(OURS, *line, PROVENANCE)) | {"signatures": []}
    with pytest.raises(CertificateRefused, match="is not signed"):
        open_envelope(json.dumps(stripped).encode(), {OURS.public})


def test_any_dsse_reader_can_check_the_envelope(store, line):
    """The protocol's own definition of what is signed, written out, and another library call."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    envelope = json.loads(seal(OURS, *line, PROVENANCE))
    payload = base64.b64decode(envelope["payload"])
    [signature] = envelope["signatures"]
    kind = envelope["payloadType"]
    encoded = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(OURS.public))
    key.verify(base64.b64decode(signature["sig"]), encoded)
    assert kind == PAYLOAD_TYPE


def test_an_altered_payload_is_refused(line):
    envelope = json.loads(seal(OURS, *line, PROVENANCE))
    said = json.loads(base64.b64decode(envelope["payload"]))
    said["reason"] = "I say so"
    envelope["payload"] = base64.b64encode(canonical_json(said)).decode()
    with pytest.raises(CertificateRefused, match="was altered"):
        open_envelope(json.dumps(envelope).encode(), {OURS.public})


def test_a_foreign_signature_is_refused_with_the_name_of_its_key(line):
    with pytest.raises(CertificateRefused, match="foreign") as refused:
        open_envelope(seal(THEIRS, *line, PROVENANCE), {OURS.public})
    assert THEIRS.public in str(refused.value)


def test_a_foreign_signature_under_our_name_is_refused(line):
    envelope = json.loads(seal(THEIRS, *line, PROVENANCE))
    envelope["signatures"][0]["keyid"] = OURS.public
    with pytest.raises(CertificateRefused, match="was altered"):
        open_envelope(json.dumps(envelope).encode(), {OURS.public})


def test_of_several_signatures_one_that_counts_is_enough(line):
    envelope = json.loads(seal(OURS, *line, PROVENANCE))
    envelope["signatures"].insert(0, json.loads(seal(THEIRS, *line, PROVENANCE))["signatures"][0])
    assert open_envelope(json.dumps(envelope).encode(), {OURS.public}).model == A


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a DSSE envelope"),
        (b"\x80\x04]", "not a DSSE envelope"),
        (b"[" * 100_000, "not a DSSE envelope"),
        (b'{"payload":"","payloadType":"application/json","signatures":[]}', "'application/json'"),
        (b" " * (9 << 20), "bytes"),
    ],
)
def test_what_is_no_envelope_is_refused(data, said):
    with pytest.raises(CertificateRefused, match=said):
        open_envelope(data, {OURS.public})


def test_a_signature_over_a_commit_is_none_of_a_certificate(line):
    """The type of the content is signed with it."""
    envelope = json.loads(seal(OURS, *line, PROVENANCE))
    other = OURS.sign("application/vnd.ml_assets.commit", base64.b64decode(envelope["payload"]))
    envelope["signatures"][0]["sig"] = other.value
    with pytest.raises(CertificateRefused, match="was altered"):
        open_envelope(json.dumps(envelope).encode(), {OURS.public})


def test_a_replayed_certificate_is_about_another_line(store, line):
    """Passed yesterday, refused today: yesterday's certificate in today's place."""
    record_decision(store, decision(gates=(gate(passed=False),)), "me", PROVENANCE)
    today = read(store, PIPELINE)[-1]
    yesterday = store.read_bytes(store.resolve(), certificate_path(PIPELINE, 1))
    content = store.read_bytes(store.resolve(), path_of(PIPELINE, today.seq))
    with pytest.raises(CertificateRefused, match=r"about another line .*: line 1 .* not line 2"):
        require_about(open_envelope(yesterday, store.keys.trusted), today, content)


def test_a_certificate_that_says_more_than_its_line_is_refused(line):
    entry, content = line
    failed = entry.model_copy(update={"decision": decision(gates=(gate(passed=False),))})
    certificate = open_envelope(seal(OURS, entry, content, PROVENANCE), {OURS.public})
    with pytest.raises(CertificateRefused, match="gates, passed, reason"):
        require_about(certificate, failed, content)


def test_a_refusal_is_certified_as_well_and_in_the_commit_of_its_line(store):
    record_decision(store, decision(gates=(gate(passed=False),)), "me", PROVENANCE)
    first, before, *_ = store.log()
    added = {change.path for change in store.diff(before.id, first.id)}
    assert added == {path_of(PIPELINE, 1), certificate_path(PIPELINE, 1)}
    assert certificate_of(store, PIPELINE, read(store, PIPELINE)[0]).passed is False


def test_a_decision_without_a_certificate_is_refused_and_decided_again_with_one(store, line):
    entry, _ = line

    def uncertified(head):  # as a version before certificates wrote it
        about = decision(evidence(B))
        fields = {"seq": head.seq, "previous": head.previous, "model": B, "decision": about}
        return entry.model_copy(update=fields)

    append(store, PIPELINE, uncertified)
    with pytest.raises(CertificateRefused, match="line 2 on model bbbbbbbbbbbb has no cert"):
        certificate_of(store, PIPELINE, read(store, PIPELINE)[-1])
    again = record_decision(store, decision(evidence(B)), "me", PROVENANCE)
    assert again.seq == 3
    assert certificate_of(store, PIPELINE, again).model == B
    assert record_decision(store, decision(evidence(B)), "me", PROVENANCE) == again
