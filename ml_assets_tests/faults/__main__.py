"""``python -m ml_assets_tests.faults``: rounds of faults for some minutes, then docs/faults.md."""

import argparse
import itertools
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import psutil

from ml_assets_tests.faults.campaign import Strike, play, recall, remember
from ml_assets_tests.faults.matrix import SELDOM
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.places import PLACES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "faults.jsonl"
PAGE = ROOT / "docs" / "faults.md"
CRASH = "no fault"
CRASHES = 3
"""Rounds of a place that may end in an error of the matrix itself before it is left out."""


def main() -> int:
    """Play rounds, print each, and write the page; 1 where something did not hold."""
    asked = _arguments()
    until = time.monotonic() + asked.minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="faults-"))  # what broke stays there
    beside = [_beside(asked, one) for one in range(1, asked.side_by_side)]
    seeds = itertools.count(asked.seed, asked.stride or asked.side_by_side)
    broken, crashed = False, Counter[str]()
    for number, seed in enumerate([asked.seed] if asked.only_seed else seeds):
        drawn = [one for one in PLACES if number % 4 == 0 or one not in SELDOM]
        for arena in asked.arena or drawn:
            if crashed[arena] == CRASHES:
                continue
            strikes = _played(arena, seed, folder, asked.fault)
            crashed[arena] += any(strike.fault == CRASH for strike in strikes)
            remember(RESULTS, strikes)
            _print(strikes, arena, seed, folder)
            broken = broken or any(strike.broken for strike in strikes)
        if time.monotonic() > until:
            break
    if not broken:
        shutil.rmtree(folder, ignore_errors=True)
    for other in beside:
        other.wait()
    strikes = recall(RESULTS)
    if asked.page:
        PAGE.write_text(write_page(strikes, _when()))
        print(f"{PAGE.relative_to(ROOT)}: {len(strikes)} faults")
    return int(any(strike.broken for strike in strikes))


def _played(arena: str, seed: int, folder: Path, only: str | None) -> list[Strike]:
    """A round; one that ends in an error of its own is told as what it is, and others follow."""
    try:
        return play(arena, seed, folder, only)
    except Exception as error:
        traceback.print_exc()
        said = f"the round itself ended: {type(error).__name__}: {error}"
        return [Strike(CRASH, arena, seed, 0.0, broken=[said[:500]])]


def _beside(asked: argparse.Namespace, number: int) -> "subprocess.Popen[bytes]":
    """Another process for every second seed (third, ...): its undisturbed rounds share the machine,
    too, so that what it says of seconds lost is of the faults."""
    command = [sys.executable, "-m", __spec__.name, "--minutes", str(asked.minutes)]
    command += ["--seed", str(asked.seed + number), "--stride", str(asked.side_by_side)]
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
    parser.add_argument(
        "--arena",
        action="append",
        choices=[*PLACES],
        help="all by default; those with a daemon each fourth time",
    )
    parser.add_argument("--fault", help="this fault alone, by its name in docs/faults.md")
    parser.add_argument("--page", action="store_true", help="write docs/faults.md of all results")
    return parser.parse_args()


def _print(strikes: list[Strike], arena: str, seed: int, folder: Path) -> None:
    names = "; ".join(f"{strike.fault} at {strike.at:.1f} s" for strike in strikes) or "nothing"
    broken = list(dict.fromkeys(what for strike in strikes for what in strike.broken))
    print(f"{arena} {seed}: {names}: {_end(broken, folder / f'{arena}-{seed}')}", flush=True)
    for what in broken:
        print(f"    {what}", flush=True)


def _end(broken: list[str], folder: Path) -> str:
    return f"DID NOT HOLD (see {folder})" if broken else "held"


def _when() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    machine = f"{psutil.cpu_count()} cores of {platform.machine()}, {platform.system()}"
    return f"the last at commit {commit or 'unknown'} on {datetime.now(UTC):%Y-%m-%d}, on {machine}"


if __name__ == "__main__":
    sys.exit(main())
