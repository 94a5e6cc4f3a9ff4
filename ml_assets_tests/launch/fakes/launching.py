"""A process that launches a session, for a test to kill: ``launching.py OBJECTS PLAN``."""

import sys
from pathlib import Path

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.spec.training import Mlp, TrainingSpec
from ml_assets.spec.training_program import Ref

PROGRAM = Path(__file__).with_name("program.py")


def launcher(objects, plan, grace=20.0):
    return LocalLauncher(Path(objects), (sys.executable, str(PROGRAM), str(plan)), grace)


def job(**changes):
    training = TrainingSpec(**{"processes": 1, **changes})
    return TrainJob("demo", Mlp(family="mlp"), training, Ref(uri="/data", digest="d" * 64))


if __name__ == "__main__":
    launcher(sys.argv[1], sys.argv[2]).train(
        job(), lambda event: print(event.attempt, event.seq, event.kind, flush=True)
    )
