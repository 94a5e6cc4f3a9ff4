"""A folder of an older format, written by the version that had it, comes up to this one's."""

import base64
import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from ml_assets.errors import CertificateRefused, SettingsError, StateInUse
from ml_assets.operations.inventory import objects
from ml_assets.registry.ledger import chain as ledger
from ml_assets.registry.release.loading import load_model, load_release
from ml_assets.runs import home
from ml_assets.runs.upgrade import FORMAT, STEPS
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.records import Decision, Evidence, LedgerEntry
from ml_assets.storage.objects import LocalObjects
from ml_assets.storage.stores import open_snapshots
from ml_assets_tests.kill import killed_at_every_step
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

FOLDERS = Path(__file__).parent / "folders"
LONG_AGO = 1_600_000_000


def unpack(root: Path, number: int = 1) -> Settings:
    """A state folder of an older format with a released model, long unused."""
    shutil.unpack_archive(FOLDERS / f"format-{number}.tar.gz", root)
    for path in (root / "state" / "objects").rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return read_settings({"ML_ASSETS_HOME": str(root / "state")})


def format_of(settings: Settings) -> int:
    return json.loads((settings.home / "format.json").read_text())["format"]


def refs_in(database: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        return sorted(connection.execute("select * from refs"))
    finally:
        connection.close()


def check_upgraded(settings: Settings, refs: list[tuple[str, ...]]) -> None:
    """The format, the copy, every ref and record, and times that begin now."""
    assert format_of(settings) == FORMAT
    assert refs_in(settings.home / "backup" / "format-1" / "refs.db") == refs
    store = open_snapshots(settings.snapshots)
    certified, before, *_ = store.log()
    assert (before.id, certified.message[:9]) == (refs[0][2], "certify 1"), "nothing else was done"
    load_release(store, LocalObjects(Path(settings.objects)), "irises", "production")
    assert [entry.kind for entry in ledger.read(store, "irises")] == ["decision", "stage"]
    for commit in store.history():
        for entry in store.list(commit.id):
            store.read_bytes(commit.id, entry.path)
    there = objects(LocalObjects(Path(settings.objects)), settings.scratch)
    assert {thing.kind for thing in there} >= {"models", "shards", "sessions", "reports"}
    assert all(time.time() - thing.used.timestamp() < 600 for thing in there)


def test_a_folder_of_format_2_is_signed_and_its_release_stands(tmp_path: Path) -> None:
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    settings = unpack(tmp_path, 2)
    assert world.status("irises")["release"]["stage"] == "production"
    assert format_of(settings) == FORMAT
    store = open_snapshots(settings.snapshots)
    assert store.resolve(store.history()[-2].id)  # former states are vouched for, too


def test_a_release_of_format_3_is_certified_and_loaded_and_a_second_upgrade_adds_nothing(
    tmp_path: Path,
) -> None:
    settings = unpack(tmp_path, 3)
    store, objects = open_snapshots(settings.snapshots), LocalObjects(Path(settings.objects))
    with pytest.raises(
        CertificateRefused, match=r"line 1 on model 96c30c13be4d has no certificate"
    ):
        load_release(store, objects, "irises", "production")
    home.prepare(settings)
    release = load_release(store, objects, "irises", "production")
    assert release.certificate.certified == "by an upgrade"
    assert release.certificate.proves == "integrity only: the key is the store's own"
    assert release.certificate.provenance is not None
    head = store.resolve()
    (settings.home / "format.json").write_text(json.dumps({"format": 3}))
    home.prepare(settings)
    assert store.resolve() == head


def test_an_upgrade_does_not_certify_what_the_records_of_its_commit_do_not_bear_out(
    tmp_path: Path,
) -> None:
    settings = unpack(tmp_path, 3)
    store, objects = open_snapshots(settings.snapshots), LocalObjects(Path(settings.objects))
    decided = ledger.read(store, "irises")[0].decision
    assert decided is not None
    other = decided.evidence.model_copy(update={"model": "ab" * 32})
    # as a version without certificates wrote it
    ledger.append(store, "irises", lambda head: line_on(head, decided, other))
    home.prepare(settings)
    assert store.exists(store.resolve(), "certificates/irises/000001.json")
    with pytest.raises(CertificateRefused, match="line 3 on model abababababab has no certificate"):
        load_model(store, objects, "irises", "ab" * 32)


def line_on(head: ledger.Head, decided: Decision, evidence: Evidence) -> LedgerEntry:
    return LedgerEntry(
        seq=head.seq,
        previous=head.previous,
        kind="decision",
        model=evidence.model,
        decision=decided.model_copy(update={"evidence": evidence}),
        author="me",
        reason="",
        run="run",
        time=decided.time,
    )


def test_a_key_of_ones_own_does_not_sign_what_it_did_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = unpack(tmp_path, 2)
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", base64.b64encode(bytes(32)).decode())
    with pytest.raises(SettingsError, match="from before commits were signed"):
        home.prepare(settings)
    assert format_of(settings) == 2
    monkeypatch.delenv("ML_ASSETS_SIGNING_KEY")
    home.prepare(settings)
    local = (Path(settings.snapshots) / "keys" / "local.pub").read_text().strip()
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", base64.b64encode(bytes(32)).decode())
    monkeypatch.setenv("ML_ASSETS_TRUSTED_KEYS", local)
    assert ledger.read(open_snapshots(settings.snapshots), "irises")


def test_a_folder_of_format_1_is_brought_up_and_its_release_stands(tmp_path: Path) -> None:
    world = World(tmp_path)
    irises.plant(world.pipelines, world.sources)
    settings = unpack(tmp_path)
    refs = refs_in(Path(settings.snapshots) / "refs.db")
    release = world.status("irises")["release"]
    assert release["stage"] == "production"
    assert release["decision"] == "passed"
    check_upgraded(settings, refs)


def test_an_upgrade_killed_at_any_step_is_finished_by_the_next(tmp_path: Path) -> None:
    settings = unpack(tmp_path)
    refs = refs_in(Path(settings.snapshots) / "refs.db")
    kills = 0
    for _ in killed_at_every_step(lambda: home.prepare(settings)):
        kills += 1
        assert format_of(settings) in (*STEPS, FORMAT)
        copy = settings.home / "backup" / "format-1" / "refs.db"
        assert not copy.exists() or refs_in(copy) == refs
    assert kills > 5
    check_upgraded(settings, refs)


def test_an_upgrade_is_done_once(tmp_path: Path) -> None:
    settings = unpack(tmp_path)
    home.prepare(settings)
    [page] = (Path(settings.objects) / "reports").rglob("*.html")
    os.utime(page, (LONG_AGO, LONG_AGO))
    home.prepare(settings)
    assert page.stat().st_mtime == LONG_AGO


def test_a_folder_in_use_is_not_upgraded(tmp_path: Path) -> None:
    settings = unpack(tmp_path)
    with home.lock(settings, "an older version's run"), pytest.raises(StateInUse):
        home.prepare(settings)
    assert format_of(settings) == 1


def test_a_folder_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    settings = unpack(tmp_path)
    (settings.home / "format.json").write_text(json.dumps({"format": FORMAT + 1}))
    before = sorted(settings.home.rglob("*"))
    with pytest.raises(SettingsError, match=r"Use the version that wrote it"):
        home.prepare(settings)
    assert {*settings.home.rglob("*")} - {*before} <= {settings.dagster_home}


def test_there_is_a_step_from_every_older_format_and_a_folder_to_try_it_on() -> None:
    assert sorted(STEPS) == list(range(1, FORMAT))
    assert {file.name for file in FOLDERS.iterdir()} == {f"format-{n}.tar.gz" for n in STEPS}
