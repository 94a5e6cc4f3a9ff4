"""One round: a pipeline runs to its release while faults strike, and is held to the invariants."""

import contextlib
import json
import random
import re
import shutil
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from ml_assets_tests.faults.history import History, violations
from ml_assets_tests.faults.injections import Work, below
from ml_assets_tests.faults.matrix import ARENAS
from ml_assets_tests.faults.places import PLACES, Place

ASKED_AT_MOST = 8
"""Times that the command is given: a person, or a schedule, gives it again."""
PATIENCE = 300.0
"""Seconds that one command may take."""
_EXPLAINS = re.compile(
    r"\b(lost|killed|died|dead|interrupted|started again|resumes?|cannot be|refused|no space"
    r"|stopped|signal|full|evicted|preempted|another command|is away|already)\b"
)
_MEASURED = {"latency", "throughput", "memory"}
"""Gates whose values are those of the machine, at that moment."""


@dataclass
class Strike:
    """One fault that struck."""

    fault: str
    arena: str
    seed: int
    at: float
    """Seconds after the command that it struck was begun."""
    together: int = 1
    """Faults that struck in this round."""
    seconds: float | None = None
    """That the round took longer than an undisturbed one; None where several struck."""
    broken: list[str] = field(default_factory=list)
    """What did not hold at the end of its round."""
    seen: str = ""
    """The sentence that people were shown."""


@dataclass(frozen=True)
class Undisturbed:
    """What comes of the work when nothing strikes, and how long it takes."""

    result: dict[str, Any]
    seconds: float


@cache
def undisturbed(arena: str, folder: Path) -> Undisturbed:
    """The measure of a round: made once.

    Raises:
        AssertionError: the work fails by itself.
    """
    with PLACES[arena](folder / f"undisturbed-{arena}") as place:
        began = time.monotonic()
        _ask_until_released(place, random.Random(0), [], 0)
        assert len(place.said()) == 1, place.said()[0][-3000:]
        took = time.monotonic() - began
        found = violations(_settled(place))
        assert found == [], found
        return Undisturbed(result(place.history()), took)


def result(history: History) -> dict[str, Any]:
    """What is the same however it was reached: versions of the data, the model, the gates."""
    versions = {
        path: history.file(path)["data_version"]
        for path in history.below("records/")
        if path.split("/")[2] not in ("evaluation_report", "released_model", "checkpoints")
    }
    decided = [line["decision"]["gates"] for line in history.ledgers["irises"] if line["decision"]]
    gates = [
        {
            gate["name"]: (gate["value"], gate["passed"])
            for gate in each
            if gate["name"] not in _MEASURED
        }
        for each in decided[-1:]
    ]
    return {"versions": versions, "gates": gates}


def play(arena: str, seed: int, folder: Path, only: str | None = None) -> list[Strike]:
    """One round; the faults and their moments are drawn by the seed.

    Args:
        folder: for this campaign; the round's own is deleted when nothing broke.
        only: the one fault to draw, where somebody looks for it.
    """
    measure = undisturbed(arena, folder)
    draw = random.Random(f"{arena} {seed}")
    names = [only] if only else draw.sample(sorted(ARENAS[arena]), draw.choice([1, 1, 2, 3]))
    moments = sorted(draw.uniform(0, measure.seconds) for _ in names)
    place_folder = folder / f"{arena}-{seed}"
    with PLACES[arena](place_folder) as place:
        began = time.monotonic()
        struck = _ask_until_released(place, draw, list(zip(moments, names, strict=True)), seed)
        took = time.monotonic() - began
        broken = _broken(place, measure)
    for strike in struck:
        strike.together = len(struck)
        strike.broken = [*strike.broken, *broken]
        strike.seconds = max(0.0, took - measure.seconds) if len(struck) == 1 else None
    if not any(strike.broken for strike in struck):
        shutil.rmtree(place_folder, ignore_errors=True)
    return struck


def _broken(place: Place, measure: Undisturbed) -> list[str]:
    history = _settled(place)
    found = [f"{name}: {what}" for name, what in violations(history)] + place.left_in_cluster()
    try:
        if result(history) != measure.result:
            found.append("the result is not that of an undisturbed run")
    except LookupError:
        found.append("nothing was released")
    return found


def _settled(place: Place, seconds: float = 45) -> History:
    """The history once what ends by itself has ended, or after this time.

    A code location of Dagster's ends twenty seconds after its last sign of life from a daemon.
    """
    until = time.monotonic() + seconds
    while True:
        history = place.history()
        quiet = not history.processes and not place.left_in_cluster()
        if quiet or time.monotonic() > until:
            return history
        time.sleep(0.5)


def _ask_until_released(
    place: Place, draw: random.Random, planned: list[tuple[float, str]], seed: int
) -> list[Strike]:
    """Give the command until it ends well; the faults strike on the way."""
    struck: list[Strike] = []
    said = ""
    for _ in range(ASKED_AT_MOST):
        work = Work(
            place.world,
            place.begin(),
            draw,
            place.cluster,
            place.store,
            place.lake,
            place.database,
            made=place.made if place.serves else None,
        )
        file = place.outputs()[-1]
        now = _strike(work, place.arena, planned, seed)
        code = _end(work)
        planned = planned[len(now) :]
        if code == -signal.SIGKILL and not file.stat().st_size:
            file.write_text("(killed before it said a word)\n")
        said = file.read_text(errors="replace")
        if now:
            now[-1].broken += work.broken
        for strike in now:
            strike.seen = _sentence(said)
        half = violations(place.history(), midway=True)
        struck += now
        if half and struck:
            struck[-1].broken += [f"{name}: {what}" for name, what in half]
        if code == 0:
            return struck
    if struck:
        struck[-1].broken.append(f"{ASKED_AT_MOST} commands did not release a model: {said[-300:]}")
    return struck


def _strike(work: Work, arena: str, planned: list[tuple[float, str]], seed: int) -> list[Strike]:
    """Strike each fault at its moment, or as soon as there is what it harms."""
    began, struck = time.monotonic(), []
    for moment, name in planned:
        while not work.over() and time.monotonic() - began < PATIENCE:
            passed = time.monotonic() - began
            if passed >= moment and ARENAS[arena][name](work):
                struck.append(Strike(name, arena, seed, round(passed, 2)))
                break
            time.sleep(0.05)
        else:
            return struck
    return struck


def _end(work: Work) -> int:
    """Wait for the command and those beside it; what works for too long is killed."""
    if work.made is not None:
        return _end_of_server(work)
    codes = []
    for command in [work.command, *work.others]:
        try:
            codes.append(command.wait(PATIENCE))
        except psutil.TimeoutExpired:
            for process in [command, *below(command)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            codes.append(command.wait())
    return codes[0]


def _end_of_server(work: Work) -> int:
    """Let it serve until its work is made, then tell it to end; 0: the work is made."""
    until = time.monotonic() + PATIENCE
    while not work.over() and time.monotonic() < until:
        time.sleep(1)
    assert work.made is not None
    made = work.made()
    for command in [work.command, *work.others]:
        with contextlib.suppress(psutil.NoSuchProcess):
            command.terminate()
    for command in [work.command, *work.others]:
        command.wait(60)
    return 0 if made else work.command.wait() or 1


def _sentence(said: str) -> str:
    """The last line that explains it; empty where people had to be told nothing."""
    lines = [line.strip() for line in said.splitlines()]
    shown = (line for line in lines if not line.startswith(("[pass]", ">", "warning: overfitting")))
    return ([line for line in shown if _EXPLAINS.search(line)] or [""])[-1][:300]


def remember(file: Path, struck: list[Strike]) -> None:
    """Append what struck to a file of results, a line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as results:
        results.writelines(json.dumps(vars(strike)) + "\n" for strike in struck)


def recall(file: Path) -> list[Strike]:
    return [Strike(**json.loads(line)) for line in file.read_text().splitlines()]
