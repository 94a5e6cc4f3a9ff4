"""The code-change sensor: what other code made is made again, once for each version of the code."""

import dagster as dg

from ml_assets_tests.automation.conftest import Plant
from ml_assets_tests.worlds import deliveries

SENSOR = "code_change"
OTHER = ("cast(pl.Float64))\n", "cast(pl.Float64) + 0)\n")
"""The same rows by other code."""
BOTH = "{landing: {}, on_code_change: true}"


def test_a_feature_function_that_changed_is_run_again_once(plant: Plant):
    world = plant(3, BOTH)
    assert "no model is made yet" in world.says(SENSOR)  # what was never made is not its affair
    world.settle()
    assert (
        "compared with the present code and spec; everything that landed is published"
        in world.says(SENSOR)
    )
    features = world.folder / "features.py"
    first = features.read_text()
    features.write_text(first + "\n# another line\n")
    assert "everything that landed is published" in world.says(SENSOR), "a comment runs nothing"
    features.write_text(first.replace(*OTHER))
    (request,) = world.asks_for(SENSOR)
    assert request.job_name == "deliveries__features"
    assert request.tags["trigger"] == "code change"
    assert request.tags["why"] == (
        "features [2024-01-08 .. 2024-01-15: 2 partitions]: its code or its part of"
        " the spec changed"
    )
    assert world.execute(request)
    assert "everything that landed is published" in world.says(SENSOR)

    features.write_text(first)  # going back is a change as well
    (back,) = world.asks_for(SENSOR)
    assert back.run_key != request.run_key
    assert world.execute(back)
    assert "everything that landed is published" in world.says(SENSOR)


def test_code_that_fails_is_asked_for_once_and_again_when_it_was_mended(plant: Plant):
    world = plant(3, BOTH)
    world.settle()
    features = world.folder / "features.py"
    good = features.read_text()
    features.write_text(good.replace('"recent_late"', '"recently_late"'))
    (request,) = world.asks_for(SENSOR)
    assert not world.execute(request)
    for _ in range(3):
        assert "features [2024-01-08 .. 2024-01-15: 2 partitions]" in (said := world.says(SENSOR))
        assert "code to change; 'ml-assets run deliveries' tries again now" in said
    features.write_text(good.replace(*OTHER))
    (again,) = world.asks_for(SENSOR)
    assert world.execute(again)
    assert "everything that landed is published" in world.says(SENSOR)


def test_a_spec_part_that_changed_reaches_only_what_it_decides(plant: Plant):
    world = plant(3, BOTH)
    world.settle()
    contract = world.folder / "depots.json"
    contract.write_text(contract.read_text().replace('"critical"', '"warning"'))
    (request,) = world.asks_for(SENSOR)
    assert request.asset_selection == [dg.AssetKey(["deliveries", "validated_table", "depots"])]
    assert world.execute(request)
    # the same rows, by their digest: nothing that follows is made again
    assert "everything that landed is published" in world.says(SENSOR)


def test_data_that_landed_is_not_its_affair(plant: Plant):
    world = plant(2, BOTH)
    world.settle()
    deliveries.land(world.sources, 3)
    assert "everything that landed is published" in world.says(SENSOR)
    assert world.asks_for()
