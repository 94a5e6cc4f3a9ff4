"""Paths that a spec names stay below their folder, and a refusal says what is wrong with one."""

import pytest

from ml_assets.spec.paths import source_path


@pytest.mark.parametrize(("path", "sign"), [("growth_5%.csv", "'%'"), ("a\\b.csv", r"'\\'")])
def test_a_sign_that_a_path_cannot_have_is_named(path: str, sign: str) -> None:
    with pytest.raises(ValueError) as refused:
        source_path(path)
    assert f"must be a relative path without {sign}" in str(refused.value)
    assert "rename the file or folder" in str(refused.value)
