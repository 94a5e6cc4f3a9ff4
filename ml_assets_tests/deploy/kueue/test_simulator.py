"""The simulator of Kueue's rules: who is admitted, who gives way, and the day of three teams."""

from pathlib import Path

import pytest

from benchmarks.queue_rules import GRACE, START, Cohort, Queue, Quota, Workload, read_queues
from benchmarks.queue_trace import HOUR, make_trace, replay

KUEUE = Path(__file__).parents[3] / "deploy" / "kueue"


def cohort(a: int = 8, b: int = 8, *, borrowing: bool = True, borrow: float = 99) -> Cohort:
    quotas = {"a": Quota(a, borrow), "b": Quota(b, borrow)}
    queues = [Queue(n, {"gpu": q}, True, True, True) for n, q in quotas.items()]
    return Cohort(queues, borrowing=borrowing)


def job(name: str, gpus: int, *, created: float = 0, priority: int = 100) -> Workload:
    return Workload(name, name[0], "gpu", gpus, HOUR, created, priority)


def running(there: Cohort) -> set[str]:
    return {one.name for one in there.running}


def settle(there: Cohort, now: float = 0) -> None:
    while there.cycle(now):
        pass


def test_a_job_is_admitted_whole_or_not_at_all() -> None:
    there = cohort(8, 0)
    there.add(job("a1", 6))
    there.add(job("a2", 4, created=1))
    settle(there)
    assert running(there) == {"a1"}


def test_nothing_passes_the_head_of_a_strict_queue() -> None:
    there = cohort(8, 0)
    for number, gpus in enumerate((6, 4, 1)):
        there.add(job(f"a{number}", gpus, created=number))
    settle(there)
    assert running(there) == {"a0"}


def test_a_team_borrows_what_the_others_do_not_use_and_no_more_than_it_may() -> None:
    there, bounded, alone = cohort(), cohort(borrow=2), cohort(borrowing=False)
    for one in (there, bounded, alone):
        one.add(job("a1", 8))
        one.add(job("a2", 4, created=1))
        settle(one)
    assert running(there) == {"a1", "a2"}
    assert running(bounded) == running(alone) == {"a1"}


def test_an_owner_takes_its_quota_back_from_the_youngest_borrower_and_no_more_than_it_needs() -> (
    None
):
    there = cohort()
    for number in range(4):
        there.add(job(f"a{number}", 4, created=number))
        settle(there, number)
    there.add(job("b1", 4, created=10))
    settle(there, 10)
    assert {one.name for one in there.running if one.leaves is not None} == {"a3"}
    gone = next(one for one in there.running if one.leaves is not None)
    assert gone.leaves == 10 + GRACE
    there.remove(gone)
    settle(there, 10 + GRACE)
    assert running(there) == {"a0", "a1", "a2", "b1"}


def test_an_owner_takes_nothing_beyond_its_quota() -> None:
    there = cohort()
    there.add(job("a1", 8))
    there.add(job("a2", 8, created=1))
    settle(there)
    there.add(job("b1", 12, created=2))
    settle(there, 2)
    assert not any(one.leaves for one in there.running)


def test_what_becomes_free_for_an_owner_is_not_borrowed_away() -> None:
    there = cohort()
    for number in range(2):
        there.add(job(f"a{number}", 8, created=number))
        settle(there, number)
    there.add(job("b1", 8, created=10))
    there.add(job("a9", 1, created=0.5))
    settle(there, 10)
    there.remove(next(one for one in there.running if one.leaves is not None))
    settle(there, 70)
    assert running(there) == {"a0", "b1"}


def test_a_higher_priority_takes_the_place_of_a_lower_one_of_its_own_queue() -> None:
    there = cohort(8, 0)
    there.add(job("a1", 8))
    settle(there)
    there.add(job("a2", 4, created=1, priority=1000))
    settle(there, 1)
    assert [one.name for one in there.running if one.leaves is not None] == ["a1"]


def test_who_gives_way_goes_on_from_where_it_was() -> None:
    there = cohort(8, 0)
    there.add(job("a1", 8))
    settle(there)
    there.add(job("a2", 8, created=1, priority=1000))
    settle(there, START + 600)
    assert there.running[0].left == HOUR - 600


def test_the_day_is_shared_as_promised_and_borrowing_is_what_does_it() -> None:
    queues = read_queues(KUEUE)
    day = replay(queues, make_trace(queues))
    assert day.capacity == 128
    assert day.wanted >= 1.1
    assert day.used >= 0.9
    assert day.guaranteed <= 5 * 60
    assert day.waits[-1] <= 20 * HOUR, "nobody starves"
    alone = replay(queues, make_trace(queues), borrowing=False)
    assert alone.used < 0.9


def test_a_rule_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    text = (KUEUE / "cluster-queues.yaml").read_text()
    (tmp_path / "cluster-queues.yaml").write_text(
        text.replace("nominalQuota: 40}", "nominalQuota: 40, lendingLimit: 4}", 1)
    )
    with pytest.raises(ValueError, match="forecasting has a lendingLimit"):
        read_queues(tmp_path)
