"""A snapshot store that somebody edits, empties, forges or puts back releases nothing."""

import json

import pytest

from ml_assets.actions.verify import verify_pipelines
from ml_assets.errors import SettingsError, UntrustedState
from ml_assets.records.ledger.certificate import certificate_path
from ml_assets.records.ledger.chain import path_of
from ml_assets.records.load_release import find_release
from ml_assets.spec.base import canonical_json
from ml_assets.store import home
from ml_assets.store.embedded.blobs import Blobs
from ml_assets.store.layout import Address
from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.forging import (
    as_if_passed,
    forged_commit,
    overwrite_blob,
    point_main_at,
    refs,
    replay_signature,
    sign_as_somebody_else,
)
from ml_assets_tests.red_team.refused_release import REFUSED


def stored(scene: Scene, path: str) -> tuple[str, bytes]:
    """Digest and content of a file on ``main``."""
    store = scene.store
    [entry] = [e for e in store.list(store.resolve(), path) if e.path == path]
    return entry.digest, store.read_bytes(store.resolve(), path)


FILES = ["the ledger line", "the certificate", "the report's record", "the model's record"]


def path_in(scene: Scene, what: str) -> str:
    refusal = scene.ledger[-1].seq
    return {
        "the ledger line": path_of(NAME, refusal),
        "the certificate": certificate_path(NAME, refusal),
        "the report's record": Address(NAME, "evaluation_report").record,
        "the model's record": Address(NAME, "trained_model").record,
    }[what]


@pytest.mark.parametrize("what", FILES)
def test_an_edited_file_of_the_store_is_damaged(refused: Scene, what: str) -> None:
    path = path_in(refused, what)
    digest, content = stored(refused, path)
    overwrite_blob(refused.snapshots, digest, content.replace(b"false", b"true "))
    overwrite_blob(refused.snapshots, digest, content + b" ")
    said = refused.materialize("released_model")
    if what == "the certificate":  # a refused model does not get as far as its certificate
        assert REFUSED in said
        [verified] = verify_pipelines(refused.world.settings, NAME, None)
        assert any("is damaged" in check.reason for check in verified.checks)
    else:
        assert f"{path} is damaged" in said


@pytest.mark.parametrize("what", FILES)
def test_a_deleted_file_of_the_store_is_lost(refused: Scene, what: str) -> None:
    path = path_in(refused, what)
    digest, _ = stored(refused, path)
    Blobs(refused.snapshots).path(digest).unlink()
    said = refused.materialize("released_model")
    if what == "the certificate":
        assert REFUSED in said
        [verified] = verify_pipelines(refused.world.settings, NAME, None)
        assert any("is lost" in check.reason for check in verified.checks)
        assert {c.outcome for c in verified.checks if c.name == "certificates"} == {"note"}
    else:
        assert f"{path} is lost" in said


def test_the_history_says_that_what_is_in_production_is_damaged(released: Scene) -> None:
    model = str(released.in_production)
    assert "cannot be used" not in released.world.cli("release", "history", NAME)
    weights = released.objects.path("models", model) / "weights.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-8])
    told = released.world.cli("release", "history", NAME).splitlines()[-2:]
    assert told[0] == f"in production now: {model[:12]}"
    said = f"the released model cannot be used: The model {model[:12]} of {NAME} is lost or damaged"
    assert told[1].startswith(said)
    assert told[1].count("Make it again") == 1


SIGNED = {
    "nobody": "which nobody signed",
    "somebody else": "that key is not trusted here",
    "an older commit": "that key signed something else",
}


LIES = ("a line that says passed", "no third line", "yesterday's certificate", "no certificate")
"""The signature of the state is refused before any of them is read."""


@pytest.mark.parametrize(
    ("lie", "by"),
    [*((lie, "nobody") for lie in LIES), *((LIES[0], by) for by in SIGNED if by != "nobody")],
)
def test_a_forged_state_is_not_read_whoever_signed_it(refused: Scene, lie: str, by: str) -> None:
    store, root, old = refused.store, refused.snapshots, refused.store.resolve()
    line, certificate = path_in(refused, "the ledger line"), path_in(refused, "the certificate")
    passed = next(entry.seq for entry in refused.ledger if entry.kind == "decision")
    yesterday = store.read_bytes(old, certificate_path(NAME, passed))
    changes = {
        "a line that says passed": {line: as_if_passed(store.read_bytes(old, line))},
        "no third line": {line: None},
        "yesterday's certificate": {certificate: yesterday},
        "no certificate": {certificate: None},
    }[lie]
    forged = forged_commit(store, root, changes)
    if by == "somebody else":
        sign_as_somebody_else(root, forged)
    if by == "an older commit":
        replay_signature(root, forged, old)
    point_main_at(root, forged)
    assert SIGNED[by] in refused.materialize("released_model")
    with pytest.raises(UntrustedState):
        find_release(refused.place)
    [verified] = verify_pipelines(refused.world.settings, NAME, None)
    assert not verified.holds


def test_an_edited_format_number_has_nothing_converted_or_signed(refused: Scene) -> None:
    store, root = refused.store, refused.snapshots
    path = path_in(refused, "the ledger line")
    line = store.read_bytes(store.resolve(), path)
    changes = {path: as_if_passed(line), path_in(refused, "the certificate"): None}
    point_main_at(root, forged_commit(store, root, changes))
    (refused.state / "format.json").write_text(json.dumps({"format": 5}))
    assert "start clean: ml-assets ops reset" in refused.world.cli("run", NAME, code=1)
    with pytest.raises(SettingsError, match="start clean: ml-assets ops reset"):
        home.prepare(refused.world.settings)
    with pytest.raises(UntrustedState):
        refused.store.resolve()


def test_signatures_that_were_stripped_do_not_make_an_unsigned_store(refused: Scene) -> None:
    path = path_in(refused, "the ledger line")
    line = as_if_passed(refused.store.read_bytes(refused.store.resolve(), path))
    forged = forged_commit(refused.store, refused.snapshots, {path: line})
    point_main_at(refused.snapshots, forged)
    with refs(refused.snapshots) as database:
        database.execute("delete from signatures")
    assert "which nobody signed" in refused.materialize("released_model")
    assert "nobody signed" in refused.world.cli("release", "verify", NAME, code=3)


def test_a_graft_does_not_lead_history_to_a_forged_commit(refused: Scene) -> None:
    """Grafts are not signed: what they lead to is held to a signature of its own."""
    store, root, head = refused.store, refused.snapshots, refused.store.resolve()
    path = path_in(refused, "the ledger line")
    forged = forged_commit(store, root, {path: as_if_passed(store.read_bytes(head, path))})
    body = json.loads(Blobs(root).read(forged, "forged"))
    body["metadata"] = {"run_key": "mine"}
    forged = Blobs(root).write(canonical_json(body))
    with store.open(head, "other") as workspace:
        workspace.put_bytes("other", b"1")
        workspace.commit("other", {})
        workspace.publish()
    with refs(root) as database:
        database.execute("insert into grafts values (?, ?)", [store.resolve(), forged])
    with store.open(head, "mine") as workspace:
        workspace.put_bytes("mine", b"1")
        workspace.commit("mine", {})
        with pytest.raises(UntrustedState, match="nobody signed"):
            workspace.publish()


def test_the_whole_store_put_back_is_told_by_a_head_that_was_noted_elsewhere(
    refused: Scene,
) -> None:
    """Every former state was signed as well: only a witness outside tells."""
    [before] = verify_pipelines(refused.world.settings, NAME, None)
    head = next(check.reason for check in before.checks if check.name == "head").split()[0]
    last, line = refused.ledger[-1].seq, path_in(refused, "the ledger line")
    for commit in refused.store.log():
        if not refused.store.exists(commit.id, line):
            point_main_at(refused.snapshots, commit.id)
            break
    assert "There is no decision on model" in refused.materialize("released_model")
    [after] = verify_pipelines(refused.world.settings, NAME, head)
    assert [c.reason for c in after.checks if c.outcome == "refused"] == [
        f"The noted head is line {last}, but the ledger ends at line {last - 1}:"
        " the store was put back to an earlier state."
    ]
    same = verify_pipelines(refused.world.settings, NAME, "1:" + "0" * 12)[0]
    assert any("another history" in check.reason for check in same.checks)
