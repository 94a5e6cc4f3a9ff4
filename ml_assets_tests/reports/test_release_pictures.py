"""Pictures of an evaluation and a release: reports, gates, decisions, changes."""

import re
from xml.etree import ElementTree

from ml_assets.assets.evaluation_report.pictures import evaluation_pictures
from ml_assets.reports.decisions import (
    decisions_picture,
    gates_picture,
    gates_table,
    ledger_table,
    override_picture,
    released_table,
)
from ml_assets.reports.picture import album
from ml_assets.reports.row_charts import Bullet, bullet_chart
from ml_assets.reports.tables import changes_table
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.records import (
    Change,
    Decision,
    Evidence,
    FeatureImportance,
    GateResult,
    Interval,
    LedgerEntry,
    ReleaseChanges,
    SliceMetrics,
)
from ml_assets_tests.reports.drawn import NOW, files, titles, words


def test_a_report_s_pictures_hold_its_values_and_fit_one_event(report, spec):
    near = Interval(value=0.0321, low=0.03, high=0.04)
    full = report.model_copy(
        update={
            "slices": tuple(
                SliceMetrics(
                    column=f"column_{n % 3}",
                    value=f"value {n}",
                    rows=1234,
                    metrics={"auc": 0.6543},
                    intervals={"auc": Interval(value=0.6543, low=0.6, high=0.7)},
                )
                for n in range(40)
            ),
            "importance": tuple(
                FeatureImportance(column=f"feature_{n}", loss_rise=near) for n in range(60)
            ),
        }
    )
    pictures = evaluation_pictures(full, spec)
    written = dict(zip(titles(pictures), map(words, files(pictures)), strict=True))
    assert "0.7300" in written["ROC AUC"] and "AP 0.4700" in written["Precision and recall"]
    assert "-0.0020" in written["Champion against challenger: log-loss"]
    assert "0.6543" in written["ROC AUC by slice"] and "(1,234)" in written["ROC AUC by slice"]
    assert "0.0321" in written["Feature importance"]
    assert len(album([*pictures, changes_table(None)])) < 60_000


def test_a_gate_s_dot_is_on_the_good_side_when_it_passed():
    rows = [
        Bullet("floor", 0.8, 0.7, True, higher=True),
        Bullet("ceiling", 0.8, 0.7, False, higher=False),
        Bullet("no value", None, 0.7, True, higher=False),
        Bullet("no bound", 3.0, None, True, higher=False),
        Bullet("below zero", -0.4, -0.1, True, higher=False),
    ]
    svg = bullet_chart("gates", rows)
    sides = re.findall(r'class="side good" x="([\d.]+)".*?width="([\d.]+)"', svg)
    dots = re.findall(r'class="dot (\w+)" cx="([\d.]+)"', svg)
    (floor, _), (ceiling, wide) = sides[:2]
    assert dots[0] == ("good", dots[0][1]) and float(dots[0][1]) > float(floor)
    assert dots[1][0] == "bad" and float(dots[1][1]) > float(ceiling) + float(wide)
    assert "✓ 0.8 ≥ 0.7" in svg and "✗ 0.8 &gt; 0.7" in svg and "✓ – ≤ 0.7" in svg
    ElementTree.fromstring(svg)


def test_a_gate_of_shares_is_in_per_cent_as_its_sentence_is():
    seen = Interval(value=0.0408, low=0.0335, high=0.0486)
    gate = GateResult(
        name="champion", passed=False, value=0.0486, bound=0.033, reason="it is", interval=seen
    )
    spec = AgainstChampion(kind="champion", metric="rmse", margin=0.033, relative=True)
    (picture,) = gates_picture([gate], [spec])
    assert "✗ +4.86% &gt; +3.30%" in picture.svg
    assert gates_table([gate], [spec]).rows[0][2:5] == [
        "+4.86%",
        "+3.30%",
        "+4.08% (+3.35% to +4.86%)",
    ]


def test_a_gate_s_interval_is_a_whisker_and_three_numbers_of_the_table():
    seen = Interval(value=-0.002, low=-0.006, high=0.004)
    gate = GateResult(
        name="champion", passed=True, value=0.004, bound=0.005, reason="it is", interval=seen
    )
    spec = AgainstChampion(kind="champion", margin=0.005)
    (picture,) = gates_picture([gate], [spec])
    (low, high), (dot,) = (
        re.findall(r'class="whisker good" d="M([\d.]+) [\d.]+H([\d.]+)"', picture.svg)[0],
        re.findall(r'class="dot good" cx="([\d.]+)"', picture.svg),
    )
    assert float(low) < float(high) == float(dot)
    ElementTree.fromstring(picture.svg)
    assert gates_table([gate]).rows == [
        ["champion", "✓", "0.0040", "0.0050", "-0.0020 (-0.0060 to 0.0040)", "it is"]
    ]


def decided(seq, value, passed):
    gate = GateResult(name="auc_floor", passed=passed, value=value, bound=0.7, reason="because")
    evidence = Evidence(
        model="ab" * 32, report="1" * 64, data="2" * 64, code="c", policy="3" * 64, champion=None
    )
    decision = Decision(
        pipeline="delays",
        evidence=evidence,
        gates=(gate,),
        passed=passed,
        reason=f"reason {seq}",
        run="r",
        time=NOW,
    )
    return LedgerEntry(
        seq=seq,
        previous=None,
        kind="decision",
        model="ab" * 32,
        decision=decision,
        author="a",
        reason=decision.reason,
        run="r",
        time=NOW,
    )


def test_the_decisions_are_drawn_over_time(spec):
    entries = [decided(n, 0.72 if n % 2 else 0.65, bool(n % 2)) for n in range(1, 90)]
    (picture,) = decisions_picture(entries, spec.gates)
    (svg,) = files([picture])
    assert "passed | refused" in words(svg) and svg.count('class="dot good"') == 30
    assert decisions_picture(entries[:1], spec.gates) == []
    table = ledger_table(entries)
    assert len(table.rows) == 20 and table.rows[0][0] == "89"


def test_what_changed_is_told_line_by_line(report, spec):
    change = Change(group="spec", name="training.epochs", before="3", after="")
    table = changes_table(ReleaseChanges(since="c4" * 32, changes=(change,)))
    assert table.rows == [["spec: training.epochs", "3", "–"]]
    assert "Nothing:" in changes_table(ReleaseChanges(since="c4" * 32, changes=())).markdown()


def test_a_release_says_what_it_replaces_and_who_rolled_back_to_it(report, spec):
    moved = {"kind": "stage", "decision": None, "stage": "production", "replaced": "c4" * 32}
    move = decided(1, 0.7, True).model_copy(update=moved)
    rows = released_table(report, spec, move).rows
    assert ["replaces", "c4c4c4c4c4c4, archived"] in rows
    assert not [row for row in rows if row[0] == "rolled back by"]
    back = move.model_copy(update={"because": "rollback", "author": "ada", "reason": "late"})
    assert ["rolled back by", "ada: late"] in released_table(report, spec, back).rows


def test_an_override_is_a_red_bar_with_who_why_and_the_failed_gates():
    told = {"kind": "override", "decision": None, "overrides": 3, "gates": ("auc_floor",)}
    said = {"author": "ada", "reason": "the snow week", "seq": 4}
    (picture,) = override_picture(decided(1, 0.6, False).model_copy(update=told | said))
    assert 'class="bar bad"' in picture.svg and "OVERRIDE by ada" in picture.svg
    assert "the snow week" in picture.words and "line 3" in picture.words
    assert "auc_floor" in picture.words
    assert override_picture(None) == []
