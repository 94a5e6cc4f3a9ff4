"""The ``cluster:`` block: what Kubernetes would refuse is refused, and nothing trains again."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ml_assets.graph.code_version import code_version_of
from ml_assets.settings import DEMO_PIPELINES
from ml_assets.settings.cluster import (
    bytes_of,
    cores_of,
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    is_label_value,
)
from ml_assets.spec.cluster import ClusterSpec, Toleration
from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.stages import MODEL_STAGES
from ml_assets_tests.spec.specs import BOOSTED, SPEC
from ml_assets_tests.worlds.opened import pipeline_of

Raw = dict[str, Any]

EVERYTHING: Raw = {
    "nodes": 4,
    "gpus_per_node": 2,
    "gpu_resource": "amd.com/gpu",
    "cpu": 0.5,
    "memory": "16Gi",
    "shared_memory": "2G",
    "scratch": "1.5Ti",
    "data_cache": "1Ti",
    "node_selector": {"node.example/kind": "big"},
    "tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "any"}],
    "priority_class": "training",
    "queue": "team-a",
    "queue_priority": "urgent",
    "spread_over": "topology.kubernetes.io/zone",
    "min_nodes": 2,
    "shrink_after_minutes": 5.0,
    "unschedulable_minutes": 30.0,
    "deadline_hours": 0.5,
}


def spec_of(cluster: Raw, base: Raw = SPEC, **training: object) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {**base, "cluster": cluster, "training": {**base.get("training", {}), **training}}
    )


def test_every_field_can_be_set_and_survives_being_written_and_read_again() -> None:
    spec = spec_of(EVERYTHING, processes=8, order="blocks")
    assert set(EVERYTHING) == set(ClusterSpec.model_fields), "a field of the spec has no case here"
    assert spec.cluster.cpu == "0.5"
    assert spec.cluster.tolerations[1] == Toleration(key="any")
    assert PipelineSpec.model_validate(spec.model_dump(mode="json", by_alias=True)) == spec


def test_every_field_is_told_of() -> None:
    docs = Path(__file__).parents[2] / "docs" / "add-a-pipeline.md"
    told = docs.read_text().partition("| field of `cluster` |")[2].partition("\n\n")[0]
    assert [field for field in ClusterSpec.model_fields if f"`{field}`" not in told] == []


def test_a_spec_without_a_cluster_says_nothing_of_it_and_means_one_node() -> None:
    spec = PipelineSpec.model_validate(SPEC)
    assert "cluster" not in spec.model_dump()
    assert (spec.cluster.nodes, spec.cluster.gpus_per_node) == (1, 0)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"nodes": 0}, "greater than 0"),
        ({"nodes": 10_000}, "less than or equal to 9999"),
        ({"nodes": 3}, "cluster.nodes 3 must divide training.processes 8"),
        ({"gpus_per_node": -1}, "greater than or equal to 0"),
        ({"nodes": 2, "gpus_per_node": 8}, "set training.processes to 16"),
        ({"data_cache": "8Gi"}, "set training.order: blocks"),
        ({"scratch": "8Gi", "data_cache": "8Gi"}, "is a part of scratch 8Gi: it must be smaller"),
        ({"gpu_resource": "gpu"}, "vendor.example/name"),
        ({"gpu_resource": "nvidia.com/gpu "}, "not the key of a label"),
        ({"cpu": "two"}, "not a number of cores"),
        ({"cpu": 0}, "not a number of cores"),
        ({"cpu": -1}, "not a number of cores"),
        ({"cpu": True}, "valid string"),
        ({"memory": "4gb"}, "not a size"),
        ({"memory": "400m"}, "not a size"),
        ({"memory": "0Gi"}, "not a size"),
        ({"scratch": "1e9"}, "not a size"),
        ({"shared_memory": "4Gi"}, "taken from memory 4Gi"),
        ({"node_selector": {"a b": "c"}}, "not the key of a label"),
        ({"node_selector": {"a": "-c"}}, "not the value of a label"),
        ({"node_selector": {"a": True}}, "valid string"),
        ({"tolerations": [{"key": "Bad.Domain./x"}]}, "not the key of a label"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "'NoSchedule'"),
        ({"tolerations": [{"value": "a"}]}, "Field required"),
        ({"priority_class": "High"}, "not the name of a priority class"),
        ({"queue": "team_a"}, "not the name of a queue"),
        ({"queue_priority": "urgent"}, "set queue, or remove queue_priority"),
        ({"spread_over": "zone/"}, "not the key of a label"),
        ({"nodes": 2, "min_nodes": 3}, "min_nodes 3 is more than nodes 2"),
        ({"min_nodes": 0}, "greater than 0"),
        ({"deadline_hours": 0}, "greater than 0"),
        ({"shrink_after_minutes": -1}, "greater than 0"),
        ({"shrink_after_minutes": 6}, "less than or equal to 5"),
        ({"unschedulable_minutes": 0}, "greater than 0"),
        ({"image": "mine"}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_cluster_is_refused_with_its_reason(cluster: Raw, said: str) -> None:
    with pytest.raises(ValidationError) as told:
        spec_of(cluster, processes=8)
    assert said in str(told.value)


def test_a_hybrid_keeps_its_shards_within_a_node() -> None:
    hybrid = {"strategy": "hybrid", "processes": 4}
    assert spec_of({"nodes": 2}, **hybrid).cluster.nodes == 2
    assert spec_of({"nodes": 1}, **hybrid).cluster.nodes == 1
    with pytest.raises(ValidationError, match="runs 1 of training"):
        spec_of({"nodes": 4}, **hybrid)


@pytest.mark.parametrize(
    ("field", "value"), [("nodes", 2), ("gpus_per_node", 1), ("data_cache", "1Gi")]
)
def test_boosted_trees_grow_on_one_node_without_a_gpu(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"cluster.{field}: model.family 'lightgbm'"):
        spec_of({field: value}, BOOSTED)
    assert spec_of({"memory": "64Gi"}, BOOSTED).cluster.memory == "64Gi"


def test_what_only_the_cluster_changes_trains_nothing_again() -> None:
    folder = DEMO_PIPELINES / "flight_delays"
    spec = load_spec(folder)
    other = spec.model_copy(update={"cluster": ClusterSpec.model_validate(EVERYTHING)})
    for stage in MODEL_STAGES:
        versions = {code_version_of(pipeline_of(folder, spec=one), stage) for one in (spec, other)}
        assert len(versions) == 1, stage


# --- Kubernetes' own grammar ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("4Gi", 4 * 2**30),
        ("500M", 500_000_000),
        ("1.5Ti", 3 * 2**39),
        ("1024", 1024),
        ("400m", None),
        ("1Gb", None),
        ("-1Gi", None),
        ("", None),
        ("0", None),
        ("٤Gi", None),
    ],
)
def test_sizes_are_read_as_kubernetes_reads_them(text: str, held: int | None) -> None:
    assert bytes_of(text) == held


@pytest.mark.parametrize(
    ("text", "cores"), [("2", 2), ("0.5", 0.5), ("250m", 0.25), ("0m", None), ("1.5m", None)]
)
def test_cores_are_read_as_kubernetes_reads_them(text: str, cores: float | None) -> None:
    found = cores_of(text)
    assert (None if found is None else float(found)) == cores


@given(st.text(alphabet="aZ09-_./\n ", max_size=70))
def test_no_name_holds_a_line_break_a_blank_or_a_sign_at_its_end(text: str) -> None:
    for accepts in (is_dns_label, is_dns_subdomain, is_label_key):
        if accepts(text):
            assert text.strip("-_./ \n") == text != ""
    if is_dns_label(text):
        assert is_label_value(text)
        assert text.lower() == text
    if is_label_value(text):
        assert len(text) <= 63
