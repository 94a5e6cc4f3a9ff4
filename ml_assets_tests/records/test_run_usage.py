"""What a run cost is what its own attempts took, and nothing of what others did before."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from ml_assets.records.run_usage import spent
from ml_assets.settings import prices_of
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Metrics, Progress

START = datetime(2026, 1, 2, tzinfo=UTC)
WORLD = World(nodes=2, procs=3, threads=4)


def event(attempt, second, step=0, **metrics):
    head = {"session": "s", "attempt": attempt, "seq": second}
    time = START + timedelta(seconds=second)
    if metrics:
        return Metrics(**head, time=time, step=step, metrics=metrics)
    return Progress(**head, time=time, step=step, steps=9, message="")


EVENTS = [
    event(1, 0),
    event(1, 100, step=4, validation_loss=0.5, train_loss=0.6, epoch=1.0),
    event(2, 200),
    event(2, 230, step=8, validation_loss=0.7, train_loss=0.4, epoch=2.0),
]


def cost(events=EVENTS, since=0.0, price=None):
    return spent(events, "s", WORLD, START + timedelta(seconds=since), lambda gpus: price)


def test_the_attempts_of_the_run_are_added_up_without_the_time_between_them():
    assert (cost().attempts, cost().seconds) == (2, 130)


def test_an_attempt_of_an_earlier_run_is_not_paid_again():
    assert (cost(since=150).attempts, cost(since=150).seconds) == (1, 30)
    assert (cost(since=300).attempts, cost(since=300).seconds) == (0, 0)


def test_the_lowest_validation_loss_and_the_last_training_loss_are_told():
    found = cost()
    assert (found.validation_loss, found.train_loss, found.epochs, found.step) == (0.5, 0.4, 2, 8)


def test_gpus_are_counted_only_where_the_network_lay_on_them():
    assert cost().gpus == 0
    on_gpu = [*EVENTS, event(2, 231, step=9, gpu_memory_peak_mb=10.0)]
    assert cost(on_gpu).gpus == 6


def test_a_machine_is_priced_by_its_gpus_where_the_network_lay_on_them():
    prices = prices_of([("spot", "1.10"), ("node", "0.40")])

    def an_hour(events):
        return spent(events, "s", WORLD, START, lambda gpus: prices.node_hour("spot", gpus))

    assert an_hour(EVENTS).price_per_hour == 0.4
    on_gpu = [*EVENTS, event(2, 231, step=9, gpu_memory_peak_mb=10.0)]
    assert an_hour(on_gpu).price_per_hour == 3.3


def test_a_training_that_told_nothing_cost_nothing():
    assert cost([], price=Decimal("2.5")).model_dump()["price_per_hour"] == 2.5
    assert (cost([]).seconds, cost([]).validation_loss) == (0, None)
