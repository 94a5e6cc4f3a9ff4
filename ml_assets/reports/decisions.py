"""Pictures and tables of decisions: gates against their bounds, the ledger, what was released."""

from collections.abc import Sequence

from ml_assets.errors import counted
from ml_assets.reports.drawing import Axis, Reference, Series, banner, line_chart
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.row_charts import Bullet, bullet_chart
from ml_assets.reports.wording import by_a_person, happened, plain_number, title, with_ends
from ml_assets.spec.gates import (
    HIGHER_IS_BETTER,
    AgainstChampion,
    BeatsBaseline,
    Bound,
    Calibrated,
    GateSpec,
    LeakAlarm,
    Slices,
    Throughput,
)
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import EvaluationReport, GateResult, LedgerEntry

LEDGER_LINES = 20
DECISIONS = 60
"""Most lines of the ledger in the table, most decisions in a picture."""


def as_judged(report: EvaluationReport, gates: Sequence[GateSpec]) -> EvaluationReport:
    """The report as it is shown: a metric has the interval of the gate that decides by it.

    Both are of the same draws. A metric's ends are their percentiles; those of a calibration gate
    are Student's t, which is wider where blocks are few. Two of them would only confuse a reader.
    """
    asked = [gate for gate in gates if isinstance(gate, Calibrated) and gate.measure == "ece"]
    found = [one.interval for gate in asked for one in report.estimates.get(gate.name, ())]
    interval = next((one for one in found if one is not None), None)
    if interval is None or "ece" not in report.metrics:
        return report
    return report.model_copy(update={"metrics": {**report.metrics, "ece": interval}})


def released_table(report: EvaluationReport, spec: PipelineSpec, move: LedgerEntry) -> Table:
    """Return what a released model is, how it came to its stage, and how it did."""
    report = as_judged(report, spec.gates)
    rows = [
        ["model", report.model[:12]],
        ["stage", move.stage or ""],
        ["replaces", f"{move.replaced[:12]}, archived" if move.replaced else "nothing"],
        *([["rolled back by", f"{move.author}: {move.reason}"]] if move.because else []),
        ["network", f"{spec.model.family}, {report.size_bytes / 1e6:.2f} MB"],
        ["training set", report.data[:12]],
        ["holdout", f"{counted(report.rows, 'row')}{_span(report)}"],
        *(
            [title(name), f"{i.value:.4f} ({i.low:.4f} to {i.high:.4f})"]
            for name, i in report.metrics.items()
        ),
    ]
    return Table("What was released", "", ["what", "value"], rows)


def override_picture(override: LedgerEntry | None) -> list[Picture]:
    """A red bar that nobody overlooks: a person let this model through, not the gates."""
    if override is None:
        return []
    failed = ", ".join(override.gates) or "no gate was evaluated"
    words = (
        f"{override.author} took responsibility (ledger line {override.seq}): {override.reason}."
        f" The decision in line {override.overrides} had refused the model: {failed}."
    )
    bar = banner("an override", f"✗ OVERRIDE by {override.author[:60]}")
    return [Picture("Released by an override", words, bar)]


def gates_picture(gates: Sequence[GateResult], specs: Sequence[GateSpec]) -> list[Picture]:
    """Each gate's value against its bound; a gate without both is only marked."""
    if not gates:
        return []
    higher, shares = {spec.name: _wants_more(spec) for spec in specs}, in_percent(specs)
    rows = [
        Bullet(
            gate.name,
            gate.value,
            gate.bound,
            gate.passed,
            higher.get(gate.name, False),
            gate.interval,
            gate.name in shares,
        )
        for gate in gates
    ]
    words = (
        "The line is the bound, the tinted side is where the value has to be; the whisker is the"
        " interval of what was estimated."
    )
    return [Picture("Gates", words, bullet_chart("Gates: value against bound", rows))]


def in_percent(specs: Sequence[GateSpec]) -> frozenset[str]:
    """The gates whose reasons are in per cent, for their bounds are shares of something."""
    return frozenset(one.name for one in specs if isinstance(one, AgainstChampion) and one.relative)


def gates_table(gates: Sequence[GateResult], specs: Sequence[GateSpec] = ()) -> Table:
    """Every gate with its reason."""
    shares = in_percent(specs)
    rows = [
        [
            gate.name,
            "✓" if gate.passed else "✗",
            plain_number(gate.value, gate.name in shares),
            plain_number(gate.bound, gate.name in shares),
            with_ends(gate.interval, gate.name in shares),
            gate.reason,
        ]
        for gate in gates
    ]
    head = ["gate", "", "value", "bound", "interval", "why"]
    return Table("What the gates say", "", head, rows)


def decisions_picture(entries: Sequence[LedgerEntry], specs: Sequence[GateSpec]) -> list[Picture]:
    """The value of the first declared floor or ceiling, decision by decision."""
    gate = next((spec for spec in specs if isinstance(spec, Bound)), None)
    if gate is None:
        return []
    found = [
        (entry.seq, entry.decision.passed, result.value, result.bound)
        for entry in entries
        if entry.decision is not None
        for result in entry.decision.gates
        if result.name == gate.name and result.value is not None
    ][-DECISIONS:]
    if len(found) < 2:
        return []
    points = [(float(place), value) for place, (_, _, value, _) in enumerate(found)]
    marks = {"passed": True, "refused": False}
    series = [Series("", points, "plain")] + [
        Series(
            name,
            [point for point, (_, fine, _, _) in zip(points, found, strict=True) if fine == passed],
            "good" if passed else "bad",
            dots=True,
            joined=False,
        )
        for name, passed in marks.items()
    ]
    bound = found[-1][3]
    last = float(len(found) - 1)
    values = [value for _, value in points] + ([bound] if bound is not None else [])
    chart = line_chart(
        f"{title(gate.metric)} by decision",
        series,
        Axis("line of the ledger", 0.0, last, [str(seq) for seq, *_ in found]),
        Axis(title(gate.metric), min(values) - 0.01, max(values) + 0.01),
        reference=Reference((0.0, bound), (last, bound)) if bound is not None else None,
        wide=True,
    )
    words = (
        f"Every decision in the ledger, oldest first. The dashed line is {gate.name}'s bound now."
    )
    return [Picture(f"{title(gate.metric)} by decision", words, chart)]


def gates_moved(entries: Sequence[LedgerEntry], entry: LedgerEntry) -> str:
    """Return how a decision's gates differ from those of the one before on its model; empty: they
    do not.

    Args:
        entries: the ledger, oldest first.
    """
    decision = entry.decision
    if decision is None or decision.canary is not None:
        return ""
    earlier = [e for e in entries if e.seq < entry.seq and e.model == entry.model]
    last = next((e for e in reversed(earlier) if e.decision and e.decision.canary is None), None)
    if last is None or last.decision is None:
        return ""
    if last.decision.evidence.policy == decision.evidence.policy:
        return ""
    was = {gate.name: gate.bound for gate in last.decision.gates}
    now = {gate.name: gate.bound for gate in decision.gates}
    held = [
        f"{name} had the bound {_bound(was[name])} then, {_bound(bound)} now"
        for name, bound in now.items()
        if name in was and was[name] != bound
    ]
    gone = [f"{name} no longer exists" for name in was if name not in now]
    new = [f"{name} is new" for name in now if name not in was]
    how = "; ".join([*held, *gone, *new]) or "their bounds are the same"
    return f"the gates were declared otherwise when line {last.seq} decided on this model: {how}"


def _bound(bound: float | None) -> str:
    return "no bound" if bound is None else f"{bound:g}"


def ledger_table(entries: Sequence[LedgerEntry]) -> Table:
    """The last lines of the ledger, newest first."""
    rows = [
        [
            str(entry.seq),
            f"{entry.time:%Y-%m-%d %H:%M}",
            entry.model[:12],
            happened(entry),
            _why(entries, entry),
        ]
        for entry in reversed(entries[-LEDGER_LINES:])
    ]
    head = ["line", "time (UTC)", "model", "what", "why"]
    return Table("The ledger", "All that happened to the models, newest first.", head, rows)


def _why(entries: Sequence[LedgerEntry], entry: LedgerEntry) -> str:
    moved = gates_moved(entries, entry)
    said = f"{entry.reason} ({moved})" if moved else entry.reason
    return f"{entry.author}: {said}" if by_a_person(entry) else said


def _span(report: EvaluationReport) -> str:
    first, last = report.holdout
    return f", {first} to {last}" if first else ""


def _wants_more(gate: GateSpec) -> bool:
    """Whether the value has to be above the bound."""
    match gate:
        case Bound():
            return gate.at_least is not None
        case BeatsBaseline():
            return HIGHER_IS_BETTER[gate.metric]
        case LeakAlarm():
            return not HIGHER_IS_BETTER[gate.metric]
        case AgainstChampion():
            return gate.metric is not None and HIGHER_IS_BETTER[gate.metric]
        case Slices():
            return gate.at_least is not None
        case Throughput():
            return True
        case _:
            return False
