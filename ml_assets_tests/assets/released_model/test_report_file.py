"""The report's page where the disk does not take what it shows: the page decides nothing."""

from html import unescape
from pathlib import Path

import pytest

from ml_assets.assets.released_model.report_file import write_report
from ml_assets.errors import StoreAway
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.actions.house import HouseOnS3
from ml_assets_tests.servers.s3 import S3Server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.opened import pipeline_of


@pytest.fixture
def judged(tmp_path: Path, bucket: S3Server) -> Pipeline:
    """A model on S3 that was decided on; nothing of it is on this machine."""
    irises.plant(tmp_path / "pipelines", tmp_path / "sources")
    house = HouseOnS3(tmp_path / "home")
    house.train()
    house.decide(passes=True)
    house.upload(bucket)
    return pipeline_of(
        tmp_path / "pipelines" / "irises", settings=house.settings, store=house.store
    )


def shown(judged: Pipeline) -> str:
    return unescape(write_report(judged).read_text())


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ("models", "The training's first rows are not shown: "),
        ("sessions", "The training's pictures may be incomplete: "),
    ],
)
def test_what_the_disk_does_not_take_is_missing_on_the_page_and_the_page_says_why(
    judged: Pipeline, refused: str, said: str
) -> None:
    assert said not in shown(judged)
    cache = judged.objects.root
    (cache / refused).rename(cache / "away")
    (cache / refused).touch()  # no folder can be made there
    page = shown(judged)
    assert said in page
    assert "File exists" in page or "Not a directory" in page
    assert "ml-assets models report irises" in page
    assert "this model may go to production" in page
    (cache / refused).unlink()
    assert said not in shown(judged)


def test_a_store_that_is_away_still_ends_the_step_which_is_tried_again(
    judged: Pipeline, bucket: S3Server
) -> None:
    bucket.faults.status, bucket.faults.code = "403 Forbidden", "AccessDenied"
    bucket.faults.failing = -1
    with pytest.raises(StoreAway):
        write_report(judged)
