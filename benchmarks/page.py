"""docs/figures.md, from the results of runs: no row is written by hand."""

import re
from collections.abc import Mapping, Sequence

from benchmarks import peers
from benchmarks.catalog import Benchmark
from benchmarks.kept import ROOT, Figure, Result, product, product_of

PAGE = ROOT / "docs" / "figures.md"
FAULTS = ROOT / "docs" / "faults.md"
_HEAD = """\
# Figures

Made by `python -m benchmarks page` from the last run of each benchmark, `python -m benchmarks run`.
No row is edited by hand. Aims are of an idle machine: the load says how idle it was. A figure that
is short has a sentence on what stands in the way, kept beside its definition. A product is what git
calls the content of the folder `ml_assets/`: commits of docs and tests leave it as it is.
"""


def page(known: Sequence[Benchmark], found: Mapping[str, Result]) -> str:
    """The page: what holds and what does not, then each benchmark, then those without a run."""
    told = [figure for one in known if one.name in found for figure in found[one.name].figures]
    figures = [figure for figure in told if figure.aim is not None]
    short = sum(not figure.holds for figure in figures)
    without = [one for one in known if one.name not in found]
    parts = [
        _HEAD,
        _products([found[one.name] for one in known if one.name in found]),
        f"{len(figures)} figures with an aim: {len(figures) - short} hold, {short} are short.\n",
        *(_section(one, found[one.name]) for one in known if one.name in found),
    ]
    if without:
        parts.append("## Without a run\n")
        parts += [f"- `{one.name}` needs {', '.join(one.needs) or 'nothing'}\n" for one in without]
    return "\n".join(parts)


def proof(runs: Sequence[Result], faults: str) -> str:
    """What the figures and the faults prove of the product that is here, for its release.

    Args:
        faults: docs/faults.md, whose head names its commit.
    """
    here = product()
    parts = [f"The product here is `{here}`, as git calls the folder `ml_assets/`.\n"]
    others = _of_another(runs, here)
    of = f"{len(runs) - len(others)} of {len(runs)} benchmarks are of this product"
    but = f"; not of it: {', '.join(others)}" if others else ""
    parts.append(f"- `docs/figures.md`: {of}{but}.")
    head = re.search(r"^Of commit (\w+)(\+?).*$", faults, re.MULTILINE)
    if head is None:
        return "\n".join([*parts, "- `docs/faults.md`: it names no commit.\n"])
    then = product_of(head[1]) and product_of(head[1]) + head[2]
    said = "That is this product." if then == here else f"That is another product, `{then}`."
    parts.append(
        f"- `docs/faults.md`: {head[0]} {said if then else 'Git does not know that commit here.'}\n"
    )
    return "\n".join(parts)


def _of_another(runs: Sequence[Result], product: str) -> list[str]:
    """The benchmarks whose last run was of another product than this, and which, if it was kept."""
    return [
        f"{run.benchmark} (`{run.product}`)" if run.product else run.benchmark
        for run in runs
        if run.product != product
    ]


def _products(runs: Sequence[Result]) -> str:
    """Whether all figures are of one product, and which are not of the newest."""
    newest = max((run for run in runs if run.product), key=lambda run: run.time, default=None)
    if newest is None:
        return "The last runs are from before their product was kept.\n"
    if not (others := _of_another(runs, newest.product)):
        return f"All figures are of one product, `{newest.product}`.\n"
    return (
        f"The newest product that was measured is `{newest.product}`. The figures of these"
        f" benchmarks are not of it: {', '.join(others)}.\n"
    )


def _section(one: Benchmark, run: Result) -> str:
    runs = f"medians of {run.times} runs" if run.times > 1 else "one run"
    of = f"Commit {run.commit}" + (f", product {run.product}" if run.product else "")
    before, after = run.load
    lines = [
        f"## {one.name}",
        "",
        f"{one.title}. {of}, {run.time:%Y-%m-%d %H:%M} UTC; {runs}; {run.machine};"
        f" load {before:g} before, {after:g} after; {run.seconds:,.0f} s.",
        "",
    ]
    if one.each:
        lines += [f"Each figure of a run is {one.each}.", ""]
    if run.missing:
        lacks = ", ".join(f"{name} (`{peers.command(name)}`)" for name in run.missing)
        lines += [f"Nothing compares with what was not installed: {lacks}.", ""]
    if one.note:
        lines += [one.note, ""]
    if run.failed:
        lines += [f"**It failed**, so that figures are missing: `{run.failed}`", ""]
    if run.figures:
        lines += ["| figure | value | aim | | what stands in the way |", "|---|---|---|---|---|"]
        lines += [_row(figure) for figure in run.figures] + [""]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    if figure.aim is None:
        return f"| `{figure.name}` | {figure.value:.3g} | | | |"
    sign = "at most" if figure.at == "most" else "at least"
    holds = "holds" if figure.holds else "**short**"
    why = "" if figure.holds else figure.why or "not said yet"
    return f"| `{figure.name}` | {figure.value:.3g} | {sign} {figure.aim:g} | {holds} | {why} |"
