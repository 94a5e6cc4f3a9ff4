"""A quota that is spent for now is told from one that could never hold what is asked for."""

import pytest

from ml_assets.launch.kubernetes.starting import amount, too_small

SAID = 'Error creating: pods "a-0" is forbidden: exceeded quota: team, requested: {0}'


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("500m", 0.5), ("2Gi", 2 * 2**30), ("1e3", 1000), ("1.5k", 1500), ("20M", 2e7)],
)
def test_a_quantity_is_a_number(text, value):
    assert amount(text) == value


@pytest.mark.parametrize("text", ["", "much", "1Zi", "1.2.3"])
def test_what_is_no_quantity_is_none(text):
    assert amount(text) is None


@pytest.mark.parametrize(
    ("numbers", "pods", "small"),
    [
        ("requests.cpu=2, used: requests.cpu=7, limited: requests.cpu=8", 4, False),
        ("requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=8", 5, True),
        ("cpu=500m,memory=9Gi, used: cpu=0,memory=0, limited: cpu=8,memory=8Gi", 1, True),
        ("pods=1, used: pods=10, limited: pods=10", 2, False),
    ],
)
def test_what_all_pods_need_is_held_against_the_whole_quota(numbers, pods, small):
    assert too_small(SAID.format(numbers), pods) is small


def test_other_words_are_no_verdict_on_the_quota():
    assert not too_small("pods is forbidden: must specify cpu", 2)
    assert not too_small("exceeded quota: team, requested: nonsense", 2)
