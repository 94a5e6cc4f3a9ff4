"""NDCG of ranked queries (Jarvelin and Kekalainen, 2002): gain 2^grade - 1, discount log2.

    DCG@k = sum over positions p = 1..k of (2^grade_p - 1) / log2(p + 1)
    NDCG@k = DCG@k / DCG@k of the best order

Rows of equal score have no order. Each is given the mean gain of its equals, which is the expected
DCG over all their orders (McSherry and Najork, 2008): ties favour nobody. A query without a
relevant row is left out: no order of it is better than another.
"""

from dataclasses import dataclass

import numpy as np

from ml_assets.assets.evaluation_report.bootstrap import Resampler
from ml_assets.assets.evaluation_report.rows import Truth, local_day
from ml_assets.errors import EvidenceError, counted
from ml_assets.spec.gates import MetricName
from ml_assets.spec.records import DayOfRanking, PositionGain, Ranking


@dataclass(frozen=True)
class Ranked:
    """Each query's NDCG, and what stands at each position."""

    ndcg: np.ndarray
    """[q] of the queries with a relevant row."""
    first_row: np.ndarray
    """[q] number of the first row of each of them."""
    without_relevant: int
    gain: np.ndarray
    """[q, k] gain at each position from the top; 0 after the query's last row."""
    ideal: np.ndarray
    """[q, k] gain at each position in the best order."""

    @classmethod
    def of(cls, truth: Truth, predictions: np.ndarray) -> "Ranked":
        """The queries in the order of the scores.

        Raises:
            EvidenceError: some scores are not finite.
        """
        if truth.queries is None:
            raise ValueError("a ranking is judged by its queries; there are none")
        score = np.asarray(predictions, dtype=np.float64).reshape(len(predictions))
        wrong = int((~np.isfinite(score)).sum())
        if wrong:
            raise EvidenceError(
                f"{wrong} of {counted(len(score), 'score')} are not finite; the model cannot be"
                " judged: train it again with a lower learning_rate"
            )
        gain = 2.0 ** np.asarray(truth.labels, dtype=np.float64) - 1
        query = np.unique(truth.queries, return_inverse=True)[1].reshape(-1)
        shown = _by_position(query, score, _shared_by_equals(query, score, gain), truth.ndcg_at)
        ideal = _by_position(query, gain, gain, truth.ndcg_at)
        discount = 1 / np.log2(np.arange(truth.ndcg_at) + 2)
        best = ideal @ discount
        relevant = best > 0
        first = np.unique(query, return_index=True)[1]
        return cls(
            ndcg=(shown @ discount)[relevant] / best[relevant],
            first_row=first[relevant],
            without_relevant=int((~relevant).sum()),
            gain=shown[relevant],
            ideal=ideal[relevant],
        )

    def points(self) -> dict[MetricName, float]:
        """The mean over the queries; nothing where none has a relevant row."""
        return {"ndcg": float(self.ndcg.mean())} if len(self.ndcg) else {}

    def losses(self) -> np.ndarray:
        """[q] 1 - NDCG of each query."""
        return 1 - self.ndcg

    def units(self, of_rows: np.ndarray) -> np.ndarray:
        """[units] the values of rows as values of units: a query has that of its first row."""
        return of_rows[self.first_row]

    def draws(self, resampler: Resampler) -> dict[MetricName, np.ndarray]:
        """Metric -> [samples] its value on each draw of the bootstrap."""
        totals = resampler.totals(np.stack([self.ndcg, np.ones(len(self.ndcg))], axis=1))
        return {"ndcg": totals[:, 0] / totals[:, 1]}


def ranking(truth: Truth, predictions: np.ndarray, days: np.ndarray | None) -> Ranking:
    """Return how the queries were ranked, by day and by position.

    Args:
        days: [n] the local day of each row, in days since 1970; None: not told by day.
    """
    judged = Ranked.of(truth, predictions)
    by_day: list[DayOfRanking] = []
    if days is not None:
        names, place, queries = np.unique(
            judged.units(days), return_inverse=True, return_counts=True
        )
        means = np.bincount(place.reshape(-1), weights=judged.ndcg) / queries
        by_day = [
            DayOfRanking(day=local_day(int(name)), queries=int(count), ndcg=float(mean))
            for name, count, mean in zip(names, queries, means, strict=True)
        ]
    means = zip(judged.gain.mean(axis=0), judged.ideal.mean(axis=0), strict=True)
    return Ranking(
        at=truth.ndcg_at,
        queries=len(judged.ndcg),
        without_relevant=judged.without_relevant,
        days=tuple(by_day),
        positions=tuple(
            PositionGain(position=place, gain=float(gain), ideal=float(ideal))
            for place, (gain, ideal) in enumerate(means, 1)
        ),
    )


def _shared_by_equals(query: np.ndarray, score: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """[n] the mean gain of the rows of the same query and score."""
    order = np.lexsort((score, query))
    differs = (np.diff(query[order]) != 0) | (np.diff(score[order]) != 0)
    tie = np.empty(len(order), np.int64)
    tie[order] = np.concatenate([[0], np.cumsum(differs)])
    return (np.bincount(tie, weights=gain) / np.bincount(tie))[tie]


def _by_position(
    query: np.ndarray, score: np.ndarray, gain: np.ndarray, positions: int
) -> np.ndarray:
    """[queries, positions] gains in the order of falling scores."""
    order = np.lexsort((-score, query))
    rows = np.bincount(query)
    place = np.arange(len(query)) - np.repeat(np.cumsum(rows) - rows, rows)
    shown = place < positions
    table = np.zeros((len(rows), positions))
    table[query[order][shown], place[shown]] = gain[order][shown]
    return table
