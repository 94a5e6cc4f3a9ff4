"""`ml-assets check` asks the cluster of the settings whether one could train there."""

import json
from pathlib import Path

import pytest

from ml_assets.launch.kubernetes.rights import NEEDED
from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World


@pytest.fixture
def check(tmp_path: Path):
    """What it prints, for a kubeconfig."""

    def check(kubeconfig: Path, *, code: int) -> str:
        settings = {
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_OBJECTS": "s3://bucket/state",
            "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
            "KUBECONFIG": str(kubeconfig),
        }
        world = World(tmp_path, settings)
        if not world.pipelines.exists():
            irises.plant(world.pipelines, world.sources)
        return world.cli("check", "irises", code=code)

    return check


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).plant(irises)


@pytest.fixture
def weekly(tmp_path: Path) -> World:
    return World(tmp_path).plant(deliveries)


def test_a_cluster_that_would_refuse_a_training_is_told_before_there_is_one(check, tmp_path):
    assert "cluster: There is no Kubernetes configuration at" in check(tmp_path / "none", code=1)
    with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        assert "cluster" not in check(kubeconfig, code=0)
        reader = server.access.token("reader", rules=[])
        server.write_kubeconfig(tmp_path / "kubeconfig", token=reader)
        told = check(kubeconfig, code=1)
        assert all(str(right) in told for right in NEEDED)
        assert {call.verb for call in server.calls} == {"create"}
        assert {call.resource for call in server.calls} == {"selfsubjectaccessreviews"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{nope", "is not valid JSON: line 1"),
        ("{}".encode("utf-16"), "is not an expectation suite"),
        (b"[" * 200_000, "it is nested more than 100 levels deep"),
        (b"\xff\xff{}", "it is not UTF-8 text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_contract_that_cannot_be_read_is_one_mistake_and_no_stack(world, content, said):
    contract = world.pipelines / "irises" / "flowers.json"
    contract.unlink() if content is None else contract.write_bytes(content)
    checked = world.cli("check", "irises", code=1)
    assert said in checked
    assert "Traceback" not in checked
    lines = (world.pipelines / "irises" / "defs.yaml").read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if "contract: flowers.json" in line]
    assert f"defs.yaml:{number}: sources.flowers.contract" in checked


def test_a_run_without_its_contract_ends_in_a_sentence(world):
    (world.pipelines / "irises" / "flowers.json").unlink()
    done = world.streams("run", "irises", "--through", "raw_snapshot", code=1)
    assert done.stderr.startswith("error: The contract ")
    assert "Traceback" not in done.stderr


def test_as_of_is_held_to_the_partitions_before_anything_is_made(world):
    asked = ("run", "irises", "--as-of", "nonsense", "--through", "feature_set")
    done = world.streams(*asked, code=1)
    assert done.stderr.startswith("error: irises is not split by partitions: --as-of 'nonsense'")
    assert ">" not in done.stdout  # no step began


def test_a_calendar_that_ends_too_early_for_its_split_is_told_before_anything_is_made(weekly):
    for week in range(2):
        deliveries.land(weekly.sources, week)
    weekly.edit("deliveries", ("end: 2024-03-25", "end: 2024-03-18"))
    said = (
        "deliveries can never be trained: partitions.end 2024-03-18 leaves 11 partitions for good,"
        " and the split takes 11 (train 6, validation 1, holdout 2, embargo 2 x 1), and 1 before"
        " them for look_back. Set a later partitions.end, or none, or a smaller split."
    )
    checked = weekly.cli("check", "deliveries", code=1)
    assert said in checked and "defs.yaml:7: partitions.end" in checked
    for asked in ([], ["--dry-run"], ["--through", "training_set"]):
        done = weekly.streams("run", "deliveries", *asked, code=1)
        assert done.stderr.startswith(f"error: {said}")
        assert ">" not in done.stdout  # no step began
    weekly.cli("run", "deliveries", "--through", "raw_snapshot")


def test_baselines_that_do_not_fit_are_told_with_their_lines(world):
    file = world.pipelines / "irises" / "defs.yaml"
    human = "{kind: value, name: human, metrics: {rmse: 3.0}, source: two botanists}"
    rule = "{kind: function, name: rule, function: features.py:gone}"
    plain = file.read_text()
    line = plain.splitlines().index("      - {kind: constant}") + 2
    for added, key, said in [
        (human, ".metrics.rmse", "which a multiclass task does not have; it has auc, log_loss"),
        (rule, ".function", "has no function 'gone'"),
    ]:
        file.write_text(
            plain.replace("- {kind: constant}", f"- {{kind: constant}}\n      - {added}")
        )
        checked = world.cli("check", "irises", code=1)
        assert f"evaluation.baselines[1]{key}" in checked
        assert said in checked
        assert added is rule or f"defs.yaml:{line}: " in checked


def test_a_network_that_cannot_fit_this_machine_is_refused_with_the_numbers(world):
    world.edit("irises", ("width: 32, depth: 2", "width: 4194304, depth: 2"))
    checked = world.cli("check", "irises", code=1)
    assert (
        "The training does not fit: each process needs at least 281,4" in checked
    )  # GB: 2^44 x 16
    assert "parameters x 4 numbers x 4 bytes" in checked
    assert "Lower model.width or model.depth" in checked


def test_a_network_is_held_to_the_memory_of_a_pod_and_its_strategy(tmp_path):
    settings = {
        "ML_ASSETS_LAUNCHER": "kubernetes",
        "ML_ASSETS_OBJECTS": "s3://bucket/state",
        "ML_ASSETS_TRAINING_IMAGE": "registry.example/training@sha256:" + "5" * 64,
        "KUBECONFIG": str(tmp_path / "none"),
    }
    world = World(tmp_path, settings).plant(irises)
    wide = "width: 16384, depth: 2"  # 2^28 weights: 4.3 GB of state
    world.edit("irises", ("width: 32, depth: 2", wide))
    checked = world.cli("check", "irises", code=1)
    assert "a pod (cluster.memory: 4Gi) has 4.29 GB" in checked
    shared = "strategy: shard\n    processes: 4\n  cluster: {nodes: 4}"
    world.edit("irises", ("strategy: replicate\n    processes: 1", shared))
    assert "does not fit" not in world.cli("check", "irises", code=1)  # there is no cluster


def test_a_column_that_the_function_does_not_return_is_a_mistake(world):
    spec = world.pipelines / "irises" / "defs.yaml"
    plain = spec.read_text()
    line = next(n for n, line in enumerate(plain.splitlines(), 1) if "numeric:" in line)
    spec.write_text(plain.replace("petal_length, petal_width]", "petal_widht]"))
    told = world.cli("check", "irises", code=1)
    assert f"defs.yaml:{line}: features.numeric is 'petal_widht'" in told
    assert "Did you mean 'petal_width'? It returns flower, sepal_length, " in told
    spec.write_text(plain)
    function = world.pipelines / "irises" / "features.py"
    good = function.read_text()
    function.write_text(good.replace('tables["flowers"]', 'tables["flowers"].sort("hight")'))
    told = world.cli("check", "irises", code=1)
    assert "features.function is 'features.py:build'" in told and "hight" in told
    function.write_text(good.replace('tables["flowers"]', 'tables["flowers"].collect()[0].lazy()'))
    told = world.cli("check", "irises")
    assert "irises: good" in told, "a function that needs rows is not judged"
    assert "warning: features.py:build was called on tables without rows, and raised" in told
    assert "in features.py, line " in told
    function.write_text(good.replace("def build", "def built"))
    assert "was called on" not in world.cli("check", "irises", code=1), "it is no function yet"


def test_an_edited_function_is_judged_whatever_is_published(world):
    """By its own rows, where it needs some; as it is now, and not as it was when they were made."""
    world.cli("run", "irises", "--through", "feature_set")
    function = world.pipelines / "irises" / "features.py"
    good, read = function.read_text(), 'tables["flowers"]'
    function.write_text(good.replace(read, f'{read}.drop("petal_width")'))
    assert "features.numeric is 'petal_width'" in world.cli("check", "irises", code=1)
    function.write_text(good.replace(read, f'{read}.sort("hight")'))
    assert "hight" in world.cli("check", "irises", code=1)
    function.write_text(good.replace(read, f"{read}.collect()[0].lazy()"))
    assert world.cli("check", "irises").strip() == "irises: good", "it has rows now"
    function.write_text(good.replace(read, 'tables["flower"]'))
    told = world.cli("check", "irises", code=1)
    assert "the function runs: it was tried on the newest partition" in told
    assert "it raised KeyError ('flower') in features.py, line " in told


def test_a_column_that_slices_or_groups_and_is_not_returned_is_a_mistake(weekly):
    typos = ("[depot]\n    base", "[depto]\n    base"), ("by: [depot]", "by: [dep]")
    weekly.edit("deliveries", *typos)
    told = weekly.cli("check", "deliveries", code=1)
    assert "evaluation.slices is 'depto'" in told and "Did you mean 'depot'?" in told
    assert "evaluation.baselines[1].by is 'dep'" in told


def test_columns_are_looked_at_before_the_first_partition_is_over(weekly):
    weekly.edit("deliveries", ("start: 2024-01-01, end: 2024-03-25", "start: 2999-01-01"))
    assert "good" in weekly.cli("check", "deliveries")
    weekly.edit("deliveries", ("numeric: [load,", "numeric: [laod,"))
    assert "features.numeric is 'laod'" in weekly.cli("check", "deliveries", code=1)


def test_a_numeric_feature_that_comes_as_text_is_a_mistake(world):
    world.edit("irises", ("petal_width: float64", "petal_width: string"))
    contract = world.pipelines / "irises" / "flowers.json"
    suite = json.loads(contract.read_text())
    full = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "petal_width"}}
    contract.write_text(json.dumps(suite | {"expectations": [*suite["expectations"], full]}))
    told = world.cli("check", "irises", code=1)
    assert "features.numeric is 'petal_width', which comes as String" in told
    for edit in (
        "declare 'petal_width: float64' under sources.flowers.columns",
        "name every word that means no value under sources.flowers.null_values (now '')",
        "check in flowers.json that its expectations for 'petal_width' also hold for numbers"
        " with nulls (expect_column_values_to_not_be_null)",
        "or cast it to Float64 in features.py:build, or name it under categorical",
    ):
        assert edit in told


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("dt.date()", "return pl.col('measured_at').cast(pl.Datetime('us', 'UTC'))"),
        ("dt.replace_time_zone(None)", ".dt.replace_time_zone('UTC').cast("),
        ("cast(pl.String)", ".str.to_datetime(time_unit='us', time_zone='UTC')"),
    ],
)
def test_a_decision_at_no_moment_is_a_mistake(world, made, said):
    file = world.pipelines / "irises" / "features.py"
    changed = f'tables["flowers"].with_columns(pl.col("measured_at").{made})'
    file.write_text(file.read_text().replace('tables["flowers"]', changed))
    told = world.cli("check", "irises", code=1)
    assert "features.decision_at is 'measured_at', which comes as " in told
    assert said in told


def test_every_mistake_of_a_contract_is_told_at_once(world):
    file = world.pipelines / "irises" / "flowers.json"
    suite = json.loads(file.read_text())
    between = "expect_column_values_to_be_between"
    suite["expectations"] += [
        {"type": "expect_column_values_to_be_grand", "kwargs": {"column": "sepal_width"}},
        {"type": between, "kwargs": {"column": "sepal_widht", "min_value": 0}},
        {"type": between, "kwargs": {"column": "petal_width", "min_value": "low"}},
        {"type": between, "kwargs": {"column": "petal_width", "mostly": 3, "max_value": 9}},
    ]
    file.write_text(json.dumps(suite))
    told = world.cli("check", "irises", code=1)
    assert f"4 mistakes in the contract {file}" in told
    assert "there is no such type. Did you mean" in told
    assert "names 'sepal_widht', which the table does not have. Did you mean" in told
    assert "'low'" in told
    assert "mostly is 3; a share from 0 to 1 is expected" in told


def test_files_of_no_partition_are_warned_of_and_told_by_a_run(tmp_path):
    world = World(tmp_path).plant(deliveries, weeks=2)
    orders = world.sources / "orders"
    for name in ("2024-01-09", "2099-01-05"):
        (orders / f"{name}.csv").write_bytes((orders / "2024-01-08.csv").read_bytes())
    said = (
        "orders [2024-01-09] is not read: no weekly partition has this name; the first one is"
        " 2024-01-01"
    )
    later = "orders [2099-01-05] is not read: partitions.end is 2024-03-25"
    checked = world.cli("check", "deliveries")
    planned = world.cli("run", "deliveries", "--dry-run")
    for one in (said, later):
        assert f"warning: sources.{one}" in checked
        assert f"wait  {one}" in planned
    near = world.streams("run", "deliveries", "--as-of", "2024-1-8", code=1).stderr
    assert "Did you mean '2024-01-08'?" in near


def test_a_canary_that_the_next_model_always_replaces_is_warned_of(tmp_path: Path) -> None:
    world = World(tmp_path).plant(deliveries, automation="{landing: {retrain: true}}")
    spec = world.pipelines / "deliveries" / "defs.yaml"
    text = spec.read_text()
    warned = "release.canary.periods is 2, and automation.landing.retrain trains a model for each"
    for periods, expected in ((1, False), (2, True)):
        spec.write_text(f"{text}  release: {{canary: {{periods: {periods}}}}}\n")
        assert (warned in world.cli("check", "deliveries")) is expected


def test_mistakes_of_several_kinds_are_told_at_once(world):
    (world.pipelines / "irises" / "flowers.json").write_bytes(b"{nope")
    world.edit("irises", ("petal_width]", "petal_wdth]"))
    told = world.cli("check", "irises", code=1)
    assert told.startswith("irises: 2 mistakes")
    assert "sources.flowers.contract" in told
    assert "features.numeric is 'petal_wdth'" in told, "the contract does not hide it"
    assert "first, then run" not in told, "everything was looked at"


def test_what_a_mistake_keeps_from_being_looked_at_is_told(world):
    (world.pipelines / "irises" / "flowers.json").write_bytes(b"{nope")
    world.edit("irises", ("features.py:build", "features.py:bild"))
    told = world.cli("check", "irises", code=1)
    assert told.startswith("irises: 2 mistakes")
    assert "note: no function was called, so its columns were not looked at" in told
    world.edit("irises", ("epochs: ", "epoks: "))
    told = world.cli("check", "irises", code=1)
    assert "sources.flowers.contract" not in told
    assert "note: the contracts, the functions and the other files that the spec names" in told
    assert "correct defs.yaml first, then run ml-assets check irises again" in told
