"""What was read lately is remembered, and what was not used for longest is forgotten first."""

from ml_assets.store.lakefs.repository import LruCache


def test_what_was_not_used_for_longest_goes_first_and_the_rest_stays() -> None:
    remembered = LruCache(most=10)
    for name in ("a", "b", "c"):
        remembered.keep(name, b"123")
    assert remembered.get("a") == b"123"  # used: now "b" is the oldest
    remembered.keep("d", b"45")
    assert [name for name in "abcd" if remembered.get(name)] == ["a", "c", "d"]


def test_a_content_that_is_kept_twice_counts_once_and_one_that_is_too_large_is_not_kept() -> None:
    remembered = LruCache(most=4)
    for _ in range(3):
        remembered.keep("a", b"12")
    remembered.keep("b", b"34")
    assert remembered.get("a") == b"12"
    remembered.keep("large", b"12345")
    assert remembered.get("large") is None
