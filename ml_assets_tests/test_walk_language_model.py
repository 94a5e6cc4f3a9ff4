"""A language model through the command line: from sources to a release that is proved."""

import re
import signal
from pathlib import Path

import pytest

from ml_assets_tests.worlds import sources
from ml_assets_tests.worlds.world import World

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
    found = World(tmp_path_factory.mktemp("texts"))
    sources.plant(found.pipelines, found.sources)
    return found


def test_it_is_released_shown_compared_and_proved(world: World) -> None:
    world.cli("run", "code_lm")
    first = world.status("code_lm")["release"]
    assert first["decision"] == "passed"
    assert set(first["metrics"]) == {"bits_per_byte"}
    assert 1.0 < first["metrics"]["bits_per_byte"] < 5.0

    page = world.cli("models", "report", "code_lm").strip().splitlines()[-1]
    said = Path(page.split()[-1]).read_text()
    assert said.count('<pre class="sample">') == 4
    for name in ("uniform", "unigram", "bigram", "gzip"):
        assert name in said

    for command in (("predict", "code_lm", "-"), ("release", "export", "code_lm")):
        assert "code_lm is a language model: nothing here" in world.cli(*command, code=1)

    proved = world.cli("release", "prove", "code_lm")
    for stage in ("training_set", "trained_model", "evaluation_report"):
        assert re.search(rf"equal +code_lm/{stage}", proved), proved

    # other words, the same texts: the champion is judged by its own words, in bits per byte
    world.edit("code_lm", ("vocabulary: 400", "vocabulary: 350"))
    again = world.cli("run", "code_lm")
    assert f"bits_per_byte minus that of champion {first['version'][:12]} is" in again


def test_killed_twice_it_comes_to_the_same_release(world: World, tmp_path: Path) -> None:
    killed = World(tmp_path)
    sources.plant(killed.pipelines, killed.sources)
    for moment in ("step 40 of", "step 80 of"):
        killed.stopped_at(moment, signal.SIGKILL, "run", "code_lm", "--verbose")
    killed.cli("run", "code_lm")
    whole = world.status("code_lm")["release"]
    # the first release of the other world: its second one has other words
    history = world.cli("release", "history", "code_lm")
    assert killed.status("code_lm")["release"]["version"][:12] in history
    assert whole["decision"] == "passed"
