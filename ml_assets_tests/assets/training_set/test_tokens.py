"""Texts as tokens: the words are those of train alone, and nothing of a text is lost."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.assets.training_set.shards import load_schema, read_rows, read_tokens
from ml_assets.assets.training_set.split_leaks import find_foreign_fit
from ml_assets.assets.training_set.tokens import fit_tokens, texts_of, token_arrays
from ml_assets.errors import SpecError
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.texts import TokensSpec
from ml_assets_tests.training.texts import FEATURES, LABEL, text_set

pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
WORDS = TokensSpec(column="text", vocabulary=300)
TEXTS = [
    "def f(x):\n    return 2 * x\n",
    "",
    "a = 'Ä ü — 漢字 🎉'\n\ttab\r\n",
    "a = 1\n" * 20 + "<|end|>",
]


def frame(texts: list[str]) -> pl.DataFrame:
    at = [datetime(2024, 1, 1, tzinfo=UTC)] * len(texts)
    rows = pl.DataFrame({"k": range(len(texts)), "at": at, "text": texts})
    return rows.with_columns(pl.col("text").str.len_bytes().alias("bytes"))


def test_a_text_comes_back_from_its_tokens_to_the_byte() -> None:
    tokens = fit_tokens(SplitRows.of(frame(["other words, of which none is here"])), WORDS)
    stream, starts = token_arrays(frame(TEXTS), tokens, LABEL)
    assert stream.dtype == np.uint16
    assert stream[0] == 0
    assert (stream[starts[1:] - 1] == 0).all()
    pieces = [stream[a:b].tolist() for a, b in pairwise(starts)]
    assert texts_of(pieces, tokens) == TEXTS


def test_the_same_texts_give_the_same_words_and_others_others() -> None:
    some, more = SplitRows.of(frame(TEXTS)), SplitRows.of(frame([*TEXTS, "while True: pass " * 9]))
    assert fit_tokens(some, WORDS) == fit_tokens(some, WORDS)
    assert fit_tokens(some, WORDS) != fit_tokens(more, WORDS)


def test_words_that_were_learned_from_the_holdout_are_found(tmp_path: Path) -> None:
    data = text_set(tmp_path)
    schema = load_schema(data)
    train, holdout = (read_rows(data, schema, name) for name in ("train", "holdout"))
    assert find_foreign_fit(schema, SplitRows.of(train), LABEL).passed
    both = SplitRows.of(pl.concat([train, holdout]))
    found = find_foreign_fit(schema, both, LABEL)
    assert not found.passed
    assert "its vocabulary is not the one" in found.reason
    stream, starts = read_tokens(data, schema, "holdout")
    assert len(starts) == len(holdout) + 1
    assert starts[-1] == len(stream)


def test_a_label_that_is_not_the_bytes_of_the_text_is_refused() -> None:
    tokens = fit_tokens(SplitRows.of(frame(TEXTS)), WORDS)
    wrong = frame(TEXTS).with_columns(pl.col("text").str.len_chars().alias("bytes"))
    with pytest.raises(SpecError, match=r"the text has 34 bytes: .*len_bytes"):
        token_arrays(wrong[2:], tokens, LABEL)
    with pytest.raises(SpecError, match="is null in 1 of 4 rows"):
        gone = pl.when(pl.col("k") == 1).then(None).otherwise(pl.col("text")).alias("text")
        token_arrays(frame(TEXTS).with_columns(gone), tokens, LABEL)


def test_columns_beside_the_text_are_refused() -> None:
    with pytest.raises(ValueError, match="all that a language model reads"):
        FeaturesSpec.model_validate({**FEATURES.model_dump(), "categorical": ("c",)})
