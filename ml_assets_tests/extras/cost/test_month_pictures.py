"""What machines were used for, as columns: every part has its colour, and money needs prices."""

import re
from xml.etree import ElementTree

from ml_assets.assets.trained_model.cost.split import PARTS
from ml_assets.extras.cost.months import TONES, Month, machine_pictures

JANUARY = Month("2026-01", {"useful": 3.0, "stalled": 1.0}, {"useful": 6.0, "stalled": 2.0})
NOTHING = Month("2026-02", {}, {})
MARCH = Month("2026-03", {"useful": 2.0, "queued": 2.0}, {"useful": 4.0})


def columns(svg: str) -> dict[str, int]:
    """Tone -> how many columns it has."""
    drawn = re.findall(r'<path class="bar (\w+)" d="([^"]*)"', svg)
    return {tone: path.count("M") for tone, path in drawn}


def test_each_part_is_a_colour_of_its_own_and_a_month_without_it_has_none() -> None:
    time, cost = machine_pictures([JANUARY, NOTHING, MARCH])
    assert columns(time.svg) == {"three": 2, "warn": 1, "plain": 1}
    assert columns(cost.svg) == {"three": 2, "warn": 1}, "time in a queue costs nothing"
    assert time.words == "8 node-hours: 62.5% useful, 12.5% stalled, 25.0% queued."
    assert cost.words == "12.00: 83.3% useful, 16.7% stalled."
    for one in (time, cost):
        ElementTree.fromstring(one.svg)
        assert ">2026-01<" in one.svg and ">2026-03<" in one.svg


def test_without_a_price_of_everything_there_is_no_money_to_draw() -> None:
    unpriced = Month("2026-04", {"useful": 1.0}, {})
    assert [one.title for one in machine_pictures([JANUARY, unpriced])] == ["Machine time by month"]
    waiting = Month("2026-04", {"queued": 1.0}, {})
    assert len(machine_pictures([JANUARY, waiting])) == 2


def test_where_nothing_ran_nothing_is_drawn() -> None:
    assert machine_pictures([]) == machine_pictures([NOTHING]) == []


def test_every_part_of_an_account_has_a_colour() -> None:
    assert tuple(TONES) == PARTS
    assert len(set(TONES.values())) == len(PARTS)
