"""``python -m ml_assets_tests.faults``: rounds of faults for some minutes, then docs/faults.md.

Campaigns add up: each adds its rounds to a file of results, and the page is written from all.
"""

import argparse
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ml_assets_tests.faults.campaign import CRASH, crash, play
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
    until = time.monotonic() + asked.minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="faults-"))  # what broke stays there
    beside = [_beside(asked, one) for one in range(1, asked.side_by_side)]
    about = _commit(), f"{datetime.now(UTC):%Y-%m-%d}", _machine()
    broken, crashed = False, Counter[str]()
    for arena, seed in _turns(asked):
        if crashed[arena] == CRASHES:
            continue
        played = _played(arena, seed, folder, asked.fault)
        crashed[arena] += any(what.startswith(CRASH) for what in played.broken)
        played.commit, played.day, played.machine = about
        remember(asked.results, played)
        _print(played, folder)
        broken = broken or not played.held
        if time.monotonic() > until:
            break
    if not broken:
        shutil.rmtree(folder, ignore_errors=True)
    broken = any([broken, *(other.wait() for other in beside)])
    if asked.page:
        PAGE.write_text(write_page(recall(asked.results)))
        print(f"{PAGE.relative_to(ROOT)} is written")
    return int(broken)


def _turns(asked: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Places and seeds; each process of those side by side begins at another place."""
    arenas = asked.arena or TURNS
    if asked.only_seed:
        yield from ((arena, asked.seed) for arena in dict.fromkeys(arenas))
        return
    stride = asked.stride or asked.side_by_side
    for number, seed in enumerate(itertools.count(asked.seed, stride)):
        yield arenas[(number + asked.turn * len(arenas) // stride) % len(arenas)], seed


def _played(arena: str, seed: int, folder: Path, only: str | None) -> Played:
    """A round; one that ends in an error of its own is told as what it is, and others follow."""
    try:
        return play(arena, seed, folder, only)
    except Exception as error:
        return Played(arena, seed, [], [crash(error)])


def _beside(asked: argparse.Namespace, number: int) -> "subprocess.Popen[bytes]":
    """Another process for every second seed (third, ...): its undisturbed rounds share the machine,
    too, so that what it says of seconds lost is of the faults."""
    command = [sys.executable, "-m", __spec__.name, "--minutes", str(asked.minutes)]
    command += ["--seed", str(asked.seed + number), "--stride", str(asked.side_by_side)]
    command += ["--turn", str(number), "--results", str(asked.results), "--no-page"]
    for arena in asked.arena or ():
        command += ["--arena", arena]
    return subprocess.Popen([*command, *(["--fault", asked.fault] if asked.fault else [])])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240, help="how long (240)")
    parser.add_argument("--seed", type=int, default=1, help="the first round's (1)")
    parser.add_argument("--only-seed", action="store_true", help="this round and no other")
    parser.add_argument("--side-by-side", type=int, default=1, help="so many rounds at once (1)")
    parser.add_argument("--stride", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--arena", action="append", choices=[*PLACES], help="all by default")
    parser.add_argument("--fault", help="this fault alone, by its name in docs/faults.md")
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


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _machine() -> str:
    return f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}"


if __name__ == "__main__":
    sys.exit(main())
