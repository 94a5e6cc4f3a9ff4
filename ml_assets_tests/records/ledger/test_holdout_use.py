"""How often a holdout was used: other models, before this one, on rows of the same weeks."""

import pytest

from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import holdout_use
from ml_assets.spec.records import CanaryPeriod
from ml_assets.spec.split import HoldoutDraw, HoldoutRows
from ml_assets_tests.records.conftest import PIPELINE, A, B, C, decision, evidence, gate

D = "dd" * 32


def weeks(first, last, digest="1"):
    return HoldoutRows(digest=digest * 64, first=first, last=last)


MARCH, APRIL = weeks("2024-03-04", "2024-03-25"), weeks("2024-04-01", "2024-04-22", "2")
LATE_MARCH = weeks("2024-03-25", "2024-04-15", "3")


def written(store, model, rows, **more):
    found = decision(evidence(model), **more).model_copy(update={"holdout": rows})
    record_decision(store, found, "me")


def test_other_models_on_rows_of_the_same_weeks_count_once_refused_or_not(store):
    written(store, A, MARCH)
    written(store, A, MARCH, gates=(gate(passed=False),))
    written(store, B, LATE_MARCH, gates=(gate(passed=False),))
    written(store, C, APRIL)
    entries = read(store, PIPELINE)
    assert holdout_use(entries, D, MARCH).models == 2
    assert holdout_use(entries, D, LATE_MARCH).models == 3
    assert holdout_use(entries, D, weeks("2025-01-06", "2025-01-06", "9")).models == 0


def test_what_came_after_a_model_does_not_count_against_it(store):
    for model in (A, B, C):
        written(store, model, MARCH)
    assert [holdout_use(read(store, PIPELINE), m, MARCH).models for m in (A, B, C)] == [0, 1, 2]


def test_without_weeks_the_same_rows_are_told_by_their_keys(store):
    written(store, A, weeks("", ""))
    assert holdout_use(read(store, PIPELINE), B, weeks("", "")).models == 1
    assert holdout_use(read(store, PIPELINE), B, weeks("", "", "2")).models == 0


def drawn(digest, *sample):
    draw = HoldoutDraw(split="5" * 64, sample=sample)
    return HoldoutRows(digest=digest * 64, first="", last="", draw=draw)


def test_one_more_row_or_another_draw_is_no_other_holdout(store):
    written(store, A, drawn("1", "0a", "0b", "0c"))
    assert holdout_use(read(store, PIPELINE), B, drawn("2", "00", "0a", "0b")).models == 1
    assert holdout_use(read(store, PIPELINE), B, drawn("3", "0c", "0d", "0e")).models == 1
    assert holdout_use(read(store, PIPELINE), B, drawn("4", "0d", "0e", "0f")).models == 0


@pytest.mark.parametrize("rows", [MARCH, weeks("", "")], ids=["cut in time", "without a draw"])
def test_of_another_kind_of_holdout_it_is_not_known_whether_rows_are_shared(store, rows):
    written(store, A, drawn("1", "0a"))
    found = holdout_use(read(store, PIPELINE), B, rows.model_copy(update={"digest": "8" * 64}))
    assert (found.models, found.unknown) == (0, 1)


def test_a_canary_was_looked_at_on_the_rows_of_its_period(store):
    period = CanaryPeriod(first="2024-04-08", last="2024-04-15", rows=100)
    record_decision(store, decision(evidence(A)).model_copy(update={"canary": period}), "me")
    assert holdout_use(read(store, PIPELINE), B, APRIL).models == 1
    assert holdout_use(read(store, PIPELINE), B, MARCH).models == 0


def test_a_line_from_before_is_not_known(store):
    record_decision(store, decision(evidence(A)), "me")
    found = holdout_use(read(store, PIPELINE), B, MARCH)
    assert (found.models, found.unknown) == (0, 1)
