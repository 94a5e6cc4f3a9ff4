"""Which edits make which stage due: in a copy of the package, held to the planner."""

import ast
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.assets.raw_snapshot.receipt import receipt_version
from ml_assets.automation.planner.graph_nodes import data_nodes, model_nodes
from ml_assets.automation.planner.landed import Landed
from ml_assets.automation.planner.plan import Node, plan
from ml_assets.graph import code_version as graphs
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.stage_code import BEGINNINGS, NOT_DECIDING, stage_code
from ml_assets.settings import DEMO_PIPELINES
from ml_assets.spec.partitions import windows
from ml_assets.spec.reached_code import PACKAGE
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.spec.stages import STAGES
from ml_assets.store.layout import Address, run_key
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.opened import pipeline_of

TABLES = {"raw_snapshot", "validated_table", "derived_table", "feature_set"}
SCORED = {"evaluation_report", "canary_report", "drift_report"}
TRAINED = {"checkpoints", "trained_model"}

NEVER_CALLED = "\n\ndef _never_called() -> int:\n    return 1\n"

EDITS = [  # file, what its author changes, whose code that is
    ("store/table_files.py", "ROW_GROUP_SIZE = 100_000", "ROW_GROUP_SIZE = 50_000",
     TABLES | {"predictions"}),
    ("assets/raw_snapshot/asset.py", "draft.table(reading.frame, ",
     "draft.table(reading.frame.head(1), ",
     {"raw_snapshot"}),
    ("assets/raw_snapshot/readers/files.py", "parse_csv(text,", "parse_csv(text[1:],",
     {"raw_snapshot"}),
    ("assets/validated_table/asset.py", "draft.table(found.clean,",
     "draft.table(found.clean.head(1),",
     {"validated_table"}),
    ("assets/validated_table/volume.py", "abs(change) <= spec.within", "abs(change) < spec.within",
     {"validated_table"}),
    ("assets/validated_table/contract/compiled.py", "if not result.passed", "if result.passed",
     {"validated_table"}),
    ("assets/derived_table/asset.py", "reads.tables(", "reads.all_tables(", {"derived_table"}),
    ("assets/feature_set/function_inputs.py", "spans(partition, self.look_back)",
     "spans(partition)",
     {"derived_table", "feature_set"}),
    ("assets/feature_set/feature_function.py", "pl.col(name).cast(pl.Float64)",
     "pl.col(name).cast(pl.Float32)",
     {"feature_set"}),
    ("assets/feature_set/asset.py", "reads.tables(state, partition)",
     "reads.tables(state, None)", {"feature_set"}),
    ("extras/online/asset.py", "def materialize(", "def materialise(",
     {"online_features"}),
    ("extras/serving/predictions/hour.py", 'keep="first"', 'keep="last"', {"predictions"}),
    ("extras/serving/online_evaluation/loss.py", "FEW = 30", "FEW = 20", {"online_evaluation"}),
    ("assets/training_set/window.py", "frame.filter(part == name)", "frame.filter(part != name)",
     {"training_set", "evaluation_report"}),
    ("assets/training_set/split.py", "if place + 1 < need", "if place < need",
     {"training_set", "evaluation_report"}),
    ("assets/training_set/split_leaks.py", "def examine(", "def examine(extra=1, *, ",
     {"training_set"}),
    ("training/train.py", "state.step + 1", "state.step + 2",
     TRAINED | SCORED | {"hyperparameter_search"}),
    ("assets/hyperparameter_search/optuna_study.py", "round(share * FULL)", "int(share * FULL)",
     {"hyperparameter_search"}),
    ("assets/evaluation_report/build_report.py", "holdout", "kept_out", {"evaluation_report",
     "canary_report"}),
    ("assets/evaluation_report/evaluator.py", "shuffle(self.spec, rows)",
     "shuffle(self.spec, rows[:9])",
     {"evaluation_report"}),
    ("assets/released_model/gates/quality.py", "gate.name, fine, value",
     "gate.name, not fine, value", {"evaluation_report", "canary_report"}),
    ("assets/released_model/asset.py", "def materialize(", "def materialise(", {"released_model"}),
    ("extras/canary/canary_report/asset.py", "def materialize(", "def materialise(",
     {"canary_report"}),
    ("extras/canary/promoted_model/asset.py", "def materialize(", "def materialise(",
     {"promoted_model"}),
    ("assets/drift_report/distances.py", "np.", "numpy.", {"drift_report"}),
]  # fmt: skip

DECIDES_NOTHING = [
    ("training/staging/pod.py", "return ", "return 1 and "),
    ("training/staging/outbox.py", "import ", "import uuid as _added\nimport "),
    ("reports/data_pictures.py", "return ", "return 1 and "),
    ("adapters/metadata.py", "return ", "return 1 and "),
    ("graph/publish.py", "return ", "return 1 and "),
    ("cli/main.py", "return ", "return 1 and "),
    ("errors.py", "return ", "return 1 and "),
    ("settings/environment.py", "return ", "return 1 and "),
    ("launch/local/launcher.py", "return ", "return 1 and "),
    ("assets/raw_snapshot/sources.py", "return ", "return 1 and "),
    ("spec/records.py", "rows: int", "rows: float"),
    ("assets/raw_snapshot/readers/csv_format.py", "", NEVER_CALLED),
    ("assets/feature_set/parity.py", "", NEVER_CALLED),
    ("spec/consistency.py", "", NEVER_CALLED),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy") / "ml_assets"
    return shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))


def code(package: Path, stage: str) -> str:
    return stage_code.__wrapped__(stage, "files" if stage == "raw_snapshot" else "", package)


@pytest.fixture(scope="module")
def as_it_is(package: Path) -> dict[str, str]:
    return {stage: code(package, stage) for stage in STAGES}


def changed(package: Path, before: dict[str, str]) -> set[str]:
    return {stage for stage in STAGES if code(package, stage) != before[stage]}


def edit(file: Path, old: str, new: str) -> str:
    """What was in the file before."""
    source = file.read_text()
    edited = source.replace(old, new) if old else source + new
    assert edited != source, f"{old!r} is not in {file}"
    file.write_text(edited)
    return source


@pytest.mark.parametrize(
    ("file", "old", "new", "stages"), EDITS, ids=[f"{e[0]}: {e[1]}" for e in EDITS]
)
def test_an_edit_is_of_the_stages_that_run_it(
    package: Path, as_it_is: dict[str, str], file: str, old: str, new: str, stages: set[str]
) -> None:
    source = edit(package / file, old, new)
    try:
        assert changed(package, as_it_is) == stages
    finally:
        (package / file).write_text(source)


def test_what_cannot_decide_a_result_makes_nothing_due(
    package: Path, as_it_is: dict[str, str]
) -> None:
    """Drawing, messages, settings, how work is carried; what is declared; what nobody calls."""
    sources = {file: edit(package / file, old, new) for file, old, new in DECIDES_NOTHING}
    try:
        assert changed(package, as_it_is) == set()
    finally:
        for file, source in sources.items():
            (package / file).write_text(source)


def test_every_stage_has_an_edit_that_makes_it_due() -> None:
    assert {stage for *_, stages in EDITS for stage in stages} == {*STAGES} == {*BEGINNINGS}


def test_docstrings_comments_and_layout_make_nothing_due(
    package: Path, as_it_is: dict[str, str], tmp_path: Path
) -> None:
    """They are laid out anew without a comment, and say something else of what they do."""
    other = tmp_path / "ml_assets"
    shutil.copytree(package, other)
    logic = ("assets", "spec", "training")
    files = [file for room in logic for file in (other / room).rglob("*.py")]
    for file in files:
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str()) as said):
                    said.value = "Said otherwise."
        file.write_text(f"# a remark\n{ast.unparse(tree)}\n")
    assert changed(other, as_it_is) == set()


def test_reading_a_database_is_other_code_than_reading_files(package: Path) -> None:
    assert stage_code("raw_snapshot", "sql") != stage_code("raw_snapshot", "files")


def test_what_does_not_decide_is_there(package: Path) -> None:
    """A name that is moved must be moved in the list, too: else its new place counts."""
    for name in NOT_DECIDING:
        if name.startswith("ml_assets."):
            path = package.parent.joinpath(*name.split("."))
            assert path.is_dir() or path.with_suffix(".py").is_file(), name


# --- what follows ---------------------------------------------------------------------------------

FOLDER = DEMO_PIPELINES / "flight_delays"
WALK = ("raw_snapshot", "validated_table", "feature_set", "training_set", "trained_model",
        "evaluation_report", "released_model")  # fmt: skip


def nodes() -> Iterator[Node]:
    graph = pipeline_of(FOLDER)
    spans = windows(graph.spec.partitions, datetime(2014, 1, 1, tzinfo=UTC))[:8]
    yield from data_nodes(
        graph,
        Landed(spans),
        lambda name, span: receipt_version(name, span.key if span else None, {}),
    )
    yield from model_nodes(graph, [span.key for span in spans[4:]])


def made(found: list[Node]) -> dict[Address, StageRecord]:
    """The record of each node, as it is when all is made."""
    records: dict[Address, StageRecord] = {}
    for node in found:
        inputs = [*node.fixed]
        for one in node.inputs:
            version = records[one].data_version
            inputs.append(
                InputVersion(key=one.key, partition=one.partition, version=version, commit=None)
            )
        records[node.address] = StageRecord(
            key=node.address.key,
            partition=node.address.partition,
            run_key=run_key(node.address, node.code_version, inputs),
            code_version=node.code_version,
            data_version="d" * 64,
            rows=1,
            inputs=tuple(inputs),
            run="",
            time=datetime(2014, 1, 1, tzinfo=UTC),
        )
    return records


@pytest.mark.parametrize("stage", WALK)
def test_other_code_of_a_stage_makes_it_due_and_what_follows(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = made(list(nodes()))
    assert plan(list(nodes()), records).due == ()
    monkeypatch.setattr(
        graphs, "stage_code", lambda one, kind: "other" if one == stage else stage_code(one, kind)
    )
    due = plan(list(nodes()), records).due
    (own, *_) = (item for item in due if item.node.address.stage == stage)
    assert own.reason.startswith("its code or its ")
    stages = {item.node.address.stage for item in due}
    assert stages.intersection(WALK) == {*WALK[WALK.index(stage) :]}


def test_a_rule_that_the_model_is_held_against_is_code_of_the_report_alone(tmp_path: Path) -> None:
    """So is what lies beside it; the features' own file is touched, and they are not due."""
    irises.plant(tmp_path, tmp_path)
    folder = tmp_path / "irises"
    held = "{kind: function, name: rule, function: features.py:rule}"
    spec = irises.SPEC.replace("- {kind: constant}", f"- {{kind: constant}}\n      - {held}")
    (folder / "defs.yaml").write_text(spec)
    rule = "\n\ndef rule(train, holdout):\n    from helpers import LIMIT\n    return LIMIT\n"
    (folder / "features.py").write_text(irises.FEATURES + rule)

    def versions(limit: int, file: str) -> dict[str, str]:
        (folder / "helpers.py").write_text(f"LIMIT = {limit}\n")
        (folder / "features.py").write_text(file)
        graph = pipeline_of(folder)
        return {stage: code_version_of(graph, stage) for stage in WALK[2:]}

    first = versions(1, irises.FEATURES + rule)
    edited = irises.FEATURES + rule.replace("return LIMIT", "return LIMIT + 1")
    for other in (versions(2, irises.FEATURES + rule), versions(1, edited)):
        assert {stage for stage in first if first[stage] != other[stage]} == {"evaluation_report"}
