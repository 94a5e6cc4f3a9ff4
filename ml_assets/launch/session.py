"""The name of a session: a digest of everything that decides its result, and of nothing else."""

import hashlib
import importlib.util
from pathlib import Path

from ml_assets.launch.launcher import MeasureJob, SanityJob, ScoreJob, TrainJob
from ml_assets.spec.canonical import digest_of

SESSIONS_TAG = "ml_assets/sessions"
"""Tag of a run: the sessions of the training program that it asked for, with spaces between."""

NOT_IN_THE_RESULT = {
    "processes",
    "strategy",
    "checkpoint_minutes",
    "checkpoint_every",
    "spot",
    "keep_last",
    "keep_best",
    "hang_timeout_seconds",
    "profile",
}
"""How the work is spread, what is saved when, what is kept and what is looked at: the attempt's
record has them."""

_NOT_IN_SANITY = NOT_IN_THE_RESULT | {
    "oversample",
    "recalibrate",
    "init_from",
    "epochs",
    "batch_size",
    "microbatches",
    "learning_rate",
    "warmup",
    "schedule",
    "precision",
    "accumulate",
    "clip_norm",
    "evaluate_every",
    "patience",
}
"""What no sanity check reads: a spec that changes only these is not examined again."""


def train_session(job: TrainJob) -> str:
    """The same spec, data, seed and code is the same session, on any number of processes."""
    return _named(
        job.pipeline,
        {
            "verb": "train",
            "model": job.model.model_dump(mode="json"),
            "training": job.training.model_dump(mode="json", exclude=NOT_IN_THE_RESULT),
            "data": job.data.digest,
            "init": job.init.digest if job.init else None,
            "code": program_digest(),
            "salt": job.salt,
            **({} if job.steps is None else {"steps": job.steps}),
        },
    )


def score_session(job: ScoreJob) -> str:
    """The same model on the same rows is the same session."""
    return _named(
        job.pipeline,
        {
            "verb": "score",
            "model": job.model.digest,
            "data": job.data.digest,
            "split": job.split,
            "threads": job.threads,
            "code": program_digest(),
        },
    )


def measure_session(job: MeasureJob) -> str:
    """How the work is spread is what is measured: all of it is in the name."""
    plain = {
        "verb": "measure",
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json"),
        "data": job.data.digest,
        "steps": job.steps,
        "code": program_digest(),
    }
    return _named(job.pipeline, plain)


def sanity_session(job: SanityJob) -> str:
    """The same network, rows and code are the same session, however long it then trains."""
    plain = {
        "verb": "sanity",
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json", exclude=_NOT_IN_SANITY),
        "data": job.data.digest,
        "code": program_digest(),
    }
    return _named(job.pipeline, plain)


def program_digest() -> str:
    """Digest of the sources of the training program and of the types it shares; not imported.

    Read anew each time (a few milliseconds): the program is started from the files as they are now,
    also by a code server that was started before they changed.
    """
    digests: dict[str, str] = {}
    for package in ("ml_assets.training", "ml_assets.spec"):
        found = importlib.util.find_spec(package)
        assert found is not None and found.submodule_search_locations
        root = Path(found.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            name = f"{package}/{path.relative_to(root).as_posix()}"
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    lock = Path(__file__).parents[2] / "requirements.lock"
    if lock.is_file():
        digests["requirements.lock"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    return digest_of(digests)


def _named(pipeline: str, parts: dict[str, object]) -> str:
    verb = str(parts["verb"])
    return f"{pipeline}-{verb}-{digest_of({'pipeline': pipeline, **parts})[:20]}"
