"""What a data card costs: python benchmarks/card.py

Statistics of weeks as big as those of the flights (6,500 rows, 44 columns), of a training set,
and a year of weeks added up. CPU seconds of this process, all threads: the clock of a busy machine
says little.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import tell
from generated import CATEGORICAL, _frame

from ml_assets.spec.base import canonical_json
from ml_assets.store.table_statistics import merge_all
from ml_assets.store.table_survey import LabelColumns, survey

WEEK, TRAINING_SET, WEEKS = 6_500, 130_000, 52
LABELS = LabelColumns("y", by=CATEGORICAL[:2], period="at")
POLARS = "Most of it is polars, which asks 44 columns for quantiles, distinct values and a range."


def main() -> None:
    week, whole = _frame(WEEK, 0).collect(), _frame(TRAINING_SET, 0).collect()
    seen = survey(week, ["k"], LABELS)
    tell("card_week_cpu_s", cpu(lambda: survey(week, ["k"], LABELS), 10), 0.06, why=POLARS)
    tell("card_training_set_cpu_s", cpu(lambda: survey(whole, ["k"], LABELS), 3), 0.5)
    tell("card_year_added_up_cpu_s", cpu(lambda: merge_all([seen] * WEEKS), 3), 1.0)
    tell("card_week_kb", len(canonical_json(seen)) / 1e3, 64)


def cpu(call: Callable[[], object], times: int) -> float:
    before = sum(os.times()[:2])
    for _ in range(times):
        call()
    return (sum(os.times()[:2]) - before) / times


if __name__ == "__main__":
    main()
