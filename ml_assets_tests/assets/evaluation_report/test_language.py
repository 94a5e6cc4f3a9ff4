"""Bits per byte, and the codes that a language model is held against."""

import gzip
from math import log

import numpy as np
import polars as pl
import pytest

from ml_assets.assets.evaluation_report.baselines import Texts, score_texts
from ml_assets.assets.evaluation_report.bootstrap import Resampler
from ml_assets.assets.evaluation_report.metrics.metrics import judged
from ml_assets.assets.evaluation_report.rows import Truth
from ml_assets.errors import EvidenceError
from ml_assets.spec.texts import TextBaseline, Tokens

SIZE = 5
TOKENS = Tokens(column="text", tokenizer="{}", size=SIZE, context=8)


def texts(*rows: list[int]) -> Texts:
    stream = [0, *(token for row in rows for token in (*row, 0))]
    starts = np.cumsum([1, *(len(row) + 1 for row in rows)])
    frame = pl.DataFrame({"text": ["".join(map(str, row)) for row in rows]})
    return Texts(frame, np.array(stream, np.uint16), starts)


TRAIN = texts([1, 2, 1, 2, 1, 3], [1, 2, 2], [4])


def nats(kind: str, holdout: Texts) -> list[float]:
    spec = TextBaseline.model_validate({"kind": kind})
    assert spec.name == kind
    scored = score_texts(spec, TRAIN, holdout, TOKENS)
    assert scored.shape == (len(holdout.frame), 1)
    return scored[:, 0].tolist()


@pytest.mark.parametrize("kind", ["uniform", "unigram", "bigram"])
@pytest.mark.parametrize("before", [0, 1, 2, 4])
def test_the_shares_of_what_may_come_next_add_up_to_one(kind: str, before: int) -> None:
    """A stream without its last end: only the token after ``before`` is asked for."""
    each = []
    for word in range(SIZE):
        asked = Texts(pl.DataFrame({"text": [""]}), np.array([before, word]), np.array([1, 2]))
        each += nats(kind, asked)
    assert sum(np.exp(-np.array(each))) == pytest.approx(1)


def test_each_code_is_what_its_formula_says() -> None:
    holdout = texts([1, 2], [3])
    assert nats("uniform", holdout) == pytest.approx([3 * log(5), 2 * log(5)])
    counts = np.bincount(TRAIN.tokens[1:], minlength=SIZE) + 1
    shares = counts / counts.sum()
    assert nats("unigram", holdout)[1] == pytest.approx(-log(shares[3]) - log(shares[0]))
    # 0 is followed by 1 twice and by 4 once; 3 by 0 once
    first = 0 / 5 + 2 / 5 * shares[3]
    last = 1 / 2 + 1 / 2 * shares[0]
    assert nats("bigram", holdout)[1] == pytest.approx(-log(first) - log(last))
    sizes = [len(gzip.compress(text.encode(), mtime=0)) for text in ("12", "3")]
    assert nats("gzip", holdout) == pytest.approx([8 * log(2) * size for size in sizes])


def test_bits_per_byte_weighs_a_text_by_its_bytes() -> None:
    truth = Truth("language_model", np.array([10.0, 30.0]))
    scores = judged(truth, np.array([[10 * log(2)], [60 * log(2)]]))
    assert scores.points() == {"bits_per_byte": pytest.approx(70 / 40)}
    assert scores.losses().tolist() == pytest.approx([1.0, 2.0])
    draws = scores.draws(Resampler(np.arange(2), 200, 0))["bits_per_byte"]
    assert sorted(set(draws.round(6).tolist())) == pytest.approx([1.0, 1.75, 2.0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_what_is_no_number_of_nats_is_no_evidence(wrong: float) -> None:
    truth = Truth("language_model", np.array([10.0, 30.0]))
    with pytest.raises(EvidenceError, match="1 of 2 texts"):
        judged(truth, np.array([[1.0], [wrong]]))
