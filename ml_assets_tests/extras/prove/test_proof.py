"""Made again from its record in a clean home, a run is the same; what was changed is named."""

import hashlib
import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ml_assets.cli.main import main
from ml_assets.errors import UnknownRun
from ml_assets.extras.prove.claim import Claims
from ml_assets.records.ledger.chain import read
from ml_assets.records.record_history import Made, RunHistory
from ml_assets.records.run_record import RunRecord, record_bytes
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program.identity import machine_here
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.objects import file_digest
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

MODEL_STAGES = ["training_set", "trained_model", "evaluation_report", "gates"]


class Prover:
    """ml-assets release prove in this process, on a world that other tests read, too."""

    def __init__(self, world: World, capsys: Any, monkeypatch: pytest.MonkeyPatch):
        self.capsys, self.environment = capsys, monkeypatch
        world.enter(monkeypatch)

    def say(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        assert main(["release", "prove", *arguments]) == code
        said = self.capsys.readouterr()
        return said.out + said.err

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        self.capsys.readouterr()
        assert main(["release", "prove", *arguments, "--json"]) == code
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture
def prover(
    released: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Prover:
    return Prover(released, capsys, monkeypatch)


def files_of(folder: Path) -> dict[str, str]:
    """Every file and its digest; SQLite's own notes of who has a file open are none of ours."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_a_release_of_weekly_data_is_equal_byte_by_byte_and_the_state_folder_is_only_read(
    released: World, prover: Prover
) -> None:
    before = files_of(released.root / "state")
    found = prover.json("deliveries")
    assert files_of(released.root / "state") == before
    assert found["verdict"] == "equal"
    assert {one["outcome"] for one in found["verdicts"]} == {"equal"}
    stages = [one["asset"].split("/")[1] for one in found["verdicts"]]
    tables = ["raw_snapshot"] * 3 + ["validated_table"] * 3 + ["derived_table", "feature_set"]
    assert stages == ["configuration", *tables, *MODEL_STAGES]
    features = next(v for v in found["verdicts"] if v["asset"] == "deliveries/feature_set")
    assert features["partitions"] == 11  # train 6, validation 1, holdout 2, embargo 2


def test_a_refused_run_is_proved_by_the_spec_that_it_was_judged_by(
    released: World, prover: Prover
) -> None:
    refused = read(open_snapshots(released.settings.snapshots), "irises")[-1].decision
    assert refused is not None and not refused.passed
    said = prover.say("irises", refused.run[:8])
    assert f"run {refused.run[:8]} of irises is equal, byte by byte" in said
    assert "equal    irises/gates: refused, as then" in said


@pytest.mark.timeout(600)
def test_a_training_that_failed_has_to_fail_alike(
    released: World, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, tmp_path / name)
    world = World(tmp_path, released.extra)
    folder = world.pipelines / "irises"
    save_file({"nothing.like.it": np.zeros(1, np.float32)}, folder / "other.safetensors")
    spec = folder / "defs.yaml"
    digest = file_digest(folder / "other.safetensors")
    begins = f"init_from: other.safetensors@sha256:{digest}\n    epochs: 30"
    spec.write_text(spec.read_text().replace("epochs: 30", begins))
    assert "its request cannot be read" in world.cli("run", "irises", code=1)
    store = open_snapshots(world.settings.snapshots)
    records = [
        RunRecord.model_validate_json(store.read_bytes(store.resolve(), entry.path))
        for entry in store.list(store.resolve(), "runs/irises/")
    ]
    failed = next(r for r in records if r.config["training"]["init_from"])
    found = Prover(world, capsys, monkeypatch).json(failed.run)
    assert found["verdict"] == "equal"
    assert found["verdicts"][-1]["asset"] == "irises/trained_model"
    said = "it fails as it did then: its request cannot be read, or is for another training program"
    assert found["verdicts"][-1]["said"] == said


def test_a_changed_file_of_a_source_is_the_first_difference_and_what_was_read_then_is_kept(
    prover: Prover, tmp_path: Path
) -> None:
    irises.write_flowers(tmp_path, species_of_first="virginica")
    prover.environment.setenv("ML_ASSETS_SOURCES", str(tmp_path))
    said = prover.say("irises", code=3)
    assert (
        "DIFFERS  irises/raw_snapshot/raw_flowers: values differ in species (1) of 150 rows" in said
    )
    assert "first at flower 0: species 'setosa' then, 'virginica' now" in said
    assert "validated_table" not in said
    assert "--from-snapshots" in said


def test_where_the_source_is_gone_its_snapshot_is_taken_and_held_to_its_digest(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    store = copied_store(released, tmp_path, prover)
    prover.environment.setenv("ML_ASSETS_SOURCES", str(tmp_path / "gone"))
    table = Address("irises", "raw_snapshot", "flowers").table
    entry = store.list(store.resolve(), table)[0]
    blob = tmp_path / "store" / "objects" / entry.digest[:2] / entry.digest
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    said = prover.say("irises", code=3)
    assert "DIFFERS  irises/raw_snapshot/raw_flowers: its snapshot cannot be read" in said
    assert "is damaged" in said


def test_another_feature_function_is_refused_and_named_first_when_told_to_go_on(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    shutil.copytree(released.pipelines, tmp_path / "pipelines")
    function = irises.FEATURES.replace(
        'tables["flowers"]', 'tables["flowers"].with_columns(pl.col("petal_width") * 2)'
    )
    (tmp_path / "pipelines" / "irises" / "features.py").write_text(function)
    prover.environment.setenv("ML_ASSETS_PIPELINES", str(tmp_path / "pipelines"))
    said = prover.say("irises", code=3)
    assert "cannot be proved here, because it would be made by other code or contracts" in said
    named = (
        r"irises/feature_set by features\.py:\w+ \(code version [0-9a-f]{16}, [0-9a-f]{16} then\)"
    )
    assert re.search(named, said)
    assert prover.json("irises", code=3)["verdict"] == "refused"
    found = prover.json("irises", "--despite-code", code=3)
    assert found["first_difference"]["asset"] == "irises/feature_set"
    assert "values differ in petal_width (150)" in found["first_difference"]["said"]
    assert [v["outcome"] for v in found["verdicts"]] == ["equal", "equal", "equal", "differs"]


def otherwise(prover: Prover, folder: Path) -> None:
    """Let the training program add as a processor without vector instructions does."""
    folder.mkdir()
    line = "import os\nos.environ['ATEN_CPU_CAPABILITY'] = 'default'\n"
    (folder / "sitecustomize.py").write_text(line)
    prover.environment.setenv("PYTHONPATH", str(folder))


def on(record: RunRecord, cpu: str) -> RunRecord:
    nodes = [
        node.model_copy(update={"machine": node.machine.model_copy(update={"cpu": cpu})})
        for node in record.nodes
    ]
    return record.model_copy(update={"nodes": tuple(nodes)})


def test_on_another_kind_of_device_metrics_are_asked_for_and_no_bits(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    otherwise(prover, tmp_path / "device")
    said = prover.say("irises", "--from-snapshots", code=3)
    assert "DIFFERS  irises/trained_model: other bits on the same kind of device" in said
    store = copied_store(released, tmp_path, prover)
    rewrite_record(store, lambda record: on(record, "AMD EPYC 7B13"))
    said = prover.say("irises", "--from-snapshots")
    other = f"another kind of device ({', '.join(machine_here().devices)}, AMD EPYC 7B13 then)"
    for stage in ("trained_model", "evaluation_report"):
        assert f"equal~   irises/{stage}: {other}: equal to 0.5% is asked, not bits" in said


def test_the_latest_of_a_release_is_the_run_that_released_it(prover: Prover) -> None:
    found = prover.json("deliveries", "latest")
    assert found["verdict"] == "equal"
    assert [one["asset"].split("/")[1] for one in found["verdicts"]][-4:] == MODEL_STAGES


def test_a_seed_that_is_not_the_one_that_trained_is_named_first(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    """A record that agrees with itself, and names another seed than the session ran with."""
    store = copied_store(released, tmp_path, prover)
    rewrite_record(store, lambda record: with_seed(record, 7))
    found = prover.json("irises", code=3)
    assert found["first_difference"]["asset"] == "irises/configuration"
    said = found["first_difference"]["said"]
    assert "training.seed is 7 in the record and 0 in the request that ran" in said


def test_a_record_that_contradicts_itself_is_no_proof(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    store = copied_store(released, tmp_path, prover)
    rewrite_record(store, lambda record: record.model_copy(update={"seed": 7}))
    said = prover.say("irises", code=3)
    assert "its seed is 7, its config says training.seed 0" in said


def test_another_package_or_lock_is_refused_with_the_commits_and_digests(
    released: World, prover: Prover, tmp_path: Path
) -> None:
    store = copied_store(released, tmp_path, prover)

    def aged(record: RunRecord) -> RunRecord:
        code = record.environment.code.model_copy(update={"sources": "a" * 64, "git_sha": "b" * 40})
        found = record.environment.model_copy(update={"code": code, "lock": "c" * 64})
        return record.model_copy(update={"environment": found})

    rewrite_record(store, aged)
    said = prover.say("irises", code=3)
    assert "digest aaaaaaaaaaaa (commit bbbbbbbbbbbb" in said
    assert "requirements.lock: " in said
    assert "cccccccccccc then" in said


def test_what_is_not_there_or_too_short_or_of_many_is_said(prover: Prover) -> None:
    assert "begins with 'nothing-like-it'" in prover.say("nothing-like-it", code=1)
    assert "too short" in prover.say("irises", "ab", code=1)


def test_a_name_of_several_things_lists_them() -> None:
    def model(end: str) -> Made:
        record = StageRecord(
            key="irises/trained_model",
            partition=None,
            run_key="0" * 64,
            code_version="1",
            data_version=f"{'ab' * 30}{end}",
            rows=None,
            inputs=(),
            run=f"run-{end}",
            time=datetime.now(UTC),
        )
        return Made(record, "")

    history = RunHistory((model("0001"), model("0002")), (), ())
    claims = Claims(Ledgerless(), history)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownRun, match=r"2 begin with 'ababab': model abab.*0001 of irises"):
        claims.find("ababab")
    with pytest.raises(UnknownRun, match="The run run-0002 of irises published nothing"):
        claims.find("latest", "irises")  # the newest of the two, which left no report to prove
    with pytest.raises(UnknownRun, match="no run of tulips of a model yet"):
        claims.find("latest", "tulips")


class Ledgerless:
    """A store in which nothing was decided."""

    def resolve(self, ref: str = "main") -> str:
        return "0" * 64

    def list(self, commit: str, prefix: str = "") -> tuple[()]:
        return ()


def copied_store(world: World, folder: Path, prover: Prover) -> EmbeddedStore:
    """A store of its own with the same content; the rest of the state folder stays."""
    shutil.copytree(world.settings.snapshots, folder / "store")
    prover.environment.setenv("ML_ASSETS_SNAPSHOTS", str(folder / "store"))
    return EmbeddedStore(folder / "store")


def with_seed(record: RunRecord, seed: int) -> RunRecord:
    config = json.loads(json.dumps(record.config))
    config["training"]["seed"] = seed
    changed = record.model_copy(
        update={"config": config, "config_digest": digest_of(config), "seed": seed}
    )
    asked = {
        "code": changed.environment.code.sources,
        "program": changed.program.digest if changed.program else None,
        "lock": changed.environment.lock,
        "config": config,
        "seed": seed,
        "inputs": sorted([i.key, i.partition or "", i.version] for i in changed.inputs),
    }
    return changed.model_copy(update={"reproduces": digest_of(asked)})


def rewrite_record(store: EmbeddedStore, change: Any) -> None:
    """Publish another run record in place of the model's: by somebody who may write the store."""
    base = store.resolve()
    path = Address("irises", "trained_model").file("run.json")
    record = RunRecord.model_validate_json(store.read_bytes(base, path))
    with store.open(base, "another record") as workspace:
        workspace.put_bytes(path, record_bytes(change(record)))
        begun = f"runs/irises/{record.run}.json"
        workspace.remove(begun)
        workspace.commit("another record", {})
        workspace.publish()
