"""Equal content is equal bytes, whatever the order it was written in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.training import TabM, TrainingSpec

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), PLAIN, max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@given(PLAIN, PLAIN)
def test_equal_digests_mean_equal_content(left: object, right: object) -> None:
    assert (digest_of(left) == digest_of(right)) == (canonical_json(left) == canonical_json(right))


def test_the_bytes_are_these_for_ever() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'.encode()
    assert digest_of({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_a_model_is_hashed_by_its_fields() -> None:
    assert digest_of(TabM(family="tabm")) == digest_of(TabM(family="tabm", width=128))
    assert digest_of(TrainingSpec(seed=1)) != digest_of(TrainingSpec(seed=2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"value": value})
