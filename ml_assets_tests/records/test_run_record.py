"""The run record: complete, and the same digest exactly when the same was asked for."""

import json
import subprocess
from datetime import UTC, datetime

import pytest

from ml_assets.records import run_record as recording
from ml_assets.records.run_record import (
    RunRecord,
    environment,
    record_bytes,
    run_input,
    run_record,
    run_tags,
)
from ml_assets.settings import read_settings
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program import World


@pytest.fixture(scope="module")
def found():
    return environment(read_settings())


def source(version="v1", partition="2013-01-07"):
    return StageRecord(
        key="delays/raw_snapshot/raw_flights",
        partition=partition,
        run_key="11" * 32,
        code_version="c",
        data_version=version,
        rows=7,
        inputs=(),
        run="run-0",
        time=datetime.now(UTC),
    )


def make(found, *, seed=1, version="v1", to="production", run="run-1"):
    return run_record(
        found,
        pipeline="delays",
        session="5e" * 32,
        run=run,
        config=ReleaseSpec(to=to),
        seed=seed,
        inputs=(run_input(source(version), "c0ffee"),),
        outputs={"model": "aa" * 32},
        metrics={"auc": 0.73},
        world=World(procs=2),
    )


def test_the_environment_says_what_ran_and_on_what(found):
    assert found.python.startswith("CPython 3.")
    assert found.packages["mlflow"]
    assert set(recording.MAIN_PACKAGES) <= set(found.packages)
    assert len(found.code.sources) == 64
    assert found.lock is not None
    assert found.machine.cores >= 1
    assert found.machine.cpu


def test_a_record_survives_being_stored(found):
    record = make(found)
    assert RunRecord.model_validate_json(record_bytes(record)) == record
    assert record.inputs[0].path == "records/delays/raw_snapshot/raw_flights/2013-01-07.json"
    assert record.inputs[0].rows == 7
    assert record.config == json.loads(ReleaseSpec().model_dump_json())


def test_the_same_question_has_the_same_digest_whoever_asks(found):
    assert make(found).reproduces == make(found, run="run-2").reproduces


@pytest.mark.parametrize("other", [{"seed": 2}, {"version": "v2"}, {"to": "staging"}])
def test_another_question_has_another_digest(found, other):
    assert make(found).reproduces != make(found, **other).reproduces


def test_other_sources_or_another_lock_have_another_digest(found):
    code = found.code.model_copy(update={"sources": "99" * 32})
    for moved in ({"code": code}, {"lock": "99" * 32}):
        assert make(found.model_copy(update=moved)).reproduces != make(found).reproduces


def test_the_tags_are_enough_to_search_by(found):
    tags = run_tags(make(found))
    assert tags["data.delays/raw_snapshot/raw_flights.2013-01-07"] == "v1"
    assert tags["data.commit"] == "c0ffee"
    assert tags["output.model"] == "aa" * 32
    assert tags["seed"] == "1"
    assert tags["env.torch"] == found.packages["torch"]
    assert all(isinstance(value, str) and value for value in tags.values())


# --- git ------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that holds a package, in place of this one."""
    package = tmp_path / "ml_assets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    git(tmp_path, *who, "commit", "-q", "--no-verify", "-m", "first")
    monkeypatch.setattr(recording, "_PACKAGE", package)
    monkeypatch.setattr(recording, "_PROJECT", tmp_path)
    return tmp_path


def git(folder, *arguments):
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_clean_checkout_is_named_by_its_commit(checkout):
    code = environment(read_settings()).code
    assert code.git_sha == git(checkout, "rev-parse", "HEAD")
    assert (code.dirty, code.changes) == (False, None)


def test_a_changed_file_makes_it_dirty(checkout):
    clean = environment(read_settings()).code.sources
    (checkout / "ml_assets" / "__init__.py").write_text("x = 1\n")
    code = environment(read_settings()).code
    assert code.dirty is True
    assert code.changes
    assert code.sources != clean
    assert b"+x = 1" in recording.uncommitted()


def test_an_untracked_file_makes_it_dirty(checkout):
    (checkout / "ml_assets" / "new.py").write_text("x = 1\n")
    assert environment(read_settings()).code.dirty is True
    assert b"untracked ml_assets/new.py 6\n" in recording.uncommitted()


def test_a_package_installed_below_a_strangers_checkout_is_not_named_by_it(checkout, monkeypatch):
    installed = checkout / "venv" / "ml_assets"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (checkout / ".gitignore").write_text("venv\n")
    monkeypatch.setattr(recording, "_PACKAGE", installed)
    monkeypatch.setattr(recording, "_PROJECT", installed.parent)
    code = environment(read_settings()).code
    assert (code.git_sha, code.dirty, code.changes) == (None, None, None)
    assert len(code.sources) == 64


def test_without_git_and_lock_the_record_is_still_made(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = environment(read_settings())
    assert found.code.git_sha is None
    assert found.lock is None
    assert make(found).reproduces
