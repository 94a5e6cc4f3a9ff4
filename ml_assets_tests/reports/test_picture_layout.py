"""How pictures and tables lie on a page: nothing overlaps, no name is cut, no date breaks."""

import re

from ml_assets.reports.drawing import Axis, Series, line_chart
from ml_assets.reports.page import page
from ml_assets.reports.picture import Table
from ml_assets.reports.row_charts import Spark, spark_chart


def test_nothing_lies_over_anything_else():
    points = [(0.0, 0.0), (0.1, 900_000.0)]
    large = line_chart("x", [Series("", points)], Axis("x"), Axis("rows per second"), wide=True)
    small = line_chart("x", [Series("", [(0, 0), (1, 5)])], Axis("x"), Axis("y"), wide=True)
    begin = [float(re.findall(r'class="axis" x1="([\d.]+)"', one)[0]) for one in (large, small)]
    assert begin[0] > begin[1] == 62
    low, high = [(0.0, 1.0), (1.0, 0.05)], [(0.0, 0.0), (1.0, 1.0)]
    unit = Axis("", 0.0, 1.0)
    notes = [
        line_chart("x", [Series("", curve)], unit, unit, note="AP 0.16") for curve in (low, high)
    ]
    above, below = (float(re.findall(r'class="note".*? y="([\d.]+)"', one)[0]) for one in notes)
    assert above < 60 < 200 < below


def test_a_long_name_has_the_room_that_there_is():
    name = "unique__timestamp__69797c"
    svg = spark_chart("x", [Spark(name, [1, 2], "2"), Spark("gusts", [1, 2], "2")], ("a", "b"))
    assert f'textLength="162" lengthAdjust="spacingAndGlyphs">{name}<' in svg
    assert svg.count("textLength") == 1


def test_a_date_does_not_break_at_its_hyphens():
    one = Table("t", "", ("", "time"), [["1", "2024-03-04 05:06"], ["2", "as of 2024-03-04"]])
    html = page(
        "data_card.html",
        name="x",
        span="",
        ways={},
        facts=one,
        distributions=[],
        columns=[],
        labelled=False,
        labels=[],
        sample=one,
    )
    assert '<td class="span">2024-03-04 05:06</td>' in html and "<td>as of" in html
