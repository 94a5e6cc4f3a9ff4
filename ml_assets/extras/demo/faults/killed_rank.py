"""A process of a training is killed: it resumes, and ends in the weights of an undisturbed one."""

from ml_assets.automation.resume_drill import CHECK
from ml_assets.extras.demo.faults.ground import Ground, InjectionResult


def plant(ground: Ground) -> InjectionResult:
    """Train twice, kill a process of the second, and compare the weights."""
    ground.prepare(_unchanged)
    made = ground.command("run", ground.pipeline, "--through", "training_set")
    ground.tell("two short trainings follow, without words; a process of the second is killed")
    drilled = ground.command("ops", "drill", ground.pipeline)
    said = drilled.line(f"{CHECK}: ").partition(f"{CHECK}: ")[2]
    held = made.code == 0 and drilled.code == 0 and "bit for bit" in said
    return InjectionResult(
        held,
        "SIGKILL to one process of a training of two, at a random step",
        f"torchrun and the checkpoints: {said or 'nothing'}",
        "resumed with the same weights" if held else "NOT RESUMED WITH THE SAME WEIGHTS",
        ground.look(f"ops drill {ground.pipeline}"),
    )


def _unchanged(_: object) -> None:
    """The pipeline as it is, over fewer weeks."""
