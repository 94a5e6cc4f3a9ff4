"""python -m ml_assets.training {train,score,measure,sanity} --request request.json

Exit codes: 0 done, 64 bad request, 65 bad data, 66 non-finite, 67 a team's network fails, 69 a
package is missing, 70 our bug, 71 another process was lost, 72 ranks that differ, 73 out of memory,
74 not saved (disk full, store away), 75 saved after a notice, 76 another process no longer
answered, 77 a newer attempt has the session. What happens next is in docs/operate.md.
Under torchrun, which exits 1 for everything, the code is in the last ``error`` event.
"""

import argparse
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from ml_assets.errors import StoreAway
from ml_assets.spec.network_code import code_folder
from ml_assets.spec.team_modules import line_in
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import (
    MeasureRequest,
    Request,
    SanityRequest,
    ScoreRequest,
    TrainRequest,
)
from ml_assets.spec.training_program.exit_codes import (
    EXIT_BAD_REQUEST,
    EXIT_BUG,
    EXIT_DONE,
    EXIT_NOT_SAVED,
    EXIT_OUT_OF_MEMORY,
    EXIT_TEAM_CODE,
)
from ml_assets.spec.training_program.identity import (
    Node,
    Program,
    difference,
    machine_here,
    part_of,
    program_here,
    versions_here,
)
from ml_assets.spec.training_program.pod import REQUESTS, shell_code
from ml_assets.training.diagnosis import LESS_MEMORY, is_out_of_memory
from ml_assets.training.events import REFUSED_BY_DISK, EventWriter
from ml_assets.training.orphans import end_with_parent
from ml_assets.training.peers import failures, generation, ranks_here, standing_verdict
from ml_assets.training.stop import BadRequest, Stopped, peer_trouble

_REPORTED = (
    "lightgbm",
    "ml_assets",
    "numpy",
    "pydantic",
    "safetensors",
    "torch",
    "xgboost",
    "xgboost-cpu",
)
"""Distributions whose versions a node reports."""


def main() -> int:
    """Parse, run one verb, and turn what stopped it into an exit code and an event."""
    parser = argparse.ArgumentParser(prog="python -m ml_assets.training", description=__doc__)
    parser.add_argument("verb", choices=["train", "score", "measure", "sanity"])
    parser.add_argument("--request", required=True, type=Path, help="the request, a JSON file")
    arguments = parser.parse_args()
    try:
        request = REQUESTS.validate_json(arguments.request.read_bytes())
    except (OSError, ValidationError) as error:
        sys.stderr.write(f"bad request {arguments.request}: {error}\n")
        return EXIT_BAD_REQUEST
    if request.verb != arguments.verb:
        sys.stderr.write(f"bad request {arguments.request}: it is for {request.verb!r}\n")
        return EXIT_BAD_REQUEST
    end_with_parent()
    if sys.platform == "linux":  # what ps shows: its command line is that of its torchrun
        Path("/proc/self/comm").write_text(f"rank{os.environ.get('RANK', '0')}")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch: else not deterministic
    return _run(request)


def _run(request: Request) -> int:
    rank = int(os.environ.get("RANK", "0"))
    if generation() > 0:
        told = failures(Path(request.output.events))
        verdict = standing_verdict(told, int(os.environ["WORLD_SIZE"]), ranks_here())
        if verdict is not None:
            return verdict
    events = EventWriter(Path(request.output.events), request.session, request.attempt, rank)
    try:
        if generation() == 0:
            report_node(request, events)
        if isinstance(request, TrainRequest):
            _train(request, events)
        elif isinstance(request, MeasureRequest):
            from ml_assets.training.measure_pace import measure

            measure(request, events)
        elif isinstance(request, SanityRequest):
            from ml_assets.training.sanity.suite import sanity

            sanity(request, events)
        else:
            from ml_assets.training.score import score

            score(request, events)
    except Stopped as stop:
        events.failed(stop.exit_code, str(stop), stop.step, detail="")
        return stop.exit_code
    except StoreAway as error:
        events.failed(EXIT_NOT_SAVED, str(error), None, detail="")
        return EXIT_NOT_SAVED
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the last line of defence; torch has errors that are no others
        if is_out_of_memory(error):
            reason = f"memory ran out: {error}. {LESS_MEMORY}"
            events.failed(EXIT_OUT_OF_MEMORY, reason, None, detail=traceback.format_exc())
            return EXIT_OUT_OF_MEMORY
        if isinstance(error, OSError) and error.errno in REFUSED_BY_DISK:
            reason = f"{error.filename or 'a file'} could not be written: {error.strerror}"
            events.failed(EXIT_NOT_SAVED, reason, None, detail="")
            return EXIT_NOT_SAVED
        reason, detail = f"{type(error).__name__}: {error}", traceback.format_exc()
        if where := _in_team_code(request, error):
            reason = f"{where}: it raised {reason}"
            events.failed(EXIT_TEAM_CODE, reason, None, detail=detail)
            return EXIT_TEAM_CODE
        events.failed(EXIT_BUG, reason, None, detail=detail)
        return EXIT_BUG
    return EXIT_DONE


def _in_team_code(request: Request, error: BaseException) -> str:
    """The last line of a team's network that an error went through, by its file there.

    Empty: it went through none, or is that of a collective within one, whose other rank was lost.
    """
    if request.code is None or not isinstance(error, Exception) or peer_trouble(error):
        return ""
    return line_in(code_folder(Path(request.output.events).parent, request.code), error)


def _train(request: TrainRequest, events: EventWriter) -> None:
    """Each family is imported where it is asked for: a boosted model loads no torch."""
    if isinstance(request.model, Boosted):
        from ml_assets.training.boosting.train import train
    else:
        from ml_assets.training.train import train
    train(request, events)


def report_node(request: Request, events: EventWriter) -> None:
    """Report what this node runs, and on what, before anything else is done.

    Raises:
        BadRequest: the session is of another program.
    """
    if int(os.environ.get("LOCAL_RANK", "0")) > 0:
        return
    family = "" if isinstance(request, ScoreRequest) else request.model.family
    here = program_here(part_of(request.verb, family))
    machine = machine_here(_gpus(request))
    index = int(os.environ.get("JOB_COMPLETION_INDEX") or os.environ.get("GROUP_RANK") or 0)
    events.began(index, Node(program=here, versions=versions_here(_REPORTED), machine=machine))
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
    """The GPUs that this node's processes compute on: trees, scores and sanity checks need none."""
    if not isinstance(request, TrainRequest | MeasureRequest):
        return []
    if isinstance(request.model, Boosted):
        return []
    import torch

    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not torch.cuda.is_available() or torch.cuda.device_count() < processes:
        return []
    return [torch.cuda.get_device_name(number) for number in range(processes)]


def run() -> NoReturn:
    """Do what the command line says, and end without taking anything down.

    A thread of a save, or of gloo, may wait for ever, and at the interpreter's end torch may abort
    a group: so this is the one way in which the process of a rank ends by itself.
    """
    code = 1  # that nobody could report
    try:
        code = main()
    except SystemExit as stop:  # of the command line's parser
        code = stop.code if isinstance(stop.code, int) else EXIT_BAD_REQUEST
    except KeyboardInterrupt:
        code = shell_code(-signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    run()
