"""A release, a rollback and a recall at once, each a command as people type it.

One story comes of it, and nothing that was recalled is released after it.
"""

import gc
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]

LAX = irises.SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
RELEASE = ("run", "irises")
BACK = ("release", "rollback", "irises", "--author", "ann", "--reason", "it harms")
DONE, ERROR, REFUSED = 0, 1, 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two models were in production, one after the other; a third one waits for its gates."""
    found = World(tmp_path_factory.mktemp("races")).plant(irises)
    (found.pipelines / "irises" / "defs.yaml").write_text(LAX)
    found.cli("run", "irises")
    irises.write_flowers(found.sources, "virginica")
    found.cli("run", "irises")
    (found.root / "second").write_text(raw(found))
    irises.write_flowers(found.sources, "versicolor")
    found.cli("run", "irises", "--through", "evaluation_report")
    (found.root / "third").write_text(raw(found))
    gc.collect()  # the stores of this process close their files now, not while they are copied
    shutil.copytree(found.root / "state", found.root / "before")
    return found


def raw(world: World) -> str:
    """The version of the rows that were read last."""
    store = open_snapshots(world.settings.snapshots)
    record = read_record(store, store.resolve(), Address("irises", "raw_snapshot", "flowers"))
    assert record is not None
    return record.data_version


def at_once(world: World, commands: Sequence[tuple[str, ...]], seed: int) -> list[tuple[int, str]]:
    """Exit code and errors of each, begun within a second and a half of each other."""
    draw, running = random.Random(seed), list[subprocess.Popen[str]]()
    for place in draw.sample(range(len(commands)), len(commands)):
        command = [sys.executable, "-m", "ml_assets.cli.main", *commands[place]]
        running.append(
            subprocess.Popen(
                command,
                env=world.environment,
                cwd=world.root,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        time.sleep(draw.uniform(0, 1.5))
    said = [one.communicate(timeout=240)[1] for one in running]
    return [(one.returncode, text) for one, text in zip(running, said, strict=True)]


def ledger(world: World) -> tuple[LedgerEntry, ...]:
    return read(open_snapshots(world.settings.snapshots), "irises")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("recalled", ["second", "third"])
def test_whatever_comes_first_the_ledger_tells_one_story(
    world: World, recalled: str, seed: int
) -> None:
    """The model in production is recalled, or the one that is being released."""
    shutil.rmtree(world.root / "state")
    shutil.copytree(world.root / "before", world.root / "state")
    bad = (world.root / recalled).read_text()
    recall = ("data", "recall", bad, "--author", "bob", "--reason", "the scale was off")
    ended = at_once(world, [RELEASE, BACK, recall], seed)
    assert {code for code, _ in ended} <= {DONE, ERROR, REFUSED}, ended
    assert not [text for _, text in ended if "Traceback" in text]

    entries = ledger(world)
    assert problems(entries) == ()
    told = [entry.seq for entry in entries if entry.kind == "recall"]
    reached = {entry.model for entry in entries if entry.kind == "recall"}
    moved = {e.model for e in entries if told and e.kind == "stage" and e.seq > told[0]}
    assert not reached & moved, "what was recalled is not released after it"

    serves = champion(entries) not in reached
    # in processes of their own: this one may hold the MLflow database that was replaced
    world.streams("release", "history", "irises")  # whoever was killed or overtaken, it is told
    told_of = world.streams("release", "verify", "irises", code=DONE if serves else REFUSED)
    said = told_of.stdout
    assert serves or re.search("refused  production: .* is recalled by bob", said)
    assert "mlflow: its aliases lead to the models of the ledger" in said
