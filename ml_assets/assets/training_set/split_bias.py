"""Measures how far validation and holdout differ from train, by effect sizes, not p-values.

Cohen's d of a mean, Cohen's h of a share: see J. Cohen, "Statistical Power Analysis for the
Behavioral Sciences" (1988), 2.2 and 6.2. Both have a standard error of about sqrt(1/n + 1/m).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import assert_never

import polars as pl

from ml_assets.assets.training_set.column_moments import moments
from ml_assets.assets.training_set.read_split import SplitRows
from ml_assets.errors import counted, quoted
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.leaks import LeakFinding, SplitBias
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.training_program import Split

USUAL = 0.5
"""A medium effect: parted by chance, rows are alike."""
USUAL_OVER_TIME = 2.0
"""In the flights, seasons alone move the recent delays by 1.7 standard deviations."""
ERRORS = 4.0
"""Standard errors that an effect has to be past the bound: hundreds of them are looked at."""
_Shares = dict[str, dict[str | None, float]]


def find_bias(
    rows: Mapping[Split, SplitRows],
    features: FeaturesSpec,
    label: LabelSpec,
    guard: SplitBias,
    by_time: bool,
) -> LeakFinding:
    """No label and no feature of validation or holdout is further from train than the bound.

    Args:
        by_time: the splits are of different times, which differ by themselves.
    """
    bound = guard.bound or (USUAL_OVER_TIME if by_time else USUAL)
    spread = {name: _Spread(frame, features, label) for name, frame in rows.items()}
    worst: dict[str, tuple[float, str]] = {}
    past: set[str] = set()
    for name in ("validation", "holdout"):
        noise = ERRORS * math.sqrt(1 / len(rows["train"]) + 1 / len(rows[name]))
        for column, effect, words in spread["train"].effects(spread[name]):
            if column in guard.except_for:
                continue
            if effect > worst.get(column, (0.0, ""))[0]:
                worst[column] = (effect, f"{column} of {name}: {words}")
            if effect > bound + noise:
                past.add(column)
    ranked = sorted(past or worst, key=lambda column: -worst[column][0])
    told = "; ".join(f"{worst[c][1]} (effect {worst[c][0]:.2f})" for c in ranked[:5])
    said = f"the furthest from train: {told or 'nothing'}"
    if past:
        far = any(worst[column][0] > USUAL_OVER_TIME for column in past)
        differ = f"{counted(len(past), 'column', 'differ')}"
        said = (
            f"{differ} from train by an effect above {bound:g}: {told}."
            f"{' If a unit changed, correct the source. Else choose' if far else ' Choose'}"
            " another split, or name columns that may differ in leaks.split_bias.except_for"
        )
    return LeakFinding(
        name="splits_alike",
        passed=not past,
        value=worst[ranked[0]][0] if ranked else 0.0,
        bound=bound,
        reason=said,
        named=tuple(ranked) if past else (),
    )


class _Spread:
    """The label and the features of one split, in short."""

    def __init__(self, rows: SplitRows, features: FeaturesSpec, label: LabelSpec) -> None:
        numbers, words = list(features.numeric), list(features.categorical)
        match label.task:
            case "binary" | "multiclass":
                words.append(label.column)
            case "regression" | "ranking" | "language_model":
                numbers.append(label.column)
            case _:
                assert_never(label.task)
        self.rows = rows
        self.numbers = moments(rows, numbers)
        counts = {name: Counter[str | None]() for name in words}
        for frame in rows.each(words):
            for name, count in counts.items():
                count.update(dict(frame[name].cast(pl.String).value_counts().iter_rows()))
        self.shares: _Shares = {
            name: {word: count / tally.total() for word, count in tally.items()}
            for name, tally in counts.items()
        }

    def effects(self, other: "_Spread") -> Iterator[tuple[str, float, str]]:
        """(column, size of the effect, in words) from these rows to the others."""
        for name, own in self.numbers.items():
            yield from self._shift(name, other)
            gone, then = other.numbers[name].missing, own.missing
            yield name, _h(gone, then), f"{gone:.1%} missing, {then:.1%} in train"
        for name, shares in self.shares.items():
            there = other.shares[name]
            for word in shares.keys() | there.keys():
                now, then = there.get(word, 0.0), shares.get(word, 0.0)
                yield name, _h(now, then), f"{quoted(repr(word))} in {now:.1%}, {then:.1%} in train"

    def _shift(self, name: str, other: "_Spread") -> Iterator[tuple[str, float, str]]:
        """A number's mean in units of its deviation; of a constant, which has none, its share."""
        own, there = self.numbers[name], other.numbers[name]
        if own.mean is None or there.mean is None:
            return
        if own.constant is not None:
            alike = other.share_of(name, own.constant)
            said = f"{quoted(f'{own.constant:.3g}')} in {alike:.1%}, in all of train"
            yield name, _h(alike, 1.0), said
        elif own.deviation:
            effect = abs(there.mean - own.mean) / own.deviation
            yield name, effect, f"mean {there.mean:.3g}, {own.mean:.3g} in train"

    def share_of(self, name: str, value: float) -> float:
        """The share of a number's values, what is missing left out, that are this one."""
        alike = sum(int((f[name].cast(pl.Float64) == value).sum()) for f in self.rows.each([name]))
        return alike / self.numbers[name].count


def _h(one: float, other: float) -> float:
    """Cohen's h of two shares."""
    return abs(2 * math.asin(math.sqrt(one)) - 2 * math.asin(math.sqrt(other)))
