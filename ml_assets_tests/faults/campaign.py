"""One round: the work goes on to its release while faults strike, and is held to the invariants."""

import math
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from ml_assets_tests.faults.injections import Command, Harm, Work, at_work
from ml_assets_tests.faults.invariants import result, same_result, violations
from ml_assets_tests.faults.matrix import ARENAS, DURING_TRAINING, OFTEN
from ml_assets_tests.faults.places import PLACES, Place, settled
from ml_assets_tests.faults.progress import Pace, Progress
from ml_assets_tests.faults.results import SILENT, Played, Strike, sentence
from ml_assets_tests.worlds.processes import below

PAIRS = 0.7
"""Share of moments at which a second fault strikes while the first is being survived."""
STRIKES = 48
"""Faults that a round draws at most, each once or twice, or six times if it ends no process; those
that find nothing to harm before its end do not strike."""
ASKED_AT_MOST = 3 * STRIKES
"""Times that the command is given: a person, or a schedule, gives it again."""
PATIENCE = 720.0
"""Seconds in which the work has to get on, or its round is over: ranks that begin have 300, and a
sensor waits eight minutes before it asks for a fifth run."""
CRASH = "the round itself ended"
_YOUNG = 15.0
"""Seconds in which the interpreter and its modules load, beside other rounds on the same cores: no
program can answer a signal yet."""
_BETWEEN_LOOKS = 0.1
_WAITS_FOR_A_HIT = 5.0
"""Seconds."""


@dataclass(frozen=True)
class Undisturbed:
    """What comes of the work when nothing strikes, and how long it takes."""

    result: dict[str, Any]
    seconds: float
    pace: Pace


@cache
def undisturbed(arena: str, folder: Path) -> Undisturbed:
    """The measure of a round: made once.

    Raises:
        AssertionError: the work fails by itself.
    """
    with PLACES[arena](folder / f"undisturbed-{arena}") as place:
        began = time.monotonic()
        with closing(Round(place, random.Random(0))) as one:
            one.go_on(lambda: False)
        assert len(place.said()) == 1 and not one.broken, place.said()[0][-3000:]
        took = time.monotonic() - began
        history = settled(place)
        found = violations(history)
        assert found == [] and "orphan" not in history.refs.values(), found
        pace = Pace()
        pace.learn(one.progress.reached)
        return Undisturbed(result(history), took, pace)


def play(
    arena: str,
    seed: int,
    folder: Path,
    only: str | None = None,
    until: float = math.inf,
    pairs: float = PAIRS,
) -> Played:
    """One round; the faults, their moments and whom they strike are drawn by the seed.

    Args:
        folder: for this campaign; the round's own is deleted when nothing broke.
        only: the one fault to draw, where somebody looks for it.
        until: nothing strikes later than this; the work goes on to its end.
        pairs: share of moments at which two faults strike.
    """
    measure = undisturbed(arena, folder)
    draw = random.Random(f"{arena} {seed}")
    names = sorted(ARENAS[arena])
    seldom = 1 if OFTEN.intersection(names) else 2
    counts = [6 if name in OFTEN else seldom for name in names]
    drawn = draw.sample(names, min(STRIKES, sum(counts)), counts=counts)
    drawn.sort(key=lambda name: name not in DURING_TRAINING)  # the others strike at other times
    drawn = [only] if only else drawn
    place_folder = folder / f"{arena}-{seed}"
    with (
        PLACES[arena](place_folder) as place,
        closing(Round(place, draw, drawn, until, pairs)) as one,
    ):
        try:
            one.play(measure)
            broken = [*one.broken, *_broken(place, measure)]
        except Exception as error:  # what struck until then is told all the same
            broken = [crash(error)]
        if broken:
            place.keep()
    one.judge(measure.pace)
    played = Played(arena, seed, one.struck, broken)
    if played.held:
        shutil.rmtree(place_folder, ignore_errors=True)
    return played


def crash(error: Exception) -> str:
    """What is told of a round that ended in an error of the matrix itself; its stack is printed."""
    traceback.print_exception(error)
    return f"{CRASH}: {type(error).__name__}: {error}"[:500]


def _broken(place: Place, measure: Undisturbed) -> list[str]:
    place.calm()
    history = settled(place)
    if history.leftovers:
        place.collect()
        history = place.history(at_end=True)
    found = [f"{name}: {what}" for name, what in violations(history)]
    try:
        if not same_result(history, measure.result):
            found.append("the result is not that of an undisturbed run")
    except LookupError:
        found.append("nothing was released")
    return found


@dataclass
class _Group:
    """Faults that strike at one time: one, or a second one while the first is being survived."""

    said: tuple[int, int]
    """Where the output was before: command and byte."""
    again: int
    """Steps taken again until then."""
    strikes: list[Strike] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)


class Round:
    """The work of one place, from its first command to its release.

    Args:
        waiting: faults that are to strike, in this order, each when there is what it harms.
        until: they strike no more after this.
        pairs: share of moments at which a second one strikes.
    """

    def __init__(
        self,
        place: Place,
        draw: random.Random,
        waiting: list[str] | None = None,
        until: float = math.inf,
        pairs: float = PAIRS,
    ) -> None:
        self.place, self._draw, self._waiting = place, draw, list(waiting or ())
        self._until, self._pairs = until, pairs
        self.struck: list[Strike] = []
        self.broken: list[str] = []
        self._asked = 0
        self._moments: list[float] = []
        self.progress = Progress(place.world.root / "state", place.published)
        self._began = time.monotonic()
        self._begin()

    def play(self, measure: Undisturbed) -> None:
        """Strike again and again, each time when the work has got over what struck before.

        The moments are drawn from the way that the work goes, not from the time that it takes.
        """
        end = measure.seconds
        count = math.ceil(len(self._waiting) / (1 + self._pairs))
        moments = [self._draw.uniform(0, end) for _ in range(count)]
        for moment in sorted(moments):
            group = self._struck_at(measure, moment)
            if not group.strikes:
                return
            if self._draw.random() < self._pairs and self._pause(self._draw.uniform(0, 3)):
                self._strike(group)
            if not self._got_over(group):
                return
        self.go_on(lambda: False)

    def _struck_at(self, measure: Undisturbed, moment: float) -> _Group:
        """Go on to this moment, and to the next one at which a fault finds what it harms.

        Returns:
            what struck; nothing where all was made before.
        """
        group, way = _Group(self._heard(), self.progress.again), measure.pace.way
        self.go_on(
            lambda: (
                bool(self._waiting)
                and self.progress.position(way) >= moment
                and self._strike(group)
            )
        )
        return group

    @property
    def _released(self) -> bool:
        return "ended" in self.progress.reached

    def _pause(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        return self.go_on(lambda: time.monotonic() > until)

    def go_on(self, until: Callable[[], bool]) -> bool:
        """Let the work go on until then; a command that ended badly is given again.

        Returns:
            whether there is still work: False once all is made.
        """
        while not until():
            if self._work.over() and self._ended():
                return False
            self.progress.look()
            self._work.listen()
            since = max(self.progress.newest, self._work.command.begun, *self._moments[-1:])
            if time.monotonic() - since > PATIENCE:
                self.broken.append(f"nothing went on for {PATIENCE:.0f} s")
                (self.place.world.root / "stalled").write_text(at_work())
                self.progress.ended()
                return False
            time.sleep(_BETWEEN_LOOKS)
        return not self._released

    def _begin(self) -> None:
        self._asked += 1
        place = self.place
        self._work = Work(
            place.world,
            place.begin(),
            self._draw,
            place.cluster,
            place.store,
            place.lake,
            place.database,
            made=_seldom(place.made) if place.serves else None,
        )

    # --- faults -----------------------------------------------------------------------------------

    def _strike(self, group: _Group) -> bool:
        """Do the first of the waiting faults that finds what it harms; whether one did harm."""
        self.progress.look()
        if time.monotonic() > self._until:
            self._waiting.clear()
        for name in self._waiting:
            now = time.monotonic()
            harm = ARENAS[self.place.arena][name](self._work)
            if not harm:
                continue
            harm = harm if isinstance(harm, Harm) else Harm()
            self._waiting.remove(name)
            if not self._hits(harm, now + _WAITS_FOR_A_HIT):
                harm.end()
                self._waiting.append(name)
                return False
            group.strikes.append(Strike(name, round(now - self._began, 2)))
            group.harms.append(harm)
            self.struck.append(group.strikes[-1])
            self._moments.append(now)
            return True
        return False

    def _hits(self, harm: Harm, until: float) -> bool:
        self.go_on(lambda: harm.hit() or time.monotonic() > until)
        return harm.hit()

    def _got_over(self, group: _Group) -> bool:
        """Wait until the work is further than it ever was, and hold it to what always holds.

        Returns:
            whether there is still work.
        """
        last = self._moments[-1]

        def over() -> bool:
            return all(harm.over() for harm in group.harms) and self.progress.newest > last

        goes_on = self.go_on(over)
        for harm in group.harms:
            harm.end()
        for strike in group.strikes:
            strike.together = len(group.strikes)
            strike.seen = sentence(self._said_since(group.said))
            if strike.together == 1:
                strike.steps = self.progress.again - group.again
        self._look_midway()
        return goes_on

    def judge(self, pace: Pace) -> None:
        """Say what each fault cost that struck alone; learn from where nothing struck."""
        reached = self.progress.reached
        for strike, moment in zip(self.struck, self._moments, strict=True):
            lost = pace.lost(reached, moment) if strike.together == 1 else None
            strike.seconds = None if lost is None else round(lost, 1)
        pace.learn(reached, self._moments)

    def _look_midway(self) -> None:
        history = self.place.history()
        spoken = tuple(text for text in history.said if text)  # one that begins says nothing yet
        found = violations(replace(history, said=spoken), midway=True)
        broken = [*self._work.broken, *(f"{name}: {what}" for name, what in found)]
        self._work.broken.clear()
        if self.struck:
            self.struck[-1].broken += [one for one in broken if one not in self.struck[-1].broken]

    # --- commands ---------------------------------------------------------------------------------

    def _ended(self) -> bool:
        """Take note of a command that ended. It is begun again unless all is made, or another
        command that does the same is under way: then that one is the work."""
        work = self._work
        file, others = work.command.said, work.same_work() if work.command.poll() else []
        code = work.command.wait() if others else self._end()
        if code == 0 and not self.place.waits_for_mlflow():
            if work.made is not None:  # a server, which may have just begun: ended by us
                _grant_silence(file)
            self.progress.look()
            self.progress.ended()
            return True
        young = work.command.begun + _YOUNG > (self._moments or [0.0])[-1]
        silent = signal.SIGKILL, *((signal.SIGTERM, signal.SIGINT) if young else ())
        beside = () if others else (one.said for one in work.others)  # ended by us
        _grant_silence(*beside, *((file,) if -code in silent else ()))
        self._look_midway()
        if others:
            rest = [one for one in work.others if one is not others[0]]
            self._work = replace(work, command=others[0], others=rest)
            return False
        if self._asked == ASKED_AT_MOST:
            said = file.read_text(errors="replace")[-300:]
            self.broken.append(f"{ASKED_AT_MOST} commands did not release a model: {said}")
            self.progress.ended()
            return True
        self._begin()
        return False

    def _end(self) -> int:
        """Wait for what works beside the command, too; a server that made all is told to end."""
        work, made = self._work, bool(self._work.made and self._work.made())
        for command in [work.command, *work.others]:
            if work.made is not None:
                with suppress(psutil.NoSuchProcess):
                    command.terminate()
            try:
                command.wait(PATIENCE)
            except psutil.TimeoutExpired:
                self._kill(command)
        return 0 if made else work.command.wait() or int(work.made is not None)

    def close(self) -> None:
        """End what still works, where the round itself is broken off."""
        for command in [self._work.command, *self._work.others]:
            if command.poll() is None:
                self._kill(command)

    def _kill(self, *commands: Command) -> None:
        for command in commands or (self._work.command,):
            for process in [command, *below(command.pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            command.wait()

    # --- what people see --------------------------------------------------------------------------

    def _heard(self) -> tuple[int, int]:
        outputs = self.place.outputs()
        return len(outputs) - 1, outputs[-1].stat().st_size

    def _said_since(self, at: tuple[int, int]) -> str:
        first, *later = self.place.outputs()[at[0] :]
        texts = [first.read_bytes()[at[1] :], *(file.read_bytes() for file in later)]
        return b"\n".join(texts).decode(errors="replace")


def _grant_silence(*files: Path) -> None:
    for file in files:
        if not file.stat().st_size:
            file.write_text(f"{SILENT}\n")


def _seldom(ask: Callable[[], bool], seconds: float = 1.0) -> Callable[[], bool]:
    """What is asked at most once in so many seconds, and answered as before in between."""
    known = [-seconds, False]

    def answer() -> bool:
        if time.monotonic() - known[0] > seconds:
            known[:] = time.monotonic(), ask()
        return bool(known[1])

    return answer
