"""A session's name: everything that decides the result is in it, and nothing else."""

import dataclasses
import re

import pytest

from ml_assets.launch.launcher import MeasureJob, SanityJob, ScoreJob, TrainJob
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_launcher import (
    measure_request,
    sanity_request,
    score_request,
    train_request,
)
from ml_assets.launch.session_name import (
    sanity_session,
    score_session,
    train_session,
    training_asked,
)
from ml_assets.spec.augmentation import Augmentation, Curriculum
from ml_assets.spec.training import Mlp, ProfileSpec, Spot, TrainingSpec
from ml_assets.spec.training_program import Ref, World
from ml_assets.spec.training_program.identity import Program
from ml_assets_tests.training.networks import MODEL as NETWORK
from ml_assets_tests.training.networks import code

DATA, MODEL = Ref(uri="/data", digest="d" * 64), Ref(uri="/model", digest="e" * 64)


def train_job(**training):
    return TrainJob("demo", Mlp(family="mlp"), TrainingSpec(**training), DATA)


def test_the_name_is_short_and_says_what_it_is():
    assert re.fullmatch(r"demo-train-[0-9a-f]{20}", train_session(train_job()))


@pytest.mark.parametrize(
    "same",
    [
        {"processes": 1},
        {"strategy": "replicate"},
        {"keep_last": 5},
        {"keep_best": 3},
        {"checkpoint_minutes": 20.0},
        {"profile": ProfileSpec(at=5)},
        {"checkpoint_every": 7},
        {"prefetch": True},
        {"spot": Spot(notice_seconds=120, write_mb_per_second=100)},
    ],
)
def test_how_the_work_is_spread_and_what_is_kept_is_not_in_it(same):
    assert train_session(train_job(**same)) == train_session(train_job())


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"threads": 2},
        {"epochs": 3},
        {"precision": "bf16"},
        {"compile": True},
        {"max_steps": 5},
        {"betas": (0.9, 0.95)},
        {"communication_hook": "powersgd"},
        {"augmentation": Augmentation(noise=0.1)},
        {"curriculum": Curriculum(column="x")},
    ],
)
def test_what_decides_the_bits_is_in_it(other):
    assert train_session(train_job(**other)) != train_session(train_job())


@pytest.mark.parametrize(
    "other",
    [
        {"data": Ref(uri="/data", digest="a" * 64)},
        {"model": Mlp(family="mlp", width=7)},
        {"salt": "x"},
        {"init": MODEL},
        {"teacher": MODEL},
        {"pipeline": "other"},
    ],
)
def test_another_job_is_another_session(other):
    assert train_session(dataclasses.replace(train_job(), **other)) != train_session(train_job())


def test_where_the_data_lies_is_not_in_it():
    moved = dataclasses.replace(train_job(), data=Ref(uri="/elsewhere", digest=DATA.digest))
    assert train_session(moved) == train_session(train_job())


def test_the_same_training_by_another_program_is_another_session():
    older = Program(sources="0" * 64, versions={"torch": "2.12.0"})
    asked = dataclasses.replace(train_job(), program=older)
    assert train_session(asked) != train_session(train_job())
    assert training_asked(asked) == training_asked(train_job())


@pytest.mark.parametrize(
    "other",
    [{"model": DATA}, {"data": MODEL}, {"split": "validation"}, {"threads": 2}],
)
def test_a_score_is_named_by_model_rows_split_and_threads(other):
    job = ScoreJob("demo", MODEL, DATA, "holdout")
    assert score_session(dataclasses.replace(job, **other)) != score_session(job)


def sanity_job(**training):
    return SanityJob("demo", Mlp(family="mlp"), TrainingSpec(**training), DATA)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"epochs": 3}, True),
        ({"learning_rate": 0.1}, True),
        ({"processes": 1}, False),  # one process by itself takes other rows
        ({"processes": 1, "batch_size": 1536, "microbatches": 12}, True),
        ({"precision": "bf16"}, False),
        ({"seed": 1}, False),
        ({"positive_weight": 2.0}, False),
    ],
)
def test_what_neither_checks_nor_pace_hang_on_is_not_in_its_name(changed, same):
    assert (sanity_session(sanity_job(**changed)) == sanity_session(sanity_job())) is same


def test_other_data_or_another_network_is_examined_anew():
    job = sanity_job()
    others = [{"data": MODEL}, {"model": Mlp(family="mlp", width=7)}, {"pipeline": "other"}]
    names = {sanity_session(dataclasses.replace(job, **other)) for other in others}
    assert len(names | {sanity_session(job)}) == 4


def test_all_that_a_job_asks_for_stands_in_its_request(tmp_path):
    own, spec = code(tmp_path / "pipeline"), TrainingSpec(processes=1)
    asked = [
        (train_request, TrainJob("demo", NETWORK, spec, DATA, init=MODEL, teacher=DATA, code=own)),
        (score_request, ScoreJob("demo", MODEL, DATA, "holdout", code=own)),
        (measure_request, MeasureJob("demo", NETWORK, spec, DATA, 5, code=own)),
        (sanity_request, SanityJob("demo", NETWORK, spec, DATA, code=own, deep=True)),
    ]
    not_asked = {"pipeline", "salt", "cluster", "spot", "threads", "program", "evidence"}
    for request_of, job in asked:
        request = request_of(job, SessionFolder(tmp_path / "session"), 1, World())
        for field in {field.name for field in dataclasses.fields(job)} - not_asked:
            assert getattr(request, field) == getattr(job, field), field
