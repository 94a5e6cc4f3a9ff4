"""The requirements on every network, ours too: checked on a few rows, in two processes.

Every promise about a network that passes (exact resumes, any number of processes, an export that
predicts the same) rests on them. ``ml-assets check --deep`` checks a team's own network.
"""

import copy
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ml_assets.errors import counted
from ml_assets.spec.parallel import Parallel
from ml_assets.spec.sanity import SanityCheck, SanityName
from ml_assets.spec.team_modules import is_team_module
from ml_assets.spec.training import TrainingSpec, outputs_of
from ml_assets.spec.training_program import MeasureRequest, SanityRequest, ShardSchema
from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.distributed.strategies import lowered
from ml_assets.training.losses import row_weights, training_losses
from ml_assets.training.models.batch_norm import GhostBatchNorm
from ml_assets.training.models.families import code_of, fresh_network
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network
from ml_assets.training.models.team import RowDropout
from ml_assets.training.optimization import learning_rate, make_optimizer, rates_of
from ml_assets.training.rows.loader import Lane, Loader
from ml_assets.training.sanity.subject import Subject, drawing, generators, verdict
from ml_assets.training.sanity.untrained import gradients, no_batch_leak
from ml_assets.training.step import Stepper, StopFlags, assemble, changes_of, open_batches
from ml_assets.training.stop import TeamCodeFailed
from ml_assets.training.telemetry import Stopwatch

_ROWS = 24
_STEPS, _HALF = 4, 2
_CLOSE = 1e-5
"""How far losses and gradient norms may be from those of one process, relative to them."""
_DRAWS = "it draws from a global generator"
_NOT_OF_CHANCE: tuple[SanityName, ...] = ("no_batch_leak", "shards", "resumes")
_NOT_STATE = {"_parameters", "_modules", "_buffers", "_non_persistent_buffers_set"}


def conform(
    subject: Subject, request: SanityRequest, folder: Path, schema: ShardSchema, ranks: Ranks
) -> tuple[SanityCheck, ...]:
    """All checks, in their order; on every rank the same."""
    trials = _Trials(subject, request, folder, schema, ranks)
    checks: dict[SanityName, Callable[[], SanityCheck]] = {
        "shapes": lambda: shapes(subject, schema),
        "dtypes": lambda: dtypes(subject),
        "state": lambda: state(subject),
        "deterministic": lambda: deterministic(subject, request, schema),
        "no_batch_leak": lambda: no_batch_leak(subject, deep=True),
        "gradients": lambda: gradients(subject),
        "shards": trials.shards,
        "resumes": trials.resumes,
    }
    found: list[SanityCheck] = []
    for name, check in checks.items():
        draws = any(one.name == "deterministic" and _DRAWS in one.reason for one in found)
        if draws and name in _NOT_OF_CHANCE:
            said = "Not judged: the network draws random numbers itself, so no output is repeated."
            found.append(
                SanityCheck(name=name, outcome="warned", value=None, bound=0.0, reason=said)
            )
            continue
        found.append(_asked(name, check))
    return tuple(found)


def _asked(name: SanityName, check: Callable[[], SanityCheck]) -> SanityCheck:
    try:
        return check()
    except Exception as error:  # a network may raise anything: that is how it failed
        said = f"It raised {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        return SanityCheck(name=name, outcome="failed", value=None, bound=0.0, reason=said)


def shapes(subject: Subject, schema: ShardSchema) -> SanityCheck:
    """Logits [n, members, outputs], finite, of one row as of many."""
    network, wrong = subject.clone().eval(), list[str]()
    outputs = outputs_of(schema.task, schema.classes)
    for count in (1, 3, _ROWS):
        rows = subject.batch(count)
        with torch.no_grad():
            try:
                logits = network(rows.numeric, rows.categorical, None)
            except TeamCodeFailed as error:
                wrong.append(str(error).removeprefix("The network returned ").split(";")[0])
                continue
        if logits.dim() != 3 or (len(logits), logits.shape[-1]) != (len(rows.label), outputs):
            wrong.append(f"{tuple(logits.shape)} for {counted(len(rows.label), 'row')}")
        elif not bool(torch.isfinite(logits).all()):
            wrong.append(f"values that are not finite for {counted(len(rows.label), 'row')}")
    saw = f"The logits of 1, 3 and {_ROWS} rows have the shape (rows, members, {outputs})."
    if wrong:
        saw = f"It returned {'; '.join(wrong)}; expected (rows, members, {outputs}), finite."
    return verdict("shapes", float(len(wrong)), 0.0, saw, "Keep the rows as the first dimension.")


def dtypes(subject: Subject) -> SanityCheck:
    """Parameters in float32, and a pass in the precision of the training."""
    network = subject.clone()
    named = [*network.named_parameters(), *network.named_buffers()]
    other = [n for n, t in named if t.is_floating_point() and t.dtype != torch.float32]
    rows = subject.batch(_ROWS)
    forward = lowered(network, subject.spec.precision)
    logits = forward(rows.numeric, rows.categorical, Masks((0,), (len(rows.label),)))
    logits.sum().backward()
    if logits.dtype != torch.float32:
        other.append(f"logits ({logits.dtype})")
    saw = f"Its numbers are float32, and it computes in {subject.spec.precision}."
    if other:
        saw = f"{', '.join(other[:5])} are not float32; expected float32 throughout."
    remedy = "Training keeps float32, and does the computing in training.precision itself."
    return verdict("dtypes", float(len(other)), 0.0, saw, remedy)


def state(subject: Subject) -> SanityCheck:
    """A pass leaves nothing behind, and every tensor is a parameter or a buffer."""
    network, rows = subject.clone(), subject.batch(_ROWS)
    held = dict(_held(network))
    loose = [name for name, value in held.items() if isinstance(value, torch.Tensor)]
    loose = [name for name in loose if name not in dict(network.named_buffers())]
    before = {**held, **dict(_globals(network))}
    subject.mean_loss(
        network(rows.numeric, rows.categorical, Masks((0,), (len(rows.label),))), rows
    ).backward()
    after = {**dict(_held(network)), **dict(_globals(network))}
    changed = [name for name in {**before, **after} if not _same(before, after, name)]
    told = [f"{name} (a tensor that is neither)" for name in loose]
    told += [f"{name} (changed in the pass)" for name in changed if name not in loose]
    saw = "A pass leaves nothing behind, and every tensor is a parameter or a buffer."
    if told:
        listed = ", ".join(told[:5]) + _more(told)
        saw = f"It holds state outside of parameters and constant buffers: {listed}."
    remedy = (
        "A training that resumes begins without it, and ranks would each have their own. Make it a"
        " parameter, or a buffer that the pass does not change (register_buffer). Those of"
        " nn.BatchNorm1d, 2d and 3d move once a step, alike on all ranks."
    )
    return verdict("state", float(len(told)), 0.0, saw, remedy)


def _more(told: list[str]) -> str:
    return f" and {len(told) - 5} more" if len(told) > 5 else ""


def _held(network: nn.Module) -> Iterator[tuple[str, object]]:
    """Everything that a network's modules hold besides parameters: copies, by name.

    Of what we put into it the buffers alone: a pass tells it its microbatches.
    """
    for path, module in network.named_modules():
        own = {} if isinstance(module, RowDropout | GhostBatchNorm) else vars(module)
        for name, value in {**own, **dict(module.named_buffers(recurse=False))}.items():
            if name not in _NOT_STATE and "hooks" not in name and not callable(value):
                yield f"{path}.{name}".strip("."), copy.deepcopy(_plain(value))


def _globals(network: nn.Module) -> Iterator[tuple[str, object]]:
    """Copies of what the team's files hold beside the network, by file and name."""
    names = {type(module).__module__ for module in network.modules()}
    for name in sorted(filter(is_team_module, names)):
        for variable, value in vars(sys.modules[name]).items():
            known = isinstance(value, list | dict | int | float | torch.Tensor)
            if known and not variable.startswith("__"):
                file = f"{name.partition('.')[2].replace('.', '/')}.py"
                yield f"{variable} of {file}", copy.deepcopy(_plain(value))


def _plain(value: object) -> object:
    """What can be copied and compared; of anything else its type."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    return value if isinstance(value, bool | int | float | str | None) else type(value)


def _same(before: dict[str, object], after: dict[str, object], name: str) -> bool:
    one, other = before.get(name), after.get(name)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list | dict):
        return repr(one) == repr(other)
    return type(one) is type(other) and bool(one == other)


def deterministic(subject: Subject, request: SanityRequest, schema: ShardSchema) -> SanityCheck:
    """The same seed builds the same weights, the same rows give the same bits, nothing is drawn."""
    seed = subject.spec.seed
    built = [fresh_network(request.model, seed, schema, code_of(request)) for _ in range(2)]
    names = [
        name
        for (name, one), other in zip(
            built[0].named_parameters(), built[1].parameters(), strict=True
        )
        if not torch.equal(one, other)
    ]
    wrong = [f"the initial values of {', '.join(names[:3])} differ"] if names else []
    drawn = generators()
    passes = [_pass(subject) for _ in range(2)]
    if any((one != other).any() for one, other in zip(drawn, generators(), strict=True)):
        wrong.append(_DRAWS + drawing(subject, _ROWS))
    if not all(torch.equal(one, other) for one, other in zip(*passes, strict=True)):
        wrong.append("the same rows give other logits or gradients")
    saw = "The same rows give the same bits twice, and it draws no random numbers itself."
    if wrong:
        saw = f"It is not a function of its weights and rows: {'; '.join(wrong)}."
    remedy = (
        "Build with torch's generator alone; drop out by nn.Dropout (not Dropout1d, 2d, 3d), whose"
        " masks are drawn for each row and step, and draw nothing else in the pass."
    )
    return verdict("deterministic", float(len(wrong)), 0.0, saw, remedy)


def _pass(subject: Subject) -> list[torch.Tensor]:
    """Logits and gradients of the first rows, with masks."""
    network, rows = subject.clone(), subject.batch(_ROWS)
    masks = Masks((subject.spec.seed,), (len(rows.label),))
    logits = network(rows.numeric, rows.categorical, masks)
    subject.mean_loss(logits, rows).backward()
    found = [p.grad for p in network.parameters() if p.grad is not None]
    return [logits.detach(), *found]


class _Trials:
    """Short trainings on the same rows: by one process, sharded, replicated, resumed."""

    def __init__(
        self,
        subject: Subject,
        request: SanityRequest,
        folder: Path,
        schema: ShardSchema,
        ranks: Ranks,
    ) -> None:
        self._subject, self._request = subject, request
        self._folder, self._schema, self._ranks = folder, schema, ranks

    def shards(self) -> SanityCheck:
        """Losses and gradient norms of each strategy, held to those of one process.

        What the spec does not ask for warns.
        """
        alone, wrong, asked = self._alone(), list[str](), self._subject.spec.strategy
        strategies = ["replicate"] if self._subject.spec.optimizer == "adafactor" else []
        failed, worst = False, 0.0
        for strategy in strategies or ("shard", "replicate"):
            try:
                gap = _gap(alone, _taken(self._stepper(strategy), 0, _STEPS))
            except Exception as error:  # as above
                wrong.append(f"{strategy}: {type(error).__name__}: {' '.join(str(error).split())}")
                failed = failed or strategy == asked or asked == "hybrid"
                break  # the ranks may have stopped at different places
            worst = max(worst, gap)
            if gap > _CLOSE:
                wrong.append(f"{strategy}: losses or gradients {gap:.1e} away from one process")
                failed = failed or strategy == asked or asked == "hybrid"
        saw = f"{self._ranks.world} processes come to the losses of one, sharded and replicated."
        if wrong:
            saw = f"It does not train on {self._ranks.world} processes as on one. {wrong[0][:600]}."
        remedy = (
            " Call each layer as a module, never its weights from outside; make a parameter of no"
            " dimension one of [1]; do not change parameters in the pass."
        )
        outcome = "passed" if not wrong else "failed" if failed else "warned"
        reason = saw + (remedy if wrong else "")
        value = worst if math.isfinite(worst) else None
        return SanityCheck(name="shards", outcome=outcome, value=value, bound=_CLOSE, reason=reason)

    def resumes(self) -> SanityCheck:
        """A fresh network that takes up a saved state goes on with the same bits."""
        stepper = self._stepper(self._subject.spec.strategy)
        _taken(stepper, 0, _HALF)
        saved = copy.deepcopy(get_state_dict(stepper.network, stepper.optimizer))
        whole = _taken(stepper, _HALF, _STEPS)
        again = self._stepper(self._subject.spec.strategy)
        set_state_dict(
            again.network,
            again.optimizer,
            model_state_dict=saved[0],
            optim_state_dict=saved[1],
        )
        resumed = _taken(again, _HALF, _STEPS)
        saw = f"Resumed at step {_HALF} it continues with the same bits."
        if whole != resumed:
            saw = f"Resumed at step {_HALF} its losses are {resumed}; expected {whole}, to the bit."
        remedy = "Something that it learns by is in no parameter and no buffer: see state."
        return verdict("resumes", float(whole != resumed), 0.0, saw, remedy)

    def _spec(self, strategy: str) -> TrainingSpec:
        spec = self._subject.spec
        parallel = spec.parallel.over(self._ranks.world) if strategy == "shard" else Parallel()
        exact = {name: TrainingSpec.model_fields[name].default for name in _OTHER_NUMBERS}
        return spec.model_copy(update={**exact, "strategy": strategy, "parallel": parallel})

    def _network(self) -> Network:
        seed = self._subject.spec.seed
        return fresh_network(self._request.model, seed, self._schema, code_of(self._request))

    def _training(self, strategy: str) -> MeasureRequest:
        asked = self._request
        return MeasureRequest(
            session=asked.session,
            attempt=asked.attempt,
            data=asked.data,
            world=asked.world,
            model=asked.model,
            training=self._spec(strategy),
            steps=_STEPS,
            output=asked.output,
        )

    def _stepper(self, strategy: str) -> Stepper:
        if strategy == "hybrid":  # two processes are one group
            strategy = "shard"
        request = self._training(strategy)
        return assemble(request, self._network(), self._folder, self._schema, self._ranks)

    def _alone(self) -> list[tuple[float, float]]:
        """(loss, gradient norm) of each step, in this process by plain torch."""
        request, schema = self._training("replicate"), self._schema
        spec, task, network = request.training, schema.task, self._network()
        optimizer, rates = make_optimizer(network, spec), rates_of(network, spec)
        batches = open_batches(request, self._folder, schema, Stopwatch())
        steps = batches.steps_per_epoch * spec.epochs
        steps = min(steps, spec.max_steps or steps)
        changes, lane = changes_of(network, spec, schema), Lane(0, 1, torch.device("cpu"))
        loader = Loader(batches, changes, lane, steps, ahead=False)
        found: list[tuple[float, float]] = []
        for step in range(_STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss = weight = 0.0
            for number in range(spec.accumulate):
                share = loader.take(step, number)
                rows = share.rows
                weights = row_weights(rows, task, spec.positive_weight, spec.class_weights)
                weights = weights if share.counted else torch.zeros_like(weights)
                logits = network(rows.numeric, rows.categorical, share.masks)
                each = (training_losses(network, logits, rows, task, spec) * weights).sum()
                each.backward()
                loss, weight = loss + float(each.detach()), weight + float(weights.sum())
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(weight)
            norm = float(nn.utils.clip_grad_norm_(network.parameters(), spec.clip_norm))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * learning_rate(spec, step, steps)
            optimizer.step()
            found.append((loss / weight, norm))
        return found


_OTHER_NUMBERS = (
    "precision",
    "gradient_precision",
    "communication_hook",
    "compile",
    "cpu_offload",
    "augmentation",
    "curriculum",
    "profile",
)
"""What a plain loop does not do, and another number of processes does otherwise."""


def _taken(stepper: Stepper, first: int, last: int) -> list[tuple[float, float]]:
    """(loss, gradient norm) of the steps before ``last``."""
    done = [
        stepper.take(step, None, lambda: StopFlags(notice=False, checkpoint_due=False))
        for step in range(first, last)
    ]
    return [(one.loss, one.grad_norm) for one in done]


def _gap(alone: list[tuple[float, float]], found: list[tuple[float, float]]) -> float:
    """The largest relative difference; infinite where one is no number."""
    pairs: list[tuple[Any, Any]] = list(zip(np.ravel(alone), np.ravel(found), strict=True))
    gaps = [abs(a - b) / max(1.0, abs(a)) for a, b in pairs]
    return max((gap if math.isfinite(gap) else math.inf for gap in gaps), default=0.0)
