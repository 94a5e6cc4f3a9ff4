"""Values of teams' own assets lie in the state folder: whoever writes there has no code run."""

import pickle
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from upath import UPath

from ml_assets.adapters.team_values import TeamValues
from ml_assets.definitions import resources
from ml_assets.errors import MlAssetsError

VALUES = (
    {"rows": [1, 2.5, None, True], "words": {"ä": "ö"}},
    pl.DataFrame({"at": ["2026-01-01", None], "n": [1, 2]}),
    "",
)
NOT_DATA = ((1, 2), {1: "a"}, float("nan"), object(), {"a": {1}})


def assets_that_hand_on(value: object, partitions: dg.PartitionsDefinition[str] | None = None):
    """An asset that returns a value, and one that hands on what it was given."""
    given: list[object] = []

    @dg.asset(key=["irises", "made"], partitions_def=partitions)
    def made() -> object:
        return value

    @dg.asset(ins={"made": dg.AssetIn(key=["irises", "made"])}, partitions_def=partitions)
    def taken(made: object) -> None:
        given.append(made)

    return [made, taken], given


def materialize(assets: list, instance: dg.DagsterInstance, **more) -> str:
    keeper = {"io_manager": resources()["io_manager"]}
    done = dg.materialize(assets, instance=instance, resources=keeper, raise_on_error=False, **more)
    return "\n".join(
        str(event.step_failure_data.error) for event in done.all_events if event.is_step_failure
    )


def test_a_value_is_handed_on_as_it_was() -> None:
    with dg.instance_for_test() as instance:
        for value in VALUES:
            assets, given = assets_that_hand_on(value)
            assert materialize(assets, instance) == ""
            [found] = given
            assert found.equals(value) if isinstance(value, pl.DataFrame) else found == value


class Code:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return (Path.touch, (self.file,))


def test_a_planted_pickle_is_not_run(tmp_path: Path) -> None:
    (made, taken), given = assets_that_hand_on({"rows": 3})
    ran = tmp_path / "ran"
    with dg.instance_for_test() as instance:
        assert materialize([made], instance) == ""
        file = Path(instance.storage_directory(), "irises", "made")
        file.write_bytes(pickle.dumps(Code(ran)))
        said = materialize([made, taken], instance, selection=[taken])
    assert "holds no value of an asset" in said
    assert not ran.exists()
    assert given == []


def test_what_data_cannot_hold_is_refused_with_a_remedy() -> None:
    with dg.instance_for_test() as instance:
        for value in NOT_DATA:
            (made, _), _ = assets_that_hand_on(value)
            said = materialize([made], instance)
            assert "Nothing is pickled. Return one of these" in said, value


def test_no_name_of_a_partition_leads_out(tmp_path: Path) -> None:
    keeper = TeamValues(tmp_path / "values")
    folder = keeper.make_safe_partition_path(keeper._base_path / "made", "x").parent
    for name in ("..", "../../x", "/etc/x", ".", "a/../../b"):
        place = Path(keeper.make_safe_partition_path(folder, name))
        assert place.resolve().parent == Path(folder).resolve()


def test_a_damaged_frame_is_told(tmp_path: Path) -> None:
    file = tmp_path / "made"
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(MlAssetsError, match="holds no value"):
        TeamValues(tmp_path).load_from_path(dg.build_input_context(), UPath(file))
