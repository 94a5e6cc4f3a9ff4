"""``python -m ml_assets_tests.faults``: rounds of faults for some minutes, then docs/faults.md.

Campaigns add up: each adds its rounds to a file of results, and the page is written from all.
"""

import argparse
import itertools
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets_tests.faults.campaign import CRASH, PAIRS, crash, play, undisturbed
from ml_assets_tests.faults.matrix import TURNS
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.places import PLACES
from ml_assets_tests.faults.results import RESULTS, Played, recall, remember

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
CRASHES = 3
"""Rounds of a place that may end in an error of the matrix itself before it is left out."""


def main() -> int:
    """Play rounds, print each, and write the page; 1 where something did not hold."""
    asked = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a background shell has the first one ignored
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="faults-"))  # what broke stays there
    asked.arena = those_at_hand(asked.arena or TURNS, folder)
    if not asked.arena:
        return 1
    until = time.monotonic() + asked.minutes * 60
    forks = multiprocessing.get_context("fork")  # they know what an undisturbed round is like
    beside = [
        forks.Process(target=_rounds, args=(asked, folder, until, one))
        for one in range(1, asked.side_by_side)
    ]
    for one in beside:
        one.start()
    try:
        broken = _rounds(asked, folder, until)
        for one in beside:
            one.join()
    finally:
        for one in beside:
            one.terminate()
    broken = any([broken, *(one.exitcode for one in beside)])
    if not broken:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.page:
        PAGE.write_text(write_page(recall(asked.results)))
        print(f"{PAGE.relative_to(ROOT)} is written")
    return int(broken)


def those_at_hand(arenas: Sequence[str], folder: Path) -> list[str]:
    """The places without those whose server is not installed; of each of them work without faults
    is measured."""
    missing = set[str]()
    for arena in dict.fromkeys(arenas):
        try:
            undisturbed(arena, folder)
        except pytest.skip.Exception as reason:
            print(f"{arena} is left out: {reason}", flush=True)
            missing.add(arena)
        except Exception:  # the round tells it
            continue
    return [arena for arena in arenas if arena not in missing]


def _rounds(asked: argparse.Namespace, folder: Path, until: float, number: int = 0) -> bool:
    """Play the rounds of one of the processes side by side.

    Returns:
        whether something did not hold; a process of its own ends with code 1 then.
    """
    about = _commit(), product(), f"{datetime.now(UTC):%Y-%m-%d}", _machine()
    broken, crashed = False, Counter[str]()
    for arena, seed in _turns(asked, number):
        if crashed[arena] == CRASHES:
            continue
        played = _played(arena, seed, folder, asked, until)
        crashed[arena] += any(what.startswith(CRASH) for what in played.broken)
        played.commit, played.product, played.day, played.machine = about
        remember(asked.results, played)
        _print(played, folder)
        broken = broken or not played.held
        if time.monotonic() > until:
            break
    if number and broken:
        sys.exit(1)
    return broken


def _turns(asked: argparse.Namespace, process: int) -> Iterator[tuple[str, int]]:
    """Places and seeds; each process of those side by side begins at another place."""
    arenas, beside = asked.arena, asked.side_by_side
    if asked.only_seed:
        yield from ((arena, asked.seed) for arena in dict.fromkeys(arenas))
        return
    for number, seed in enumerate(itertools.count(asked.seed + process, beside)):
        yield arenas[(number + process * len(arenas) // beside) % len(arenas)], seed


def _played(arena: str, seed: int, folder: Path, asked: argparse.Namespace, until: float) -> Played:
    """A round; one that ends in an error of its own is told as what it is, and others follow."""
    try:
        return play(arena, seed, folder, asked.fault, until, asked.pairs)
    except Exception as error:
        return Played(arena, seed, [], [crash(error)])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240, help="how long (240)")
    parser.add_argument("--seed", type=int, default=1, help="the first round's (1)")
    parser.add_argument("--only-seed", action="store_true", help="this round and no other")
    parser.add_argument("--side-by-side", type=int, default=1, help="so many rounds at once (1)")
    parser.add_argument("--arena", action="append", choices=[*PLACES], help="all by default")
    parser.add_argument("--fault", help="this fault alone, by its name in docs/faults.md")
    parser.add_argument(
        "--pairs", type=float, default=PAIRS, help=f"share of moments with two faults ({PAIRS})"
    )
    parser.add_argument(
        "--page", action=argparse.BooleanOptionalAction, default=True, help="write docs/faults.md"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"added to ({RESULTS.name})")
    return parser.parse_args()


def _print(played: Played, folder: Path) -> None:
    where = f"{played.arena} {played.seed}"
    names = "; ".join(f"{one.fault} at {one.at:.1f} s" for one in played.strikes) or "nothing"
    print(f"{where}: {names}: {'held' if played.held else 'DID NOT HOLD'}", flush=True)
    for strike in played.strikes:
        for what in strike.broken:
            print(f"    after {strike.fault}: {what}", flush=True)
    for what in played.broken:
        print(f"    {what}", flush=True)
    if not played.held:
        print(f"    see {folder / f'{played.arena}-{played.seed}'}", flush=True)


def _commit() -> str:
    """The commit of this tree; with a + where files of it have changed since."""
    names = ("ml_assets", "ml_assets_tests")
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    return commit + ("+" if _git("status", "--porcelain", "--", *names) else "")


def product() -> str:
    """The tree of `ml_assets/` in this commit."""
    return _git("rev-parse", "--short=12", "HEAD:ml_assets")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _machine() -> str:
    return f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}"


if __name__ == "__main__":
    sys.exit(main())
