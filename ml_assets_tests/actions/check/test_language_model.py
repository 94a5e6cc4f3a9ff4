"""A language model that cannot be trained here is told before a run: its memory, its compiler."""

import shutil
from pathlib import Path

import pytest

from ml_assets.actions.check.check import all_mistakes, missing_here
from ml_assets.settings import SHOWN_AFTER_DEMO, read_settings
from ml_assets.spec.memory_estimate import Room

SETTINGS = read_settings()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHOWN_AFTER_DEMO / "code" / "code_lm", tmp_path / "code_lm"))


def say(folder: Path, was: str, now: str) -> None:
    file = folder / "defs.yaml"
    text = file.read_text()
    assert was in text
    file.write_text(text.replace(was, now))


def test_one_that_does_not_fit_is_refused_with_the_sum(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(4_000_000_000, "this machine")
    monkeypatch.setattr("ml_assets.actions.check.spot_machines.machine_room", lambda: room)
    assert all_mistakes(folder, SETTINGS) == ()
    say(folder, "preset: 1m", "preset: 1b")
    (said,) = all_mistakes(folder, SETTINGS)
    assert "each process needs at least 17.1" in said  # 910 M x 16 bytes, and 4 windows
    assert "windows of 256 tokens" in said
    assert "set training.activation_checkpointing to block" in said


def test_a_compiler_that_is_not_here_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(folder, "    epochs: 1\n", "    epochs: 1\n    compile: true\n")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    (said,) = missing_here(folder, SETTINGS)
    assert "training.compile is true, and there is no C++ compiler here" in said
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert missing_here(folder, SETTINGS) == ()
