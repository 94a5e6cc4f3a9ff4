"""An exported release on its way to a server: what the platform is told is what was signed."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ml_assets.actions.export import export_release
from ml_assets.actions.render_release import ServingPlatform, read_handover, rendered
from ml_assets.actions.verify import verify_folder
from ml_assets.assets.released_model.bundle import HANDOVER_TYPE
from ml_assets.assets.released_model.model_card import model_card
from ml_assets.cli.release_render import render
from ml_assets.errors import MlAssetsError
from ml_assets.records.ledger.certificate import certificate_path, open_envelope
from ml_assets.records.ledger.chain import path_of, record_decision
from ml_assets.records.load_release import find_release
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import CanaryPeriod
from ml_assets_tests.actions.test_render_release import definition
from ml_assets_tests.red_team.conftest import NAME, Scene, scene_of

STRANGER = base64.b64encode(b"another key of thirty-two bytes!").decode()


@pytest.fixture(scope="module")
def whole_export(made: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release, exported and signed once, beside a model that its gates refused."""
    spec = (made.world.root / "refused.yaml").read_text()
    with pytest.MonkeyPatch.context() as patch:
        scene = scene_of(made, "refused", spec, patch)
        folder = export_release(scene.place, tmp_path_factory.mktemp("whole") / "export").folder
        assert verify_folder(folder, None).holds
    return folder


@pytest.fixture
def exported(whole_export: Path, refused: Scene, tmp_path: Path) -> Path:
    """A copy of its own for each attack."""
    return shutil.copytree(whole_export, tmp_path / "export")


def forged(folder: Path, **said: Any) -> None:
    """Another hand-over, which nobody signed."""
    told = json.loads((folder / "handover.json").read_text())
    (folder / "handover.json").write_text(json.dumps({**told, **said}))
    (folder / "handover.sig").unlink()


def test_a_hand_over_whose_signature_was_taken_away_is_not_the_one_that_was_signed(
    exported: Path, refused: Scene
) -> None:
    sure = {"value": 0.999, "low": 0.998, "high": 1.0}
    forged(exported, author="the board", reason="audited", metrics={"accuracy": sure})
    assert not verify_folder(exported, None).holds


def test_no_refused_model_is_served_as_the_one_before(exported: Path, refused: Scene) -> None:
    rollout = {"entity": ["flower"], "share": 0.05}
    forged(exported, rollback_to=refused.candidate, rollout=rollout)
    with pytest.raises(MlAssetsError):
        told = read_handover(exported)
        place = ServingPlatform(
            "s3://models/", "registry.example.org/serve@sha256:1", "http://p:9090"
        )
        said = rendered(told, "kserve", place, definition(canary={}))
        assert refused.candidate[:12] not in said


def test_what_no_key_that_counts_signed_is_not_rendered(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", STRANGER)
    assert not verify_folder(exported, None).holds
    with pytest.raises(MlAssetsError):
        read_handover(exported)


def with_a_stranger_in_front(content: bytes) -> bytes:
    envelope = json.loads(content)
    [ours] = envelope["signatures"]
    envelope["signatures"] = [{**ours, "keyid": STRANGER}, ours]
    return canonical_json(envelope)


ALTERED: list[tuple[str, Callable[[bytes], bytes] | None, str]] = [
    ("handover.json", None, "is signed, and handover.json"),
    ("handover.sig", None, "is signed, and handover.sig"),
    ("signer.pub", None, "is signed, and signer.pub"),
    ("handover.json", lambda _: b"{}", "handover.json is not what was exported: pipeline: Field"),
    ("handover.sig", lambda _: b"{}", "handover.sig is not what was exported: key: Field"),
    ("handover.sig", lambda whole: whole + b"\n", "is not as it was exported"),
    ("certificate.json", lambda whole: whole + b" ", "is not as it was exported"),
    ("certificate.json", with_a_stranger_in_front, "expected one signature"),
    ("signer.pub", lambda whole: whole + b"\n", "does not hold the key that signed"),
    ("overridden_line.json", lambda _: b"{}", "nothing was overridden"),
]


def test_what_was_altered_is_told_in_a_sentence(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, change, said in ALTERED:
        file = exported / name
        whole = file.read_bytes() if file.exists() else None
        file.write_bytes(change(whole or b"")) if change else file.unlink()
        [refused] = [c.reason for c in verify_folder(exported, None).checks if c.outcome != "ok"]
        assert said in refused, (name, refused)
        assert "http" not in refused
        assert "Errno" not in refused
        file.write_bytes(whole) if whole else file.unlink()
    assert verify_folder(exported, None).holds

    key = (exported / "signer.pub").read_text().strip()
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    asked = [str(exported), "--for", "kserve", "--storage", "s3://models"]
    for more, told in (([], "anybody could have written"), (["--key", key], "")):
        done = CliRunner().invoke(render, [*asked, *more])
        assert done.exit_code == 0, done.output
        assert told in done.stderr
        assert bool(done.stderr) == bool(told)


def why_refused(folder: Path) -> str:
    return "".join(c.reason for c in verify_folder(folder, None).checks if c.outcome == "refused")


def decided_again(scene: Scene, folder: Path, canary: CanaryPeriod | None) -> None:
    """Another decision on the same model, truly signed, in the place of the exported one."""
    release, store = find_release(scene.place), scene.place.store
    assert release.line.decision is not None
    one_gate = {"canary": canary, "gates": release.line.decision.gates[-1:]}
    other = release.line.decision.model_copy(update=one_gate)
    line = record_decision(store, other, "me", release.certificate.provenance)
    commit = store.resolve()
    envelope = store.read_bytes(commit, certificate_path(NAME, line.seq))
    (folder / "certificate.json").write_bytes(envelope)
    (folder / "ledger_line.json").write_bytes(store.read_bytes(commit, path_of(NAME, line.seq)))
    card = model_card(open_envelope(envelope, store.keys.trusted), release.manifest)
    (folder / "MODEL_CARD.md").write_text(card)


def with_a_hand_over_of_before(scene: Scene, folder: Path) -> None:
    """As a version wrote it that did not name the certificate."""
    told = json.loads((folder / "handover.json").read_text())
    del told["certificate"]
    content = canonical_json(told)
    signed = scene.place.store.keys.sign(HANDOVER_TYPE, content)
    (folder / "handover.json").write_bytes(content)
    (folder / "handover.sig").write_bytes(canonical_json(vars(signed)))


def test_no_other_decision_on_a_model_takes_the_place_of_the_exported_one(
    exported: Path, refused: Scene
) -> None:
    """Where a person overrode a refusal, it would hide that."""
    decided_again(refused, exported, canary=None)
    assert "was replaced" in why_refused(exported)


def test_a_decision_on_a_canary_is_not_one_of_the_gates(exported: Path, refused: Scene) -> None:
    with_a_hand_over_of_before(refused, exported)
    assert verify_folder(exported, None).holds, "it is still read"
    decided_again(refused, exported, CanaryPeriod(first="1", last="1", rows=10))
    assert "is a decision on a canary" in why_refused(exported)
