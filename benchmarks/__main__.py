"""The one runner of the benchmarks.

    python -m benchmarks                # each one, what it lacks here, how its figures were last
    python -m benchmarks run [NAME...]  # those named, or all that lack nothing; figures are kept
    python -m benchmarks peers [NAME...]  # installs the tools that some compare with, pinned
    python -m benchmarks page           # docs/figures.md, from the figures that were kept
    python -m benchmarks proof          # whether figures and faults are of the product that is here

A benchmark is a file here that tells figures. What it imports and this environment has not is named
before it begins, and so is what its ``NEEDS`` say; without its ``PEERS`` it goes on. One that fails
is told with its last words, and the runner ends with 1. Kept are the medians of as many runs as its
``MEDIAN_OF`` says, or as ``run --times`` asks for.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks import peers
from benchmarks.catalog import Benchmark, benchmarks
from benchmarks.kept import Result, kept, results, run_and_keep
from benchmarks.page import FAULTS, PAGE, page, proof


def main(arguments: Sequence[str]) -> int:
    """List, run, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    doing = parser.add_subparsers(dest="verb")
    running = doing.add_parser("run")
    running.add_argument("names", nargs="*", metavar="NAME")
    running.add_argument("--times", type=int, choices=range(1, 100), metavar="RUNS")
    doing.add_parser("peers").add_argument("names", nargs="*", metavar="NAME")
    doing.add_parser("page")
    doing.add_parser("proof")
    asked = parser.parse_args(arguments)
    known = benchmarks()
    if asked.verb == "run":
        return _run(known, asked.names, asked.times)
    if asked.verb == "peers":
        return _install(asked.names)
    if asked.verb == "page":
        return _write_page(known)
    if asked.verb == "proof":
        print(proof(list(results().values()), FAULTS.read_text()))
        return 0
    for one in known:
        print(f"{one.name:18} {one.title}")
        for lack in one.lacks:
            print(f"{'':18} lacks {lack}")
        for name in one.without:
            print(f"{'':18} goes on without {peers.lack(name)}")
        print(f"{'':18} {_last(kept(one.name))}")
    return 0


def _last(found: Result | None) -> str:
    if found is None:
        return "never run"
    short = [figure.name for figure in found.figures if not figure.holds]
    said = f"failed: {found.failed}" if found.failed else f"short: {', '.join(short) or 'none'}"
    return f"{found.time:%Y-%m-%d} at {found.commit}, {len(found.figures)} figures, {said}"


def _run(known: Sequence[Benchmark], names: Sequence[str], times: int | None) -> int:
    by_name = {one.name: one for one in known}
    if strange := [name for name in names if name not in by_name]:
        print(f"no benchmark: {', '.join(strange)}; there are {', '.join(by_name)}")
        return 2
    failed: list[str] = []
    for one in [by_name[name] for name in names] or known:
        if one.lacks:
            print(f"{one.name}: not run, it lacks {', '.join(one.lacks)}", flush=True)
            failed += [one.name] if names else []
            continue
        print(f"{one.name}:", flush=True)
        found = run_and_keep(one, one.median_of if times is None else times)
        if found.failed:
            failed.append(one.name)
            print(f"{one.name}: FAILED, {found.failed}", flush=True)
    if failed:
        print(f"failed or could not run: {', '.join(failed)}")
    return 1 if failed else 0


def _install(names: Sequence[str]) -> int:
    if strange := [name for name in names if name not in peers.PINS]:
        print(f"no peer: {', '.join(strange)}; there are {', '.join(peers.PINS)}")
        return 2
    for name in names or peers.PINS:
        if not peers.python(name):
            peers.install(name)
        print(f"{peers.PINS[name]['package']}: {peers.python(name)}", flush=True)
    return 0


def _write_page(known: Sequence[Benchmark]) -> int:
    found = results()
    PAGE.write_text(page(known, found))
    unsaid = [
        f"{one.benchmark}: {figure.name}"
        for one in found.values()
        for figure in one.figures
        if not figure.holds and not figure.why
    ]
    for said in unsaid:
        print(f"short, and its tell() does not say why: {said}")
    return 1 if unsaid else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
