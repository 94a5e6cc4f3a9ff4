"""Every rule of a spec has a planted fault here, and a message that says what to change."""

import dagster as dg
import pytest
from pydantic import TypeAdapter, ValidationError

from ml_assets.spec.gates import GateSpec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import EventsSource, FilesSource, SqlSource
from ml_assets.spec.training import TrainingSpec
from ml_assets_tests.spec.specs import BOOSTED, FILES, RANKING, SPEC, TENSORS, Raw, changed, refusal

CLOSED: Raw = {"reads": ["orders"], "function": "features.py:closed", "key": ["order"]}
KINDS: Raw = {"column": "kind", "task": "multiclass"}


def test_the_whole_spec_is_accepted() -> None:
    spec = PipelineSpec.model_validate(SPEC)
    assert spec.schema_version == 1
    assert isinstance(spec.sources["orders"], FilesSource)
    assert isinstance(spec.sources["returns"], EventsSource)
    assert isinstance(spec.sources["stock"], SqlSource)
    assert spec.features.key == ("order",)
    assert spec.release.to == "production"


@pytest.mark.parametrize("raw", [SPEC, BOOSTED, TENSORS], ids=["network", "trees", "tensors"])
def test_what_a_spec_says_survives_being_written_and_read_again(raw: Raw) -> None:
    spec = PipelineSpec.model_validate(raw)
    assert PipelineSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        # the spec as a whole
        ("schema", 2, "schema"),
        ("name", "Returns", "pattern"),
        ("name", "2nd", "pattern"),
        ("name", "a" * 64, "pattern"),
        ("description", "", "at least 1 character"),
        ("owner", "the shop team", "it must be team:NAME, or an e-mail address"),
        ("owner", "someone@nowhere", "it must be team:NAME, or an e-mail address"),
        ("colour", "red", "Extra inputs are not permitted"),
        ("sources", {}, "at least 1 item"),
        ("sources", {"Orders": FILES}, "pattern"),
        ("sources.feature_set", FILES, "has the name of the stage of every pipeline"),
        ("sources.raw_orders", FILES, "the name of the source 'orders' as it was read: choose"),
        ("tables", {"raw_orders": CLOSED}, "the name of the source 'orders' as it was read"),
        ("gates", [], "at least 1 item"),
        ("features", ..., "Field required"),
        # features online
        ("online", {}, "Field required"),
        ("online", {"entity": []}, "at least 1 item"),
        ("online", {"entity": ["price"]}, "['price'] are neither in features.key nor categorical"),
        ("online", {"entity": ["shop"], "features": ["order"]}, "['order'] are not features"),
        ("online", {"entity": ["shop"], "look_back": -1}, "greater than or equal to 0"),
        # partitions
        ("partitions.start", ..., "partitions of cadence 'weekly' need a 'start' date"),
        ("partitions.start", "yesterday", "valid date"),
        ("partitions.end", "2024-01-01", "is not after start 2024-01-01, so there would be no"),
        ("partitions.cadence", "yearly", "'hourly', 'daily', 'weekly' or 'monthly'"),
        ("partitions.timezone", "Europe/Atlantis", "is not an IANA time zone"),
        ("partitions.timezone", "America", "is not an IANA time zone"),
        ("partitions.timezone", "../etc/passwd", "is not an IANA time zone"),
        ("partitions.day_offset", 7, "less than or equal to 6"),
        ("partitions", {}, "sources ['orders', 'returns', 'stock'] are partitioned"),
        ("partitions", {}, "split.kind 'time' counts partitions, and there are none: give shares"),
        ("split", {"kind": "time"}, "a split by time counts partitions where there are any"),
        ("sources.orders.path", "o/{partition:%Y}.csv", "apart: it lacks %m, %d"),
        ("sources.orders.path", "o/{partition:%j}.csv", "as in {partition:%Y-%m}"),
        ("sources.orders.columns._reason", "string", "['_reason'] have names that tables use"),
        ("label.ahead", "6h", "features.key must hold features.decision_at"),
        ("label.ahead", "soon", "is not a duration"),
        ("label.of", "late", "give 'column' and 'ahead'"),
        ("partitions", {}, "features.look_back needs partitions"),
        # features
        ("features.function", "features.build", "pattern"),
        ("features.function", "../other/features.py:build", "stays inside its folder"),
        ("features.function", "/etc/features.py:build", "stays inside its folder"),
        ("features.key", [], "at least 1 item"),
        ("features.look_back", -1, "greater than or equal to 0"),
        ("features.look_back", "2", "valid integer"),
        ("features.engine", {"kind": "duckdb", "memory": 64}, "64 has no unit: write 64Mi or 64Gi"),
        (
            "features.decode",
            {"function": "a.py:b", "name": "p", "width": 4097},
            "less than or equal to 4096",
        ),
        ("features.categorical", ["price"], "features ['price'] are declared twice"),
        ("features.numeric", ["price", "price"], "features ['price'] are declared twice"),
        # label
        ("label.column", "price", "label.column 'price' is also a feature"),
        ("label.column", "shop", "label.column 'shop' is also a feature"),
        ("label.classes", ["yes", "no"], "a binary label is true or false"),
        ("label", KINDS, "needs 'classes', at least two"),
        ("label", {**KINDS, "classes": ["a"]}, "at least two"),
        ("label", {**KINDS, "classes": ["a", "b", "a"]}, "classes ['a'] are there more than once"),
        ("label", {**KINDS, "classes": [1, "1", "b"]}, "classes ['1'] are there more than once"),
        ("label", {"column": "rent", "task": "regression", "classes": ["a"]}, "remove 'classes'"),
        ("label", {"column": "rank", "task": "ranking", "classes": ["a"]}, "needs 'query'"),
        ("label", {"column": "rank", "task": "ranking"}, "needs 'query': the column that says"),
        ("label", {**RANKING, "classes": ["a"]}, "a ranking label is a grade: remove 'classes'"),
        ("label", {**RANKING, "query": "rank"}, "label.query 'rank' is the label itself"),
        ("label", RANKING, "metric 'auc', which a ranking task does not have; it has ndcg"),
        ("label.query", "shop", "'query' is for a ranking label, this one is binary: remove it"),
        # split
        ("split.kind", "shuffle", "'time', 'time+group', 'random'"),
        ("split.train", 0, "greater than 0"),
        ("split.holdout", 1.5, "valid integer"),
        ("split.embargo", -1, "greater than or equal to 0"),
        ("split", {"kind": "random", "validation": 0.0}, "greater than 0"),
        ("split", {"kind": "random", "holdout": 0.5}, "less than 0.5"),
        ("drift", {"leave_out": ["week"]}, "drift.leave_out: ['week'] are not features"),
    ],
)
def test_a_wrong_pipeline_is_refused_with_its_reason(path: str, value: object, said: str) -> None:
    assert said in refusal(changed(SPEC, {path: value}))


def test_what_is_served_online_looks_back_at_partitions_if_there_are_any() -> None:
    looks_back = changed(SPEC, {"online": {"entity": ["shop"], "look_back": 1}})
    assert PipelineSpec.model_validate(looks_back).online is not None
    assert "online.look_back needs partitions" in refusal(changed(looks_back, {"partitions": {}}))


def test_a_spec_without_features_is_refused() -> None:
    raw = changed(SPEC, {"features.numeric": [], "features.categorical": []})
    assert "at least one 'numeric' or 'categorical'" in refusal(raw)


def test_problems_between_parts_are_all_told_at_once() -> None:
    said = refusal(changed(SPEC, {"partitions": {}, "label.column": "price"}))
    assert "are partitioned" in said
    assert "needs partitions" in said
    assert "is also a feature" in said


def test_what_does_not_use_a_new_field_says_nothing_of_it() -> None:
    """Digests of specs, policies and sets stay what they were before the field came."""
    whole = PipelineSpec.model_validate(SPEC).model_dump(mode="json")
    gate = TypeAdapter(GateSpec).validate_python({"kind": "champion"}).model_dump(mode="json")
    assert "query" not in whole["label"]
    assert "origins" not in whole["evaluation"]
    assert "online" not in whole
    assert whole["release"] == {"to": "production", "canary": "none"}
    assert not {"metric", "relative", "min_effect", "seeds"} & set(gate)
    latency = TypeAdapter(GateSpec).validate_python({"kind": "latency"}).model_dump(mode="json")
    assert set(latency) == {"kind", "name", "at_most_ms"}


@pytest.mark.parametrize(
    ("owner", "fits"),
    [
        ("team:shop", True),
        ("team:Größe-2", True),
        ("ann@example.com", True),
        ("ann.b+shop%1_2@mail.example.museum", True),
        ("_ann@1-2.io", True),
        ("o'brien@example.com", False),
        ("jürgen@firma.de", False),
        ("ann@münchen.de", False),
        ("a/b@x.io", False),
        ("ann@example.c0m", False),
        ("a@b.c", False),
        (".ann@example.com", False),
        ("ann@example.photography", False),
        ("ann@example.com\n", False),
        ("team:", False),
    ],
)
def test_an_owner_that_is_accepted_is_accepted_by_dagster(owner: str, fits: bool) -> None:
    raw = changed(SPEC, {"owner": owner})
    if fits:
        assert PipelineSpec.model_validate(raw).owner == owner
        assert dg.AssetSpec("a", owners=[owner]).owners == [owner]
        return
    assert "an e-mail address that Dagster takes" in refusal(raw)
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        dg.AssetSpec("a", owners=[owner])


def test_a_spec_cannot_be_changed() -> None:
    spec = TrainingSpec()
    with pytest.raises(ValidationError, match="frozen"):
        spec.epochs = 3


def test_drift_without_partitions_says_how_rows_are_cut_and_has_an_alarm_that_can_be() -> None:
    from ml_assets.spec.drift import DriftSpec, RetrainSpec

    assert DriftSpec().retrain is None
    assert "nulls" not in RetrainSpec().kinds, "lost values are mended, not learned"
    with pytest.raises(ValueError, match="alarm_at 4 of 3 windows can never happen"):
        DriftSpec(windows=3, alarm_at=4)
    watched = changed(SPEC, {"drift": {}, "partitions": {"cadence": "none"}})
    assert "so state how new rows are cut into periods" in refusal(watched)


def hourly(zone: str, path: str) -> Raw:
    partitions = {"cadence": "hourly", "start": "2024-01-01", "timezone": zone}
    paths = {"sources.orders.path": path, "sources.returns.path": path}
    return changed(SPEC, {"partitions": partitions, **paths})


def test_the_hour_that_comes_twice_has_a_file_for_each() -> None:
    local = "o/{partition:%Y-%m-%d-%H}.csv"
    said = "names one file for the hour that comes twice in Europe/Berlin"
    assert said in refusal(hourly("Europe/Berlin", local))
    assert PipelineSpec.model_validate(hourly("Europe/Berlin", "o/{partition}.csv"))
    assert PipelineSpec.model_validate(hourly("UTC", local))
