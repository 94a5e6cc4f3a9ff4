"""The name of a session: a digest of everything that decides its result, and of nothing else."""

from ml_assets.launch.launcher import Job, MeasureJob, SanityJob, ScoreJob, TrainJob
from ml_assets.spec.base import digest_of
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.sanity import alone
from ml_assets.spec.training_program.identity import Program, part_of, program_here

SESSIONS_TAG = "ml_assets/sessions"
"""Tag of a run: the sessions of the training program that it asked for, with spaces between."""

NOT_IN_THE_RESULT = {
    "processes",
    "strategy",
    "activation_checkpointing",
    "parallel",
    "prefetch",
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
    "order",
    "block_rows",
    "block_window",
    "recalibrate",
    "init_from",
    "epochs",
    "batch_size",
    "microbatches",
    "learning_rate",
    "warmup",
    "schedule",
    "precision",
    "gradient_precision",
    "communication_hook",
    "communication_rank",
    "cpu_offload",
    "max_steps",
    "augmentation",
    "ensemble",
    "distill",
    "curriculum",
    "compile",
    "accumulate",
    "clip_norm",
    "evaluate_every",
    "patience",
}
"""What no sanity check reads: a spec that changes only these is not examined again."""
_PACE = {"batch_size", "microbatches", "accumulate", "precision", "compile", "distill"}
"""What the pace of one process hangs on, which is measured with the checks."""


def train_session(job: TrainJob) -> str:
    """The same spec, data, seed and program is the same session, on any number of processes."""
    return _named(job.pipeline, _training(job), program_of(job))


def training_asked(job: TrainJob) -> str:
    """A digest of what is asked for, whichever program does it."""
    return digest_of({"pipeline": job.pipeline, **_training(job)})


def _training(job: TrainJob) -> dict[str, object]:
    return {
        "verb": "train",
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json", exclude=NOT_IN_THE_RESULT),
        "data": job.data.digest,
        "init": job.init.digest if job.init else None,
        "salt": job.salt,
        **({"teacher": job.teacher.digest} if job.teacher else {}),
        **({"members": [one.digest for one in job.members]} if job.members else {}),
        **({} if job.steps is None else {"steps": job.steps}),
        **({"evidence": True} if job.evidence else {}),
        **_code(job.code),
    }


def score_session(job: ScoreJob) -> str:
    """The same model on the same rows is the same session."""
    plain = {
        "verb": "score",
        "model": job.model.digest,
        "data": job.data.digest,
        "split": job.split,
        "threads": job.threads,
    }
    return _named(job.pipeline, plain, program_of(job))


def measure_session(job: MeasureJob) -> str:
    """The spread of the work is what is measured, so all of it is in the name."""
    plain = {
        "verb": "measure",
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json"),
        "data": job.data.digest,
        "steps": job.steps,
        **_code(job.code),
    }
    return _named(job.pipeline, plain, program_of(job))


def sanity_session(job: SanityJob) -> str:
    """The same network, rows and code are the same session, however long it then trains."""
    plain = {
        "verb": "sanity",
        "model": job.model.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json", exclude=_NOT_IN_SANITY),
        "alone": alone(job.training).model_dump(mode="json", include=_PACE),
        "data": job.data.digest,
        **_code(job.code),
        **({"deep": True} if job.deep else {}),
    }
    return _named(job.pipeline, plain, program_of(job))


def program_of(job: Job) -> Program:
    """The program that a session is of: it is started from the files as they are now."""
    match job:
        case TrainJob():
            return job.program or program_here(part_of("train", job.model.family))
        case ScoreJob():
            return program_here("score")
        case MeasureJob():
            return program_here("measure")
        case SanityJob():
            return program_here("sanity")


def _code(code: NetworkCode | None) -> dict[str, object]:
    return {"code": code.digest} if code else {}


def _named(pipeline: str, asked: dict[str, object], program: Program) -> str:
    parts = {"pipeline": pipeline, **asked, "program": program.digest}
    return f"{pipeline}-{asked['verb']}-{digest_of(parts)[:20]}"
