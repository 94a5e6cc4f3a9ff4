"""How far bad data spreads, held to a slow walk that is plainly right."""

import random

import pytest

from ml_assets.extras.recall.recall import Derivation, spread
from ml_assets.extras.recall.recovery import remake
from ml_assets.records.record_history import Node


def node(name: str) -> Node:
    return name, None, "1"


def made(output: str, *inputs: str) -> Derivation:
    return Derivation(node(output), tuple(map(node, inputs)))


def slow_spread(seeds: set[Node], derivations: list[Derivation]) -> set[Node]:
    """Look at everything again until nothing is added."""
    bad = set(seeds)
    while True:
        spoiled = {d.output for d in derivations if bad.intersection(d.inputs)}
        kept = {d.output for d in derivations if not bad.intersection(d.inputs)}
        more = bad | (spoiled - kept)
        if more == bad:
            return bad
        bad = more


def test_what_was_made_from_bad_data_is_bad_and_so_is_what_follows() -> None:
    graph = [made("raw"), made("table", "raw"), made("features", "table", "other"), made("other")]
    assert spread([node("raw")], graph) == {node("raw"), node("table"), node("features")}


def test_the_same_content_made_from_sound_inputs_too_is_sound() -> None:
    graph = [made("bad"), made("good"), made("table", "bad"), made("table", "good")]
    assert spread([node("bad")], graph) == {node("bad")}
    assert spread([node("bad"), node("good")], graph) == {node(n) for n in ("bad", "good", "table")}


def test_a_seed_is_bad_whoever_made_it() -> None:
    assert spread([node("table")], [made("raw"), made("table", "raw")]) == {node("table")}


@pytest.mark.parametrize("seed", range(60))
def test_on_random_graphs_it_agrees_with_the_slow_walk(seed: int) -> None:
    draw = random.Random(seed)
    names = [node(str(number)) for number in range(draw.randint(2, 25))]
    graph = [
        Derivation(name, tuple(draw.sample(names[:place], min(place, draw.randint(0, 3)))))
        for place, name in enumerate(names)
        for _ in range(draw.randint(1, 3))
    ]
    draw.shuffle(graph)
    seeds = set(draw.sample(names, min(len(names), draw.randint(1, 3))))
    assert spread(seeds, graph) == slow_spread(seeds, graph)


def test_it_is_made_again_in_the_order_of_the_walk() -> None:
    head = {node("features"): 3, node("raw"): 0, node("sound"): 1}
    assert remake({node("raw"), node("features"), node("old")}, head) == [
        node("raw"),
        node("features"),
    ]
