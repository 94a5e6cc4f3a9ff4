"""An entity has its place in the traffic, whoever asks."""

from datetime import UTC, datetime

from ml_assets.extras.serving.traffic import draw


def test_a_share_of_the_entities_is_the_canarys_and_always_the_same() -> None:
    places = [draw("orders", [f"customer {n}"]) for n in range(10_000)]
    assert 0.04 < sum(place < 0.05 for place in places) / 10_000 < 0.06
    assert places == [draw("orders", [f"customer {n}"]) for n in range(10_000)]


def test_another_pipeline_chooses_others() -> None:
    mine, other = ([draw(p, [n]) < 0.05 for n in range(10_000)] for p in ("orders", "returns"))
    assert sum(map(bool.__and__, mine, other)) < 100


def test_a_number_is_the_same_in_every_protocol() -> None:
    assert draw("orders", [7, "x", None]) == draw("orders", [7.0, "x", None])


def test_a_time_that_was_looked_up_is_drawn_by_its_text() -> None:
    time = datetime(2024, 5, 1, 5, tzinfo=UTC)
    assert draw("orders", [time]) == draw("orders", [str(time)])
