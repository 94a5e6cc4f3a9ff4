"""The first event of a node: which program it runs, and on what. Another than asked for stops."""

import os

from ml_assets.spec.program import MeasureRequest, Request, ScoreRequest, TrainRequest
from ml_assets.spec.program.identity import (
    Node,
    Program,
    difference,
    machine_here,
    part_of,
    program_here,
    versions_here,
)
from ml_assets.training.events import EventWriter
from ml_assets.training.stop import BadRequest

_TOLD = ("lightgbm", "ml_assets", "numpy", "pydantic", "safetensors", "torch")


def introduce(request: Request, events: EventWriter) -> None:
    """Tell it, by the node's first process, before anything else is done.

    Raises:
        BadRequest: the session is of another program.
    """
    if int(os.environ.get("LOCAL_RANK", "0")) > 0:
        return
    family = "" if isinstance(request, ScoreRequest) else request.model.family
    here = program_here(part_of(request.verb, family))
    machine = machine_here(_gpus(request))
    index = int(os.environ.get("JOB_COMPLETION_INDEX") or os.environ.get("GROUP_RANK") or 0)
    events.began(index, Node(program=here, versions=versions_here(_TOLD), machine=machine))
    wanted = request.program
    said = difference(wanted, here) if wanted is not None else ""
    if wanted is not None and said:
        raise BadRequest(_refusal(wanted, here, said))


def _refusal(wanted: Program, here: Program, said: str) -> str:
    return (
        f"this is another program than the session's: {said}. The session is of {wanted}; here is"
        f" {here}. Run both from one commit and lock: build the training image of the version that"
        " asks and name it by digest in ML_ASSETS_TRAINING_IMAGE, or ask with the version of the"
        " image"
    )


def _gpus(request: Request) -> list[str]:
    """The GPUs that this node's processes compute on: trees, scores and examinations need none."""
    if not isinstance(request, TrainRequest | MeasureRequest) or request.model.family == "lightgbm":
        return []
    import torch

    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not torch.cuda.is_available() or torch.cuda.device_count() < processes:
        return []
    return [torch.cuda.get_device_name(number) for number in range(processes)]
