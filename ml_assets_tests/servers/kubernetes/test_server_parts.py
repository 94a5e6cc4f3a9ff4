"""The pure parts of the tests' API server: selectors, patches, quantities, rewritten commands."""

from decimal import Decimal
from pathlib import Path

import pytest

from ml_assets_tests.servers.kubernetes import (
    environment,
    job_rules,
    patches,
    quantities,
    selectors,
)
from ml_assets_tests.servers.kubernetes.errors import ApiError


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b=2", True),
        ("a!=1", False),
        ("missing!=1", True),
        ("a in (0, 1),b", True),
        ("b notin (2)", False),
        ("!a", False),
        ("!missing", True),
        ("x.io/a-b", True),
    ],
)
def test_a_label_selector_chooses(selector, chosen):
    labels = {"a": "1", "b": "2", "x.io/a-b": ""}
    assert selectors.matches(labels, selectors.labels_of(selector)) is chosen


def test_what_is_no_selector_is_refused():
    with pytest.raises(ApiError, match="no label selector"):
        selectors.labels_of("a=1,=2=")


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("2", "2"), ("1Gi", str(2**30)), ("1k", "1000"), ("1e3", "1000")],
)
def test_a_quantity_is_a_number(text, number):
    assert quantities.read(text) == Decimal(number)


def test_what_is_no_quantity_is_refused():
    with pytest.raises(ValueError, match="regular expression"):
        quantities.read("4 GB")


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        (set(), ""),
        ({0}, "0"),
        ({0, 1}, "0,1"),
        ({0, 1, 2, 5}, "0-2,5"),
        ({3, 4, 7, 8, 9}, "3,4,7-9"),
    ],
)
def test_completed_indexes_are_written_and_read(indexes, text):
    assert job_rules.indexes_text(indexes) == text
    assert job_rules.indexes_of(text) == indexes


def test_a_merge_patch_replaces_lists_and_drops_nulls():
    before = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert patches.merge(before, {"a": {"b": None, "c": [3]}, "e": {"f": None}}) == {
        "a": {"c": [3]},
        "d": 1,
        "e": {},
    }
    assert before == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


def test_a_strategic_patch_merges_by_key_and_deletes_where_told():
    before = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
            "containers": [
                {"name": "a", "image": "9"},
                {"name": "b", "$patch": "delete"},
                {"name": "c", "image": "3"},
            ],
        }
    }
    after = patches.apply(before, patch, patches.STRATEGIC_PATCH)
    assert after["spec"]["containers"] == [
        {"name": "a", "image": "9"},
        {"name": "c", "image": "3"},
    ]


def test_a_json_patch_that_does_not_fit_is_refused():
    patch = [{"op": "test", "path": "/a", "value": 2}]
    with pytest.raises(ApiError) as refused:
        patches.apply({"a": 1}, patch, patches.JSON_PATCH)
    assert refused.value.code == 422


# --- commands made local --------------------------------------------------------------------------


def localiser():
    return environment.Localiser(
        {"/scratch": Path("/tmp/x/scratch"), "/dev/shm": Path("/tmp/x/shm")},
        "flights-a1",
        "flights-a1",
        "ml-assets",
        lambda port: port + 1,
    )


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("/scratch", "/tmp/x/scratch"),
        ("--scratch=/scratch/tmp", "--scratch=/tmp/x/scratch/tmp"),
        ("s3://bucket/scratch/a", "s3://bucket/scratch/a"),
        ("/scratchy", "/scratchy"),
        ("/data/scratch", "/data/scratch"),
        ("/dev/shm:/scratch", "/tmp/x/shm:/tmp/x/scratch"),
        ("flights-a1-0.flights-a1:29500", "127.0.0.1:29501"),
        ("flights-a1-0.flights-a1.ml-assets.svc.cluster.local:5", "127.0.0.1:6"),
        ("other-0.flights-a1:29500", "other-0.flights-a1:29500"),
        ("flights-a1-0.elsewhere:29500", "flights-a1-0.elsewhere:29500"),
    ],
)
def test_paths_and_names_become_local(text, local):
    assert localiser()(text) == local


def test_the_pods_of_a_job_have_addresses_in_the_order_of_their_index():
    addresses = [localiser()(f"flights-a1-{index}.flights-a1") for index in range(3)]
    assert addresses == sorted(addresses) and addresses[0] == "127.0.0.1"


def test_variables_expand_as_kubernetes_does():
    known = {"A": "1", "B.c": "2"}
    assert environment.expand("$(A) $(B.c) $(C) $$(A) $A", known) == "1 2 $(C) $(A) $A"
