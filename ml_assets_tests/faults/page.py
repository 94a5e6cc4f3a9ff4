"""docs/faults.md: what struck how often, what it cost, and what did not hold. Written by nobody."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from ml_assets.errors import counted
from ml_assets_tests.faults.invariants import INVARIANTS
from ml_assets_tests.faults.matrix import ARENAS, WANTED, WHERE
from ml_assets_tests.faults.results import FOLDERS, Played, Strike

_EPOCH = re.compile(r"epoch \d+")
_WORKS = "a process still works: "
_NO_SENTENCE = "debug_error_string", "Traceback", "«W", "overfitting", "\x1b"
_CAME_OF_IT = (
    *("the result is not that", "still work", "is still START", "was left behind"),
    "nothing was released",
)
_GAVE_UP = "nothing went on for"
_NOT_YET = "Not explained yet (issue 22)."
_CONSEQUENCE = "What came of the line above: the round was given up in the midst of its work."
KNOWN = (
    (
        "served 3110 cd672bc",
        "said nothing",
        "A fault of the checker, mended since: it ended a second daemon itself, three seconds after"
        " that had begun, and took its silence for the product's.",
    ),
    (
        "served 3124 cd672bc",
        "nothing went on for",
        "As it is meant: the processes of one model's runs had died six times in twelve minutes, so"
        " its sensor waited eight minutes before it asked again, and the round was given up after"
        " seven. It asked then, and the model was released.",
    ),
    *(
        (
            f"cluster {seed} {commit}",
            "nothing went on for",
            "A run failed for its store (away, or with credentials that had expired), and its"
            " sensor waited for another source or other code. Mended since: it is asked for again.",
        )
        for seed, commit in ((1, "c477ddc"), (3, "c477ddc"), (4, "c477ddc"), (6, "1727862"))
    ),
    (
        "cluster 5 1727862",
        "mlflow_outbox",
        "What MLflow could not take was left to the next run, and none came. Mended since:"
        " house-keeping tells it.",
    ),
    (
        "cluster 4105 46fbf10",
        "was left out",
        "A fault of the checker, mended since: it counted the epochs of a drained pod before the"
        " last of its reports had come: the store's outages held them up until the result.",
    ),
    *(
        (
            f"{place} 20f5708",
            "said nothing",
            "A fault of the checker, mended since: the signal came less than three seconds after"
            " the program had begun. Its modules were still loading beside three other rounds, and"
            " the checker granted two.",
        )
        for place in (
            "postgres 5007",
            "served 5006",
            "served 5017",
            "postgres 5047",
            "cluster 5029",
        )
    ),
    *(
        (
            f"{place} da4a1e9",
            "said nothing",
            "A fault of the checker, mended since: the signal came six or seven seconds after the"
            " program had begun. Its modules were still loading beside three other rounds, and the"
            " checker granted five.",
        )
        for place in ("postgres 12007", "served 12024")
    ),
    (
        "cluster 5029 20f5708",
        "nothing went on for",
        "As it is meant: four runs in a row had failed for their store or its credentials, so the"
        " sensor waited eight minutes before it asked again, and the round was given up after"
        " seven. It asked then, and the model was released.",
    ),
    (
        "laptop 9000 6bb3aaa",
        "ended in a stack",
        "The disk was read-only for three seconds, and could be written again when the command"
        " looked why its database could not be. Mended since: it says that, and to run again.",
    ),
    *(
        (
            f"cluster {seed} 6bb3aaa",
            "nothing went on for",
            "The API server's token had expired when a new process of ours asked it for the first"
            " time. The run failed, and its sensor waited for another source or other code."
            " Mended since: it is asked for again, as for expired credentials of a store.",
        )
        for seed in (9011, 9018)
    ),
    (
        "postgres 9032 6bb3aaa",
        "said nothing",
        "A fault of the checker, mended since: a daemon had just begun and stood still when all"
        " was made, so it was told to end, and had said nothing.",
    ),
    *(
        (
            f"{place} 6bb3aaa",
            "was left out",
            "A fault of the checker, mended since: a pod's wrapper was killed, and its reports of"
            " the last second died with it. The checkpoint of those steps was there, the next"
            " attempt began with it, and the weights are those of an undisturbed round.",
        )
        for place in ("pods 9003", "cluster 9027")
    ),
    *(
        (
            f"postgres {seed} b218eaf",
            "failed with a bare OperationalError",
            "A fault of the checker, mended since: Dagster read its own database between two"
            " results of a step, in code that is none of ours, and Postgres was away. The run was"
            " asked for again.",
        )
        for seed in (16007, 16032)
    ),
    *(
        (
            f"cluster {seed} b218eaf",
            "nothing went on for",
            "As it is documented: a process was stopped (SIGSTOP) in its pod while it was alone, or"
            " read its state. The others, and the launcher, give it two hours then, and the round"
            " was given up after twelve minutes. The matrix stops processes in their steps since.",
        )
        for seed in (16011, 16012)
    ),
    *(
        (
            f"served {seed} b218eaf",
            "said nothing",
            "Not mended yet: the UI was told to end in the tenth of a second before it prints its"
            " addresses. It ended well, and without a word.",
        )
        for seed in (16046, 16057)
    ),
    (
        "laptop 9100 4526db1",
        "was left behind",
        "A fault of the matrix, mended since: it collected what killed processes left by a clock"
        " that it had put back two hours, so all of that was too young to be deleted.",
    ),
    (
        "laptop 9022 6bb3aaa",
        "ended in a stack",
        "A fault of the product, mended since: an error's stack held a cursor in the middle of its"
        " rows, and SQLite then refused what SQLAlchemy asks of each connection (`Error creating"
        " function`).",
    ),
    (
        "laptop 9040 6bb3aaa",
        "nothing went on for",
        "By its stacks, the command was told to end in the instant in which Dagster's event log had"
        " taken its lock. Dagster raises the end wherever the program is, so the lock stayed, and"
        " the run waited for it. Mended since: a signal is heard after the event is written.",
    ),
    (
        "laptop 9022 6bb3aaa",
        "the result is not that",
        "As it is meant: the checkpoint that was damaged was the best one. The run said so, and the"
        " next best one was judged and released.",
    ),
)
"""Place, seed and commit, what was found there, and what it was."""
HEAD = """\
# What was broken on purpose, and what came of it

Generated by `make faults`; no line is edited by hand. Each round makes a small pipeline from its
source to a release, by the real programs. Faults strike at random moments, alone or in pairs, each
time once the work has got over what struck before; a command that ends with an error is given
again. A fault counts when there was something that it harmed. The rounds happen in these places:

| where | what it is |
|---|---|
{places}

After each fault, and at the end of the round, a checker that shares no code with the product reads
the files, the databases and the processes, and holds them to these invariants. Drafts that killed
processes left are no break of them: at the end, `ml-assets ops gc` deletes them, as it does a day
later, and whatever is still there then is one.

{invariants}
- the result is that of an undisturbed run: versions of all data, the models' weights, every gate

{total}

| where | fault | struck | held | seconds lost, median | worst | steps again, median | worst \
| what people saw |
|---|---|---|---|---|---|---|---|---|
"""
TAIL = """
A fault is held when the round in which it struck broke nothing. Seconds, steps and what people saw
are of faults that struck alone. Seconds: how much longer the work took from the last thing that it
reached before the fault to the first new one after it, than where nothing struck; a command that
is begun again is in it. Steps again: taken, lost and taken again, as far as events and heartbeats
tell; a training of this pipeline has 240 (in pods and on Postgres 720), and saves every 20.
"""


BEFORE = """
## Campaigns before

Rounds of the commits that came before this one, and what they found.
A `+` behind a commit: the matrix had changed since and was not committed yet.

| commit | day | machine | rounds | faults | rounds that did not hold |
|---|---|---|---|---|---|
{commits}

"""


def write_page(played: Sequence[Played]) -> str:
    """The page of the newest commit's rounds, and what those before found; the oldest is first."""
    newest = played[-1].commit if played else None
    rounds = [one for one in played if one.commit == newest]
    before = [one for one in played if one.commit != newest]
    struck = [(one, strike) for one in rounds for strike in one.strikes]
    rows = [
        _row(arena, fault, [s for s in struck if (s[0].arena, s[1].fault) == (arena, fault)])
        for arena, faults in ARENAS.items()
        for fault in faults
    ]
    head = HEAD.format(
        places="\n".join(f"| {arena} | {WHERE[arena]} |" for arena in ARENAS),
        invariants="\n".join(f"- {name}" for name in INVARIANTS),
        total=_total(rounds, [strike for _, strike in struck]),
    )
    told = *_broken(rounds), *_missing(struck), *_found_before(before)
    return head + "\n".join(rows) + "\n" + TAIL + "".join(told)


def _total(rounds: Sequence[Played], strikes: Sequence[Strike]) -> str:
    if not rounds:
        return "No round was played yet."
    product = f" (product {rounds[-1].product})" if rounds[-1].product else ""
    where = f"Of commit {rounds[-1].commit}{product}, on {rounds[-1].day}, {rounds[-1].machine}"
    pairs = sum(strike.together > 1 for strike in strikes)
    struck = f"{counted(len(strikes), 'fault')} struck in {counted(len(rounds), 'round')}"
    return f"{where}: {struck}, {pairs} of them in pairs."


def _commits(rounds: Sequence[Played]) -> Iterator[str]:
    """A line for each tree that was struck, the newest last."""
    found: dict[tuple[str, str, str], list[Played]] = {}
    for one in rounds:
        found.setdefault((one.commit, one.day, one.machine), []).append(one)
    for where, together in found.items():
        faults = sum(len(one.strikes) for one in together)
        broken = sum(not one.held for one in together)
        yield f"| {' | '.join(map(str, (*where, len(together), faults, broken)))} |"


def _row(arena: str, fault: str, struck: Sequence[tuple[Played, Strike]]) -> str:
    held = sum(one.held for one, _ in struck)
    strikes = [strike for _, strike in struck]
    seconds = [strike.seconds for strike in strikes if strike.seconds is not None]
    steps = [strike.steps for strike in strikes if strike.steps is not None]
    cells = len(strikes), held, *_figures(seconds, ".1f"), *_figures(steps, ".0f")
    return "| " + " | ".join(map(str, (arena, fault, *cells, _cell(_seen(strikes))))) + " |"


def _figures(found: Sequence[float], form: str) -> tuple[str, str]:
    return (f"{median(found):{form}}", f"{max(found):{form}}") if found else ("-", "-")


def _seen(strikes: Sequence[Strike]) -> str:
    """The sentence that was shown most often, of faults that struck alone: of two at once nobody
    can tell which one it is about."""
    alone = [one.seen for one in strikes if one.together == 1]
    told = Counter(seen for seen in alone if seen and not seen.startswith(_NO_SENTENCE))
    return next(iter(told.most_common(1)), [""])[0]


def _cell(text: str) -> str:
    text = FOLDERS.sub("", text)
    short = text if len(text) <= 160 else text[:157] + "..."
    return "`" + short.replace("|", "/").replace("`", "'") + "`" if short else "-"


def _broken(rounds: Sequence[Played]) -> Iterator[str]:
    yield "\n## What did not hold\n\nEach was looked into as a part of issue 22.\n\n"
    broken = [one for one in rounds if not one.held]
    yield "" if broken else "Nothing.\n"
    for one in broken:
        last = ", ".join(f"{strike.fault} at {strike.at:.1f} s" for strike in one.strikes[-3:])
        faults = f"{len(one.strikes)} faults, the last of them: {last or 'none'}"
        yield f"- {one.arena}, seed {one.seed}, commit {one.commit} ({faults}):\n"
        for what in _told(one):
            yield f"  - {_cell(what)}{_why(one, what)}\n"


def _told(played: Played) -> Iterator[str]:
    """What did not hold, each once, where it was seen first; processes and epochs are counted."""
    seen = dict[str, str]()
    for strike in played.strikes:
        for what in strike.broken:
            seen.setdefault(what, strike.fault)
    alike = dict[str, list[str]]()
    for what, fault in seen.items():
        alike.setdefault(_EPOCH.sub("epoch", what), []).append(f"after {fault}: {what}")
    for first, *others in alike.values():
        yield first + (f" (and {counted(len(others), 'other epoch')})" if others else "")
    rest = [what for what in dict.fromkeys(played.broken) if what not in seen]
    working = [what for what in rest if _WORKS in what]
    yield from (what for what in rest if _WORKS not in what)
    if working:
        first = working[0].partition(_WORKS)[2]
        yield f"{counted(len(working), 'process', 'still work')}, the first: {first}"


def _why(played: Played, what: str) -> str:
    """What was found out about it."""
    where = f"{played.arena} {played.seed} {played.commit}"
    known = next((why for of, begin, why in KNOWN if of in where and begin in what), None)
    gave_up = any(_GAVE_UP in one for one in played.broken)
    if known is None and gave_up and any(part in what for part in _CAME_OF_IT):
        known = _CONSEQUENCE
    return f" {known or _NOT_YET}"


def _found_before(before: Sequence[Played]) -> Iterator[str]:
    """What earlier campaigns found: each reason once, with the rounds that it is of."""
    if not before:
        return
    yield BEFORE.format(commits="\n".join(_commits(before)))
    found: dict[str, list[str]] = {}
    for one in before:
        for why in dict.fromkeys(_why(one, what).strip() for what in _told(one)):
            found.setdefault(why, []).append(f"{one.arena} {one.seed}")
    found.pop(_CONSEQUENCE, None)
    yield from (f"- {why} ({', '.join(of)})\n" for why, of in found.items())


def _missing(struck: Sequence[tuple[Played, Strike]]) -> Iterator[str]:
    """What the matrix lacks: kinds without a fault, and faults that these rounds did not draw."""
    yield "\n## What is not injected\n\n"
    yield from (f"- {kind}\n" for kind, faults in WANTED.items() if not faults)
    known = {(one.arena, strike.fault) for one, strike in struck}
    waiting = [
        f"{arena}: {fault}"
        for arena, faults in ARENAS.items()
        for fault in faults
        if (arena, fault) not in known
    ]
    yield f"- not drawn in these rounds: {'; '.join(waiting)}\n" if waiting else ""
