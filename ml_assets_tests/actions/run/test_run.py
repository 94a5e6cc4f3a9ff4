"""A fresh training that is killed is one wish: whoever comes next goes on with it, or drops it."""

import signal
import time
from pathlib import Path

from ml_assets.actions.run.fresh_training import FreshTraining
from ml_assets.spec.records import StageRecord
from ml_assets.store.layout import Address, read_record
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.flight_pods import begin
from ml_assets_tests.worlds.world import World


def made_with(salt: str | None) -> StageRecord:
    return StageRecord.model_construct(attributes={"salt": salt} if salt else {})


def test_a_wish_keeps_its_salt_until_its_model_is_made(tmp_path: Path) -> None:
    first, said = FreshTraining(tmp_path, "flights").salt(True, None, None)
    assert first and not said
    for asked in (True, None):
        again, said = FreshTraining(tmp_path, "flights").salt(asked, None, None)
        assert again == first and "continues" in said and "--no-fresh" in said
    FreshTraining(tmp_path, "flights").made(made_with(None))
    assert FreshTraining(tmp_path, "flights").salt(None, None, None)[0] == first
    FreshTraining(tmp_path, "flights").made(made_with(first))
    assert FreshTraining(tmp_path, "flights").salt(None, None, None) == (None, "")
    assert FreshTraining(tmp_path, "flights").salt(True, None, None)[0] != first


def test_another_request_leaves_a_wish_alone_and_says_how_to_go_on_with_it(tmp_path: Path) -> None:
    wish = FreshTraining(tmp_path, "flights")
    first, _ = wish.salt(True, None, 3)
    salt, said = wish.salt(None, None, None)
    assert salt is None and "ml-assets run flights --fresh --epochs 3" in said
    assert wish.salt(True, None, 3)[0] == first
    assert FreshTraining(tmp_path, "trains").salt(None, None, 3) == (None, "")


def test_a_wish_can_be_dropped(tmp_path: Path) -> None:
    wish = FreshTraining(tmp_path, "flights")
    wish.salt(True, None, None)
    salt, said = wish.salt(False, None, None)
    assert salt is None and "dropped" in said
    assert wish.salt(None, None, None) == (None, "")


def test_a_model_that_was_not_published_after_its_checkpoints_is(tmp_path: Path) -> None:
    """A process may die between the two: Dagster makes both in one step, or none."""
    world = World(tmp_path).plant(irises)
    model = Address("irises", "trained_model")
    world.cli("run", "irises", "--through", "trained_model")
    store = open_pipeline("irises", world.settings).store
    made = read_record(store, store.resolve("main"), model)
    with store.open(store.resolve("main"), "a death between the two") as workspace:
        for entry in store.list(store.resolve("main")):
            if "/trained_model" in entry.path:
                workspace.remove(entry.path)
        workspace.commit("checkpoints alone", {})
        workspace.publish()
    assert read_record(store, store.resolve("main"), model) is None
    said = world.cli("run", "irises", "--through", "trained_model")
    assert "make  irises/checkpoints: it is made together with irises/trained_model" in said
    again = read_record(store, store.resolve("main"), model)
    assert made and again and again.data_version == made.data_version
    told = [commit.message for commit in store.log()]
    assert told.count("irises/checkpoints") == 1, "what was published is not published again"
    assert told.count("irises/trained_model") == 2, "one was taken away above"


def test_the_run_after_a_killed_fresh_one_goes_on_with_its_session(tmp_path: Path) -> None:
    world = World(tmp_path).plant(irises)
    killed = begin(world, "run", "irises", "--fresh", "--through", "trained_model")
    sessions = world.settings.cache / "sessions"
    while not (begun := list(sessions.glob("irises-train-*/attempts/1/request.json"))):
        assert not killed.over(), killed.said()
        time.sleep(0.05)
    killed.process.send_signal(signal.SIGKILL)
    killed.ends(-signal.SIGKILL)
    said = world.cli("run", "irises", "--through", "trained_model")
    assert "the fresh training that was interrupted continues" in said
    assert list(sessions.glob("irises-train-*")) == [begun[0].parents[2]]
    assert "continues" not in world.cli("run", "irises", "--through", "trained_model")
