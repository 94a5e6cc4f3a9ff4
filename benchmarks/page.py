"""docs/figures.md, from the results of runs: no row is written by hand."""

from collections.abc import Mapping, Sequence

from benchmarks import peers
from benchmarks.catalog import Benchmark
from benchmarks.kept import ROOT, Figure, Result

PAGE = ROOT / "docs" / "figures.md"
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


def of_another_product(runs: Sequence[Result], product: str) -> list[str]:
    """The benchmarks whose last run was of another product than this, or that kept none."""
    return [run.benchmark for run in runs if run.product != product]


def _products(runs: Sequence[Result]) -> str:
    """Whether all figures are of one product, and which are not of the newest."""
    newest = max((run for run in runs if run.product), key=lambda run: run.time, default=None)
    if newest is None:
        return "The last runs are from before their product was kept.\n"
    if not (others := of_another_product(runs, newest.product)):
        return f"All figures are of one product, `{newest.product}`.\n"
    of = {run.benchmark: f"`{run.product}`" if run.product else "not kept" for run in runs}
    listed = ", ".join(f"{name} ({of[name]})" for name in others)
    return (
        f"The newest product that was measured is `{newest.product}`. The figures of these"
        f" benchmarks are not of it: {listed}.\n"
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
