"""The ``sanity`` verb: every check that applies to this model, in one process, in seconds.

After Karpathy, "A Recipe for Training Neural Networks" (2019). The same spec, data and seed give
the same answers.
"""

import time
from collections.abc import Callable

import torch

from ml_assets.spec.sanity import Alone, NetworkSize, SanityCheck, SanityName, sanity_checks
from ml_assets.spec.training import Boosted, Module
from ml_assets.spec.training_program import SanityRequest, SanityResult
from ml_assets.training.distributed.ranks import join, leave, wait_at_most
from ml_assets.training.events import EventWriter
from ml_assets.training.models.families import code_of, fresh_network
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.rows.training_split import open_training_split
from ml_assets.training.sanity.learning import beats_zero_inputs, overfits_one_batch
from ml_assets.training.sanity.subject import Subject, network_size
from ml_assets.training.sanity.untrained import gradients, loss_at_init, no_batch_leak, output_bias
from ml_assets.training.stop import BadRequest
from ml_assets.training.telemetry import Stopwatch

_ALONE: dict[SanityName, Callable[[Subject], SanityCheck]] = {
    "loss_at_init": loss_at_init,
    "output_bias": output_bias,
    "no_batch_leak": no_batch_leak,
    "gradients": gradients,
    "overfits_one_batch": overfits_one_batch,
}
"""``beats_zero_inputs`` asks how the one before it ended."""
_LONGEST_STEP = 60.0
"""Seconds that a rank waits for another one in a deep check."""


def sanity(request: SanityRequest, events: EventWriter) -> None:
    """Examine, and write the result: a check that fails is a result, not an error.

    Raises:
        BadRequest: the model's family has no checks.
    """
    began = time.monotonic()
    if isinstance(request.model, Boosted):
        raise BadRequest("Boosted trees have no sanity checks.")
    torch.set_num_threads(request.world.threads)
    torch.set_deterministic_debug_mode("error")
    subject = admit(request)
    checks = deep(request, subject) if request.deep else examine(subject)
    if checks is None:
        return
    result = SanityResult(
        session=request.session,
        attempt=request.attempt,
        checks=checks,
        seconds=time.monotonic() - began,
        alone=None if request.deep else _pace(request, subject),
        size=_size(subject),
    )
    events.finished(result, request.output.result)


def _pace(request: SanityRequest, subject: Subject) -> Alone | None:
    from ml_assets.training.measure_pace import pace_alone  # a second more to load

    return pace_alone(request, subject.folder, subject.schema)


def _size(subject: Subject) -> NetworkSize | None:
    """Of a network that fails on these rows too: none; its checks say so."""
    if not isinstance(subject.model, Module):
        return None
    try:
        return network_size(subject)
    except Exception:  # a team's code may raise anything
        return None


def deep(request: SanityRequest, subject: Subject) -> tuple[SanityCheck, ...] | None:
    """Return what every network has to keep; None on all ranks but the first."""
    from ml_assets.training.sanity.conformance import conform  # a second more to load

    ranks = join()
    wait_at_most(_LONGEST_STEP, ranks)
    try:
        checks = conform(subject, request, subject.folder, subject.schema, ranks)
    finally:
        leave()
    return checks if ranks.rank == 0 else None


def admit(request: SanityRequest) -> Subject:
    """The network and the rows that the training of this request would begin with."""
    folder, schema = open_set(request.data, request.splits)
    network = fresh_network(request.model, request.training.seed, schema, code_of(request))
    rows, _ = open_training_split(request, folder, schema, Stopwatch())
    held_out = split_arrays(folder, schema, "validation")
    return Subject(network, request.model, request.training, folder, schema, rows, held_out)


def examine(subject: Subject) -> tuple[SanityCheck, ...]:
    """The checks in their order; none changes what another sees."""
    wanted = sanity_checks(subject.model, subject.task)
    found = {name: check(subject) for name, check in _ALONE.items() if name in wanted}
    learns = found["overfits_one_batch"].outcome == "passed"
    found["beats_zero_inputs"] = beats_zero_inputs(subject, learns=learns)
    return tuple(found[name] for name in wanted)
