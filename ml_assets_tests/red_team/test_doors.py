"""Every door into a stage asks for the same: a model that one of them refused finds no other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ml_assets.actions.verify import verify_pipelines
from ml_assets.assets.released_model.rollback import Returned, RollbackRequest, return_to
from ml_assets.errors import EvidenceError
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.settings import read_settings
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.red_team.conftest import NAME, SPEC, Scene, keep, scene_of

LAX = SPEC.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
NEXT = LAX.replace("epochs: 30", "epochs: 29")
"""Another model, which passes whatever it is like."""


def rolled_back(place: Pipeline, to: str | None = None) -> Returned:
    tracking = Tracking(place.settings.tracking_uri, place.settings.home)
    return return_to(place, tracking, RollbackRequest("eve", "because", to), print)


def features(scene: Scene) -> Path:
    return scene.world.pipelines / NAME / "features.py"


@pytest.fixture(scope="module")
def second(made: Scene) -> Scene:
    """A second model passed the gates of a spec that asked for little; it is not released."""
    with pytest.MonkeyPatch.context() as patch:
        scene = scene_of(made, "refused", NEXT, patch)  # the model that is refused there
        scene.world.cli("run", NAME, "--through", "evaluation_report")
        keep(scene.world, "second")
    return made


@pytest.fixture
def strict_again(second: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """The spec asks again for what it had asked for."""
    scene = scene_of(second, "second", SPEC, monkeypatch)
    assert scene.in_production not in (None, scene.candidate)
    yield scene


def test_a_model_that_was_never_released_is_not_rolled_back_to(strict_again: Scene) -> None:
    before = strict_again.in_production
    assert "than the present ones" in strict_again.materialize("released_model"), "by a run neither"
    with pytest.raises(EvidenceError, match="was never released to production"):
        rolled_back(strict_again.place, strict_again.candidate[:12])
    assert strict_again.in_production == before


def test_sources_are_held_where_a_model_goes_back(
    second: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(second, "second", NEXT, monkeypatch)
    first = scene.in_production
    assert scene.materialize("released_model") == ""
    assert scene.in_production == scene.candidate
    with monkeypatch.context() as patch:
        patch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "elsewhere"))
        with pytest.raises(EvidenceError, match="raw_snapshot/raw_flowers was read from"):
            rolled_back(open_pipeline(NAME, read_settings()))
    assert scene.in_production == scene.candidate
    assert rolled_back(scene.place).entry.model == first == scene.in_production


@pytest.mark.daemon
def test_features_that_were_edited_for_a_training_and_put_back_do_not_release_it(
    made: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(made, "released", NEXT, monkeypatch)
    before, honest = scene.in_production, features(scene).read_text()
    leak = 'tables["flowers"].with_columns(pl.col("petal_length") * 2)'
    features(scene).write_text(honest.replace('tables["flowers"]', leak))
    assert features(scene).read_text() != honest
    try:
        scene.world.cli("run", NAME, "--through", "evaluation_report")
    finally:
        features(scene).write_text(honest)
    said = scene.materialize("released_model")
    assert "irises/feature_set: made by other code or another spec than the present ones" in said
    assert scene.in_production == before != scene.candidate


def _in_spec(old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        spec = folder / "defs.yaml"
        assert old in spec.read_text()
        spec.write_text(spec.read_text().replace(old, new))

    return edit


def _features(folder: Path) -> None:
    file = folder / "features.py"
    file.write_text(file.read_text().replace("return tables", "pl.col('x')\n    return tables"))


def _contract(folder: Path) -> None:
    file = folder / "flowers.json"
    assert '"max_value": 10' in file.read_text()
    file.write_text(file.read_text().replace('"max_value": 10', '"max_value": 11'))


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "the features": (_features, "feature_set"),
    "the contract": (_contract, "validated_table/flowers"),
    "the split": (_in_spec("holdout: 0.3", "holdout: 0.25"), "training_set"),
    "the label": (
        _in_spec("[setosa, versicolor, virginica]", "[versicolor, setosa, virginica]"),
        "training_set",
    ),
    "the training": (_in_spec("learning_rate: 0.01", "learning_rate: 0.02"), "trained_model"),
    "the evaluation": (
        _in_spec("bootstrap_samples: 200", "bootstrap_samples: 201"),
        "evaluation_report",
    ),
}


@pytest.fixture
def folder(made: Scene) -> Iterator[Path]:
    """The pipeline's, put back afterwards; its spec each scene writes anew."""
    found = made.world.pipelines / NAME
    before = {file: file.read_bytes() for file in found.iterdir() if file.is_file()}
    yield found
    for file, content in before.items():
        file.write_bytes(content)


@pytest.mark.parametrize("what", EDITS)
def test_a_model_made_by_other_code_or_another_spec_is_not_released(
    folder: Path, passed: Scene, what: str
) -> None:
    edit, stage = EDITS[what]
    edit(folder)
    said = passed.materialize("released_model")
    assert "than the present ones" in said
    assert stage in said.split(": made by other code")[0]
    assert passed.in_production is None


def test_verify_says_that_the_code_has_moved_on_and_refuses_nothing(
    folder: Path, released: Scene
) -> None:
    [whole] = verify_pipelines(released.world.settings, NAME, None)
    [code] = [check for check in whole.checks if check.name == "code"]
    assert (code.outcome, code.reason) == ("ok", "made by the present spec and code")
    _features(folder)
    [moved] = verify_pipelines(released.world.settings, NAME, None)
    [code] = [check for check in moved.checks if check.name == "code"]
    assert moved.holds and code.outcome == "note"
    assert "than the present ones: irises/feature_set" in code.reason


LENIENT = """
from ml_assets.assets.released_model.gates import champion, quality

def lenient(honest):
    return lambda *asked: honest(*asked).model_copy(update={"passed": True})

quality.bound, champion.champion = lenient(quality.bound), lenient(champion.champion)
"""


@pytest.mark.daemon
def test_a_teams_code_that_changes_the_gates_where_they_decide_is_told_by_verify(
    folder: Path, refused: Scene
) -> None:
    """It runs in the process that decides, so it can; another one, without such code, tells."""
    features(refused).write_text(features(refused).read_text() + LENIENT)
    _in_spec("epochs: 29", "epochs: 28")(folder)
    said = refused.world.cli("run", NAME)
    assert refused.in_production == refused.candidate, said
    said = refused.world.streams("release", "verify", NAME, code=3).stdout
    assert "refused  gates: decided again on the same report" in said, said
    assert "too_good" in said, said


def test_verify_decides_again(released: Scene) -> None:
    [whole] = verify_pipelines(released.world.settings, NAME, None)
    [gates] = [check for check in whole.checks if check.name == "gates"]
    assert gates.outcome == "ok"


def test_a_champion_that_cannot_be_used_is_told_before_a_training(released: Scene) -> None:
    models = Path(released.world.settings.objects) / "models"
    (weights,) = models.glob(f"{released.in_production}/weights.safetensors")
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    done = released.world.streams("run", NAME, "--fresh", code=1)
    assert "weights.safetensors" in done.stderr
    assert "__train" not in done.stdout
