"""A program's identity: what decides bits is in it, on whichever machine it is asked for."""

import shutil

import pytest

from ml_assets.spec.reached_code import PACKAGE
from ml_assets.spec.training_program import identity
from ml_assets.spec.training_program.identity import Program, difference, program_here


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package, and of the lock beside it."""
    root = tmp_path_factory.mktemp("upgrade")
    shutil.copytree(PACKAGE, root / "ml_assets", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE.parent / "requirements.lock", root)
    return root / "ml_assets"


@pytest.fixture
def edited(package):
    """Appends to a file of the copy, or replaces in it, and takes it back."""
    before = {}

    def edit(name, new, old=None):
        file = package / name
        before.setdefault(file, file.read_text())
        text = before[file]
        assert old is None or old in text
        file.write_text(text + new if old is None else text.replace(old, new, 1))
        return package

    yield edit
    for file, text in before.items():
        file.write_text(text)


@pytest.mark.parametrize(
    ("name", "new", "old"),
    [
        ("training/staging/pod.py", "\nANOTHER = 1\n", None),
        ("training/train.py", "\n# a comment\n", None),
        ("training/losses.py", '"""Other words.', '"""'),
        ("training/events.py", "def began_now", "def began"),
        ("spec/gates.py", "\nANOTHER = 1\n", None),
        ("training/boosting/train.py", "\nANOTHER = 1\n", None),
    ],
)
def test_what_decides_no_number_of_a_network_is_not_in_its_program(edited, name, new, old):
    assert program_here("network", edited(name, new, old)) == program_here("network")


def test_what_decides_a_number_is_in_it(edited):
    lower = "dtype=torch.float32"
    changed = edited("training/distributed/ranks.py", lower, "dtype=torch.float64")
    assert program_here("network", changed).sources != program_here("network").sources
    assert program_here("trees", changed) == program_here("trees")


def test_an_orchestrator_without_torch_counts_it_as_the_lock_pins_it(monkeypatch):
    here, real = program_here("network"), identity.installed
    monkeypatch.setattr(identity, "installed", lambda n: None if n == "torch" else real(n))
    assert program_here("network") == here


def test_a_build_for_another_device_is_the_same_program(monkeypatch):
    here = program_here("network")
    monkeypatch.setattr(identity, "installed", lambda n: f"{here.versions[n]}+cu126")
    assert program_here("network") == here


def test_another_version_is_told_and_what_is_not_installed_is_not():
    asked = Program(sources="1" * 64, versions={"lightgbm": "4.7.0", "torch": "2.13.0"})
    there = Program(sources="1" * 64, versions={"torch": "2.12.1"})
    assert difference(asked, there) == "torch is 2.12.1, not 2.13.0"
    assert "its sources are 222222222222" in difference(
        asked, Program(sources="2" * 64, versions={})
    )
