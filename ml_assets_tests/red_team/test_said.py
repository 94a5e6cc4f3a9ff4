"""What somebody says or names is not taken for a line of ours, or for another pipeline."""

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from ml_assets.actions.override import OverrideMade, override
from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.rollback import (
    RollbackRequest,
    RolledBack,
    Way,
    append_rollback,
    return_to,
)
from ml_assets.cli.output import aligned
from ml_assets.errors import EvidenceError, SpecError
from ml_assets.extras.recall.recall import carry_out, extent, lift
from ml_assets.records.ledger import chain
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.reports.wording import happened
from ml_assets.settings import read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.load import check_spec, pipeline_folders
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, refused, released, store
from ml_assets_tests.worlds import irises

__all__ = ["store"]
BAD = "b" * 64
FORGED = "ada\n2026-01-01 00:00:00  cafe  to production  auc 0.99  ada  \x1b[2Ka pass"


def test_an_author_of_two_lines_is_one_in_the_ledger_and_on_a_terminal(store) -> None:
    released(store, A)
    released(store, B, champion=A)
    moved = append_rollback(store, PIPELINE, Way(B, A), ReleaseSpec(), FORGED, FORGED)
    assert isinstance(moved, RolledBack)
    refused(store, C, champion=A)
    said = override(store, PIPELINE, C, FORGED, FORGED)
    assert isinstance(said, OverrideMade)
    for entry in (moved.entry, said.entry):
        assert "\n" not in entry.author + entry.reason
        assert entry.author.startswith("ada 2026-01-01")
    [line] = aligned([(FORGED, "x")])
    assert "\n" not in line and "\x1b" not in line


UNSEEN = ["\u200b", "\u3164\u3164", "  \n", "\u2800", "\x1b", "—", "\U000e0041"]


@pytest.mark.parametrize("nobody", UNSEEN)
def test_nobody_answers_who_cannot_be_read(store, nobody: str) -> None:
    """An override, a rollback, a recall and its end are by a letter or a digit that is seen."""
    refused(store, A)
    recall = made_of_nothing(store)
    for author, reason in ((nobody, "because"), ("eve", nobody)):
        said = override(store, PIPELINE, A, author, reason)
        assert isinstance(said, Refused) and "needs an author and a reason" in said.reasons[0]
        with pytest.raises(EvidenceError, match="needs an author and a reason"):
            extent(store, BAD, author, reason)
        with pytest.raises(EvidenceError, match="needs an author and a reason"):
            lift(store, recall, author, reason)
        with pytest.raises(EvidenceError, match="needs an author and a reason"):
            return_to(
                cast(Pipeline, None), cast(Tracking, None), RollbackRequest(author, reason), print
            )
    assert isinstance(override(store, PIPELINE, A, "佐藤", "7"), OverrideMade)
    lift(store, recall, "佐藤", "7")
    line = chain.read(store, PIPELINE)[-1]
    assert (line.kind, happened(line), line.author) == ("lift", "recall lifted", "佐藤")


def made_of_nothing(store) -> str:
    """A model that is recalled; the recall's id."""
    address = Address(PIPELINE, "trained_model")
    made = StageRecord(
        key=address.key,
        partition=None,
        run_key="1" * 64,
        code_version="1",
        data_version=BAD,
        rows=1,
        inputs=(),
        run="run",
        time=datetime.now(UTC),
    )
    with store.open(store.resolve(), "made") as workspace:
        workspace.put_bytes(address.record, canonical_json(made))
        workspace.commit("made", {})
        workspace.publish()
    recall, _ = carry_out(store, extent(store, BAD, "ann", "the scale was off"))
    line = chain.read(store, PIPELINE)[-1]
    assert (line.kind, happened(line)) == ("recall", "recalled")
    return recall.id


VACUOUS = {
    "quality_floor, metric: auc, at_least: -5.0": "at_least",
    "quality_floor, metric: auc, at_least: 0.0": "at_least",
    "quality_floor, metric: log_loss, at_least: 0.0": "at_least",
    "quality_floor, metric: accuracy, at_most: 1.0": "at_most",
    "quality_floor, metric: auc, at_least: .nan": "at_least",
    "leak, kind: leak_alarm, bound: 2.0": "bound",
    "leak, kind: leak_alarm, metric: log_loss, bound: -0.1": "bound",
    "lax, kind: baseline, metric: auc, baseline: constant, margin: -1000.0": "margin",
    "lax, kind: baseline, metric: log_loss, baseline: constant, margin: -1000.0": "margin",
    "lax, kind: slices, columns: [species], metric: accuracy, at_least: -1.0": "at_least",
    "lax, kind: slices, columns: [species], metric: accuracy, at_least: 1.5": "at_least",
    "lax, kind: slices, columns: [species], metric: log_loss, at_most: 40.0": "at_most",
    "lax, kind: gap, column: species, metric: auc, at_most: 1.0": "at_most",
    "lax, kind: calibration, at_most: 5.0": "at_most",
    "lax, kind: champion, margin: 1.0e+300": "margin",
    "lax, kind: champion, metric: auc, margin: 1.0, relative: true": "margin",
}


@pytest.mark.parametrize("gate", VACUOUS)
def test_a_bound_that_every_model_meets_is_a_mistake(tmp_path: Path, gate: str) -> None:
    folder = tmp_path / "pipelines" / "irises"
    irises.plant(folder.parent, tmp_path / "sources")
    spec = folder / "defs.yaml"
    kind = "" if "kind:" in gate else "kind: bound, "
    added = f"    slices: [species]\n  gates:\n    - {{{kind}name: {gate}}}\n"
    spec.write_text(spec.read_text().replace("  gates:\n", added))
    _, [mistake] = check_spec(folder)
    assert mistake.key == f"gates[0].{VACUOUS[gate]}"
    assert "decides nothing" in str(mistake) or "nan" in str(mistake)


def test_gates_that_only_record_are_no_policy(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "irises"
    irises.plant(folder.parent, tmp_path / "sources")
    spec = folder / "defs.yaml"
    head, _, rest = spec.read_text().partition("  gates:\n")
    kept = [line for line in rest.splitlines() if not line.startswith("    - ")]
    alone = f"{head}  gates: [{{kind: latency}}, {{kind: memory}}]\n" + "\n".join(kept) + "\n"
    spec.write_text(alone)
    _, [mistake] = check_spec(folder)
    assert "no gate can refuse a model" in str(mistake)
    spec.write_text(alone.replace("{kind: memory}", "{kind: memory, at_most_mb: 900}"))
    assert not check_spec(folder)[1]


def test_two_rooms_with_a_pipeline_of_one_name_are_told_and_neither_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    for room in ("ours", "theirs"):
        irises.plant(tmp_path / room, tmp_path / "sources")
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{tmp_path / 'ours'}:{tmp_path / 'theirs'}")
    with pytest.raises(SpecError, match=r"Two folders of ML_ASSETS_PIPELINES are called 'irises'"):
        pipeline_folders(read_settings())
    cli("check", "irises", code=1)
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"{tmp_path / 'ours'}:{tmp_path / 'ours'}")
    assert set(pipeline_folders(read_settings())) == {"irises"}


def test_an_empty_name_is_not_the_folder_of_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path))
    assert "The pipeline or folder is empty" in cli("release", "verify", "", code=2).err


def test_a_number_that_yaml_takes_for_text_is_told_how_it_is_written(tmp_path: Path) -> None:
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    spec = tmp_path / "pipelines" / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("margin: 0.3", "margin: 1e308"))
    _, [mistake] = check_spec(spec.parent)
    assert "write 1.0e+308" in mistake.remedy and "text" in mistake.remedy
    spec.write_text(spec.read_text().replace("margin: 1e308", "margin: 1.0e+308"))
    _, [mistake] = check_spec(spec.parent)
    assert "decides nothing" in str(mistake), "read as a number"
    spec.write_text(spec.read_text().replace("margin: 1.0e+308", "margin: 0.3"))
    found, mistakes = check_spec(spec.parent)
    assert found is not None and not mistakes
