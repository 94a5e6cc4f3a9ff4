"""The real flights, trained by FSDP over two pods: whatever happens to them, the same release.

Each case is a run of the command line on the data that was made once; afterwards the model is
released, the page and the record say what happened, and nothing with our label is left.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ml_assets.spec.training_program import World as Spread
from ml_assets_tests.servers.s3 import S3Server, s3_server
from ml_assets_tests.worlds import flight_pods
from ml_assets_tests.worlds.flight_pods import NAME, Pods, begin
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(3600)]  # walks, on a machine that is loaded
TWO, ONE = Spread(nodes=2, procs=1), Spread(nodes=1, procs=1)


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as found:
        patch.setenv("ML_ASSETS_SIGNING_KEY", flight_pods.KEY)  # of those who read the records here
        yield found


@pytest.fixture(scope="module")
def base(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A home with everything up to the training set."""
    world = flight_pods.on(store, tmp_path_factory.mktemp("flights"))
    flight_pods.plant(world)
    begin(world, "run", NAME, "--through", "training_set").ends()
    return world


@pytest.fixture
def pods(base: World, store: S3Server, tmp_path: Path) -> Iterator[Pods]:
    with flight_pods.pods(base, store, tmp_path / "home") as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(
    base: World, store: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, float]]:
    """The weights that two processes of this machine train, and what is measured of them."""
    with flight_pods.pods(base, store, tmp_path_factory.mktemp("local")) as found:
        here = Pods(World(found.world.root, base.extra), store, found.server)
        here.train().ends()
        assert found.server.calls.of("create", "jobs") == []
        return here.released(), here.record().metrics


def the_same(pods: Pods, undisturbed: tuple[str, dict[str, float]]) -> None:
    """Released with the weights of two local processes, and nothing is left."""
    assert pods.left() == []
    assert pods.released() == undisturbed[0]


@pytest.mark.parametrize(
    ("fault", "index", "cause"),
    [
        (Pods.delete, 1, "PodDeleted"),
        (Pods.evict, 1, "NodeShutdown"),
    ],
    ids=["a pod is deleted", "a pod is evicted"],
)
def test_a_pod_that_is_taken_away_costs_an_attempt_and_no_bit(
    pods: Pods, undisturbed: tuple[str, dict[str, float]], fault, index: int, cause: str
) -> None:
    run = pods.train()
    pods.until_saved(run)
    name = fault(pods, index)
    run.ends()
    the_same(pods, undisturbed)
    assert pods.trainings() == 2
    (lost,) = pods.record().lost
    assert (lost.attempt, lost.cause, lost.kind, lost.pod) == (1, cause, "infrastructure", name)
    assert (lost.world, lost.goes_on, lost.node) == (TWO, TWO, "node-1")
    page = pods.page()
    assert (page["attempts"], page["causes"], page["nodes"]) == (2, cause, 2)
    (row,) = flight_pods.table(page["lost_attempts"])
    assert (row["attempt"], row["cause"], row["pod"]) == ("1", cause, name)
    assert lost.what in row["what happened"] and lost.what.partition(": ")[0] in pods.warned()


def test_where_no_node_comes_back_one_goes_on_and_the_model_is_as_good(
    pods: Pods, undisturbed: tuple[str, dict[str, float]]
) -> None:
    pods.ask(min_nodes=1, shrink_after_minutes=0.05)
    pods.server.remove_node("node-1")
    for name in ("small-1", "small-2"):
        pods.server.add_node(name, cpu="1")
    run = pods.train()
    pods.until_saved(run)
    pod = pods.pod(1)
    pods.server.cordon(pod.spec.node_name)
    pods.server.preempt(pod.metadata.name)
    run.ends()
    assert pods.left() == []
    pods.released()
    taken, waited = pods.record().lost
    assert (taken.cause, taken.kind, taken.goes_on) == ("Preempted", "infrastructure", TWO)
    assert (waited.cause, waited.kind) == ("Unschedulable", "start")
    assert (waited.world, waited.goes_on) == (TWO, ONE)
    page = pods.page()
    assert (page["attempts"], page["nodes"], page["processes"]) == (3, 1, 1)
    assert page["causes"] == "Preempted, Unschedulable"
    loss = "validation_loss"
    assert abs(pods.record().metrics[loss] - undisturbed[1][loss]) < 1e-5
