"""The faults that ``ml-assets demo --plant`` plants, and the guard that catches each."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_assets.actions.read_table import read_table
from ml_assets.adapters.execute import Tell
from ml_assets.assets.feature_set.parity import CHECK_NAME
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.automation.resume_drill import CHECK
from ml_assets.errors import StorageError, counted
from ml_assets.extras.demo.sandbox import InjectionResult, Sandbox, refused_by
from ml_assets.records.load_release import find_release
from ml_assets.settings import Settings
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.layout import Address, published_partitions, read_record
from ml_assets.store.snapshots import MAIN

LEAKING = '''

import polars as pl

_honest = build


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """PLANTED: with the flight's own delay, which nobody knows before it has landed."""
    delay = pl.col("arr_delay").cast(pl.Float64).alias("own_delay")
    leak = tables["arrivals"].select(*FLIGHT, delay)
    return _honest(tables, window).join(leak, on=FLIGHT, how="left", maintain_order="left")
'''
"""Goes to the end of the features' file, where its ``build`` replaces the honest one."""


def plant_leak(sandbox: Sandbox) -> InjectionResult:
    """Plant a feature that knows how late the flight will be: no feature row is published.

    Replayed at its moment, it comes out otherwise. Were that guard away, the next one would find
    it: a model that is too good to be true.
    """
    sandbox.prepare(_with_the_feature)
    function = sandbox.declared / "features.py"
    function.write_text(function.read_text() + LEAKING)
    ran = sandbox.command("run", sandbox.pipeline)
    said = next((line for line in ran.lines if "'own_delay' of" in line), "").strip()
    store, features = sandbox.place().store, Address(sandbox.pipeline, "feature_set")
    published = published_partitions(store, store.resolve("main"), features)
    nothing = not published and sandbox.released() is None
    return InjectionResult(
        bool(said) and ran.code == _STEP_FAILED and nothing,
        "the feature own_delay: how late the very flight arrives, joined without asking when that"
        " is known",
        f"the check {CHECK_NAME} of feature_set: {said}" if said else f"no check, code {ran.code}",
        "no feature row is published, so nothing is trained"
        if nothing
        else f"{len(published)} WEEKS OF FEATURES ARE PUBLISHED",
        sandbox.look(f"run {sandbox.pipeline}"),
    )


def _with_the_feature(spec: dict[str, Any]) -> None:
    spec["features"]["numeric"].append("own_delay")


_STEP_FAILED = 1
"""Exit code of a run in which a step failed."""


_RATE = 1e-7


def plant_weak_model(sandbox: Sandbox) -> InjectionResult:
    """Train with a learning rate of nothing, and see the floor refuse the model."""
    sandbox.prepare(_that_learns_nothing)
    ran = sandbox.command("run", sandbox.pipeline)
    held, caught = refused_by(sandbox, "quality_floor", ran)
    return InjectionResult(
        held,
        f"one epoch with a learning rate of {_RATE}: the weights stay as they were drawn",
        caught,
        "nothing is released" if sandbox.released() is None else "THE MODEL IS RELEASED",
        sandbox.look(f"status {sandbox.pipeline}", f"models experiments {sandbox.pipeline}"),
    )


def _that_learns_nothing(spec: dict[str, Any]) -> None:
    spec["training"] |= {"epochs": 1, "learning_rate": _RATE}


SOURCE = "flights"
_WEEKS = 3
_BROKEN = 5
"""Rows of the second week; up to one in a thousand may be out of range."""
Row = dict[str, str]


def plant_bad_rows(sandbox: Sandbox) -> InjectionResult:
    """Break rows of two weeks as they land, and see where every row went."""
    sandbox.prepare()
    landing = sandbox.own_sources(_WEEKS) / "landing" / SOURCE
    _, some, many = sorted(landing.glob("*.csv"))
    rows = {week.stem: _spoil(week, how) for week, how in ((some, _few), (many, _most))}
    ran = sandbox.command("run", sandbox.pipeline, "--through", "validated_table")
    published = _published(sandbox, some.stem)
    quarantined = _kept(sandbox, "quarantine", some.stem)
    rejected = _kept(sandbox, "rejected", many.stem)
    nothing = _published(sandbox, many.stem) is None
    held = (
        published == rows[some.stem] - _BROKEN
        and len(quarantined) == _BROKEN
        and nothing
        and len(rejected) == rows[many.stem]
        and ran.code == 1
    )
    reason = ", ".join(sorted(set(quarantined))) or "no reason"
    return InjectionResult(
        held,
        f"in the week {some.stem} {_BROKEN} flights of a negative distance, in the week"
        f" {many.stem} half of them from an airport that there is not",
        f"the contract of {SOURCE}: {counted(len(quarantined), 'row')} quarantined for {reason}",
        f"{some.stem}: {published or 0:,} of {counted(rows[some.stem], 'row')} published;"
        f" {many.stem}: {'nothing' if nothing else 'SOMETHING'} published,"
        f" {counted(len(rejected), 'row')} kept",
        sandbox.look(
            f"data read {sandbox.pipeline}/quarantine/{SOURCE} --partition {some.stem}",
            f"data read {sandbox.pipeline}/rejected/{SOURCE} --partition {many.stem}",
        ),
    )


def _few(number: int, row: Row) -> None:
    if number < _BROKEN:
        row["distance"] = "-100"


def _most(number: int, row: Row) -> None:
    if number % 2:
        row["origin"] = "ZZZ"  # no airport of New York


def _spoil(file: Path, change: Callable[[int, Row], None]) -> int:
    """Change rows of a file in place; how many it has."""
    with file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for number, row in enumerate(rows):
        change(number, row)
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def _published(sandbox: Sandbox, week: str) -> int | None:
    """Rows of a week's validated table; None where there is none."""
    store, address = (
        sandbox.place().store,
        Address(sandbox.pipeline, "validated_table", SOURCE, week),
    )
    record = read_record(store, store.resolve(MAIN), address)
    return record.rows if record else None


def _kept(sandbox: Sandbox, where: str, week: str) -> list[str]:
    """The reasons of the rows that were kept back, one each."""
    key = f"{sandbox.pipeline}/{where}/{SOURCE}"
    try:
        table = read_table(key, week, settings=sandbox.settings)
    except StorageError:
        return []
    return table.collect()[REASON].to_list()


_MANIFEST = "model.json"
_FLOOR = 0.55
"""The lowest AUC: what a network learns of five weeks in one epoch is enough."""


def plant_tampered_model(sandbox: Sandbox) -> InjectionResult:
    """Release a model, change a byte of its weights, and try to predict with it."""
    sandbox.prepare(_that_is_released)
    released = sandbox.command("run", sandbox.pipeline)
    digest = sandbox.released()
    if released.code or digest is None:
        return _without_a_release(sandbox)
    sound = find_release(sandbox.place())  # it could be used: the byte alone is at fault
    folder = Path(sound.model.uri)
    weights = (
        folder / ModelManifest.model_validate_json((folder / _MANIFEST).read_bytes()).weights.path
    )
    place = flip_a_byte(weights)
    sandbox.tell(f"byte {place:,} of {weights} is changed")
    rows = sorted((sandbox.sources / "landing" / "flights").glob("*.csv"))[0]
    predicted = sandbox.command("predict", sandbox.pipeline, str(rows))
    status = sandbox.command("status", sandbox.pipeline)
    said = predicted.line("error:").removeprefix("error: ").replace(f"{folder}/", "")
    told = status.line("cannot be used")
    return InjectionResult(
        predicted.code != 0 and digest[:12] in said and bool(told),
        f"one changed byte in the weights of the released model {digest[:12]}",
        f"the digest, when predict loaded it: {said}" if said else "nothing: it was predicted with",
        f"status {'says so too' if told else 'SAYS NOTHING OF IT'}; the model is used nowhere",
        sandbox.look(f"status {sandbox.pipeline}", f"predict {sandbox.pipeline} {rows}"),
    )


def flip_a_byte(file: Path) -> int:
    """Change the byte in the middle of a file; where that is."""
    data = bytearray(file.read_bytes())
    place = len(data) // 2
    data[place] ^= 0xFF
    file.chmod(0o644)
    file.write_bytes(data)
    return place


def _that_is_released(spec: dict[str, Any]) -> None:
    spec["training"]["epochs"] = 1
    spec["gates"] = [
        {"kind": "bound", "name": "quality_floor", "metric": "auc", "at_least": _FLOOR},
        {"kind": "leak_alarm", "metric": "auc", "bound": 0.80},
    ]


def _without_a_release(sandbox: Sandbox) -> InjectionResult:
    planted = "nothing: the model that was to be changed was not released"
    return InjectionResult(False, planted, "nothing", "the run failed", sandbox.look())


def plant_killed_rank(sandbox: Sandbox) -> InjectionResult:
    """Train twice, kill a process of the second, and compare the weights."""
    sandbox.prepare()
    made = sandbox.command("run", sandbox.pipeline, "--through", "training_set")
    sandbox.tell("two short trainings follow, without output; a process of the second is killed")
    drilled = sandbox.command("ops", "drill", sandbox.pipeline)
    said = drilled.line(f"{CHECK}: ").partition(f"{CHECK}: ")[2]
    held = made.code == 0 and drilled.code == 0 and "bit for bit" in said
    return InjectionResult(
        held,
        "SIGKILL to one process of a training of two, at a random step",
        f"torchrun and the checkpoints: {said or 'nothing'}",
        "resumed with the same weights" if held else "NOT RESUMED WITH THE SAME WEIGHTS",
        sandbox.look(f"ops drill {sandbox.pipeline}"),
    )


PLANTS: Mapping[str, Callable[[Sandbox], InjectionResult]] = {
    "leak": plant_leak,
    "weak-model": plant_weak_model,
    "bad-rows": plant_bad_rows,
    "tampered-model": plant_tampered_model,
    "killed-rank": plant_killed_rank,
}


def plant(
    name: str, settings: Settings, original: Path, world: Path, tell: Tell
) -> InjectionResult:
    """Plant one fault in a place of its own, ``planted/<name>`` of the state folder.

    Args:
        original: folder of the pipeline that is copied; it stays as it is, and so do its releases.
        world: the demo's outside world; what is missing of it is laid out.
    """
    return PLANTS[name](Sandbox(name, settings.home / "planted" / name, original, world, tell))


def sentences(outcome: InjectionResult) -> list[str]:
    """Return what a person is told at the end."""
    return [
        f"planted:  {outcome.planted}",
        f"caught by {outcome.caught}",
        f"now:      {outcome.after}",
        "look:     " + "\n          ".join(outcome.look),
        "THE GUARD HELD" if outcome.held else "THE GUARD DID NOT HOLD",
    ]
