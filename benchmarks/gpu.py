"""The program on a GPU, beside plain loops: python benchmarks/gpu.py

First the ceiling: the fastest product of bf16 matrices. Then the presets of the language model
(FSDP2, bf16, compiled blocks): tokens a second, MFU (see ``model_flops_utilization``), memory; in
turns with a loop as nanoGPT has it: the whole network compiled, autocast, fused AdamW, all logits
at once. Then the flights' model, widened until the card is busy, and the stall of a checkpoint.

Without a GPU all of it runs at the size of a toy, to show that it runs: that is no measurement, and
no figure is told. One figure a line: NAME VALUE AIM holds|short.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from figures import tell
from generated import train_request, training_set
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from ml_assets.actions.gpus import GPUS
from ml_assets.spec.gpt import Gpt, parameter_count
from ml_assets.spec.training import TabM, TrainingSpec
from ml_assets.spec.training_program import Ref, ShardSchema
from ml_assets.training.checkpoints.save import Checkpoints
from ml_assets.training.checkpoints.whole_checkpoints import CheckpointFiles
from ml_assets.training.distributed.ranks import Ranks, join, leave
from ml_assets.training.events import EventWriter
from ml_assets.training.models.gpt import (
    GptNetwork,
    flops_per_token,
    model_flops_utilization,
)
from ml_assets.training.models.network import Network
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets.training.rows.tokens import split_arrays
from ml_assets.training.step import Stepper, StopFlags, assemble, initial_network
from ml_assets.training.telemetry import gpu_utilization_pct, memory_peak_mb
from ml_assets.training.trainer_state import TrainerState
from ml_assets_tests.training.texts import text_set

NEEDS = ("gpu", "package tokenizers")

ON_GPU = torch.cuda.is_available()
BUSY_PCT = 90.0
TakeStep = Callable[[int], object]


@dataclass(frozen=True)
class Preset:
    """A language model and what of its peak it should reach."""

    model: Gpt
    windows: int
    """Of a step."""
    aim_pct: float


@dataclass(frozen=True)
class Size:
    """How much is done of everything."""

    presets: Mapping[str, Preset]
    vocabulary: int
    context: int
    texts: int
    square: int
    """Rows and columns of the matrices of the ceiling."""
    rows: int
    widths: tuple[int, ...]
    batch: int
    steps: int
    turns: int


def _preset(name: str, windows: int, aim_pct: float) -> Preset:
    return Preset(Gpt.model_validate({"family": "gpt", "preset": name}), windows, aim_pct)


FULL = Size(
    {"124m": _preset("124m", 16, 50), "350m": _preset("350m", 16, 52), "1b": _preset("1b", 8, 58)},
    vocabulary=50_257,
    context=1024,
    texts=8000,
    square=8192,
    rows=400_000,
    widths=(128, 512, 2048, 4096, 8192),
    batch=12_288,
    steps=10,
    turns=5,
)
TOY = Size(
    {"toy": Preset(Gpt(family="gpt", width=32, depth=2, heads=2), 4, 50)},
    vocabulary=600,
    context=64,
    texts=160,
    square=256,
    rows=2000,
    widths=(16,),
    batch=240,
    steps=2,
    turns=1,
)
SIZE = FULL if ON_GPU else TOY


def main() -> None:
    """Print the figures of all parts."""
    if ON_GPU:
        name = torch.cuda.get_device_name()
        print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    else:
        print("no GPU here: this is a toy on the CPU, without a compiler, and no measurement")
    ranks = join()
    try:
        ceiling = product_ceiling(ranks.device)
        print(f"product_ceiling_tflops {ceiling / 1e12:.3g}")
        with tempfile.TemporaryDirectory() as folder:
            texts = text_set(Path(folder) / "texts", SIZE.texts, SIZE.context)
            for name, preset in SIZE.presets.items():
                language_model(name, preset, Path(folder), texts, ranks, ceiling)
            data = training_set(SIZE.rows, Path(folder) / "shards")
            for width in SIZE.widths:
                if at_width(width, Path(folder) / str(width), data, ranks) >= BUSY_PCT:
                    break
    finally:
        leave()


def figure(name: str, value: float, aim: float, at: Literal["most", "least"] = "most") -> None:
    """Tell a figure; of a toy print it without its aim."""
    if ON_GPU:
        tell(name, value, aim, at=at)
    else:
        print(f"{name} {value:.3g} no measurement")


def product_ceiling(device: torch.device) -> float:
    """Operations a second of one large bf16 product, the best of some."""
    one, other = (
        torch.randn(SIZE.square, SIZE.square, device=device, dtype=torch.bfloat16) for _ in "ab"
    )
    best = min(seconds(lambda _: one @ other) for _ in range(SIZE.turns + 1))
    return 2 * SIZE.square**3 / best


def stated_peak() -> float | None:
    """The card's peak in bf16 by its maker; None: it is not in our table."""
    name = torch.cuda.get_device_name() if ON_GPU else ""
    known = [gpu for kind, gpu in GPUS.items() if kind.partition("-")[0] in name]
    return 1e12 * known[-1].low if known else None


def language_model(
    name: str, preset: Preset, folder: Path, data: Ref, ranks: Ranks, ceiling: float
) -> None:
    """Print the figures of one preset."""
    source, schema = open_set(data)
    schema = with_vocabulary(schema)
    spec = TrainingSpec(
        batch_size=preset.windows,
        microbatches=preset.windows,
        epochs=1000,
        precision="bf16",
        strategy="shard",
        processes=1,
        compile=ON_GPU,
        prefetch=ON_GPU,
    )
    request = train_request(folder / name, data, preset.model, spec)
    stepper = assemble(request, initial_network(request, schema)[0], source, schema, ranks)
    reset_memory()
    took = {"ours": seconds(taking(stepper)) and seconds(taking(stepper))}
    memory = peak_memory_mb()
    plain = plain_language(initial_network(request, schema)[0], preset, source, schema, ranks)
    seconds(plain)  # warm
    ratios = [seconds(taking(stepper)) / seconds(plain) for _ in range(SIZE.turns)]
    tokens = preset.windows * SIZE.context / took["ours"]
    flops = flops_per_token(preset.model, SIZE.vocabulary, SIZE.context)
    peak = stated_peak()
    print(f"{name}_parameters {parameter_count(preset.model, SIZE.vocabulary):,}")
    print(f"{name}_tokens_per_second {tokens:,.0f}")
    print(f"{name}_memory_peak_mb {memory:,.0f}")
    print(f"{name}_of_ceiling_pct {100 * model_flops_utilization(tokens, flops, ceiling):.1f}")
    if peak is None:
        print(f"{name}: the peak of this device is not in our table: MFU is of the ceiling above")
    used = model_flops_utilization(tokens, flops, peak or ceiling)
    figure(f"{name}_mfu_pct", 100 * used, preset.aim_pct, "least")
    figure(f"{name}_step_to_plain", statistics.median(ratios), 1.05)


def with_vocabulary(schema: ShardSchema) -> ShardSchema:
    """As if the texts had as many words: which token it is makes no step faster or slower."""
    tokens = schema.preprocessing.tokens
    assert tokens is not None
    more = tokens.model_copy(update={"size": SIZE.vocabulary})
    words = schema.preprocessing.model_copy(update={"tokens": more})
    return schema.model_copy(update={"preprocessing": words})


def taking(stepper: Stepper) -> TakeStep:
    """Steps as the program takes them, whole ones alone."""
    batches = stepper.batches
    full = max(1, batches.draws // batches.batch_size)
    return lambda step: stepper.take(step % full, None, lambda: StopFlags(False, False))


def plain_language(
    network: Network, preset: Preset, source: Path, schema: ShardSchema, ranks: Ranks
) -> TakeStep:
    """What one writes by hand: windows in memory, one compiled function, no look at the loss."""
    assert isinstance(network, GptNetwork)
    network = network.to(ranks.device)
    rows = split_arrays(source, schema, "train")
    whole = rows.take_units(torch.arange(min(rows.units, 64 * preset.windows)).numpy())
    windows = torch.from_numpy(whole.categorical).long().to(ranks.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3, fused=True)

    def loss_of(chosen: torch.Tensor) -> torch.Tensor:
        hidden = network.hidden(chosen[:, :-1])
        logits = linear(hidden, network.embedding.weight, network.output_bias[0])
        said = logits[..., : SIZE.vocabulary].flatten(0, 1)
        return cross_entropy(said, chosen[:, 1:].flatten(), ignore_index=-1)

    compiled = torch.compile(loss_of) if ON_GPU else loss_of

    def take(step: int) -> None:
        begin = step * preset.windows % (len(windows) - preset.windows + 1)
        with torch.autocast(ranks.device.type, torch.bfloat16):
            loss = compiled(windows[begin : begin + preset.windows].clamp(min=0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return take


def at_width(width: int, folder: Path, data: Ref, ranks: Ranks) -> float:
    """Print the figures of one width of the flights' model; how busy the card was, in percent."""
    spec = TrainingSpec(
        batch_size=SIZE.batch,
        microbatches=24,
        strategy="replicate",
        processes=1,
        precision="bf16",
    )
    model = TabM(family="tabm", width=width, depth=2, members=12, dropout=0.0)
    request = train_request(folder, data, model, spec)
    _, schema = open_set(data)
    network, _ = initial_network(request, schema)
    stepper = assemble(request, network, Path(data.uri), schema, ranks)
    plain = plain_loop(data, schema, initial_network(request, schema)[0], spec, ranks)
    ours = taking(stepper)
    reset_memory()
    seconds(ours), seconds(plain)  # both warm
    ratios = [seconds(ours) / seconds(plain) for _ in range(SIZE.turns)]
    took = seconds(ours)
    busy = 0.0
    if ON_GPU:
        uuid = str(torch.cuda.get_device_properties(ranks.device).uuid)
        busy = gpu_utilization_pct(uuid) or 0.0
    print(f"width_{width}_rows_per_second {SIZE.batch / took:,.0f}")
    print(f"width_{width}_gpu_utilization_pct {busy:.0f}")
    print(f"width_{width}_memory_peak_mb {peak_memory_mb():,.0f}")
    figure(f"width_{width}_step_to_plain", statistics.median(ratios), 1.05)
    events = EventWriter(folder / "events.jsonl", "session", 1, 0)
    checkpoints = Checkpoints(CheckpointFiles(request, events, ranks.world), ranks, lambda: None)
    figure(f"width_{width}_stall_to_save", stall(checkpoints, stepper), 0.15)
    return busy


def seconds(take: TakeStep) -> float:
    """Wall time of one step, the mean of some; the card has finished them."""
    _finish()
    began = time.perf_counter()
    for step in range(SIZE.steps):
        take(step)
    _finish()
    return (time.perf_counter() - began) / SIZE.steps


def _finish() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def reset_memory() -> None:
    """Forget what was held at most; of the CPU nothing is forgotten."""
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> float:
    """The most that tensors held on the card, in MB (10^6 bytes); on the CPU, of the process."""
    return torch.cuda.max_memory_allocated() / 1e6 if ON_GPU else memory_peak_mb()


def plain_loop(
    data: Ref, schema: ShardSchema, network: Network, spec: TrainingSpec, ranks: Ranks
) -> TakeStep:
    """What one writes by hand: autocast, fused AdamW, no look at the loss."""
    network = network.to(ranks.device)
    optimizer = make_optimizer(network, spec)
    arrays = SplitArrays(Path(data.uri), schema, "train")
    batches = Batches(arrays, spec.seed, spec.batch_size, spec.microbatches)

    def take(step: int) -> None:
        rows, _, _ = batches.share(step, 0, 1)
        there = rows.to(ranks.device)
        with torch.autocast(ranks.device.type, torch.bfloat16):
            logits = network(there.numeric, there.categorical, None)[..., 0]
        target = there.label[:, None].expand_as(logits)
        loss = binary_cross_entropy_with_logits(logits.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), spec.clip_norm)
        optimizer.step()

    return take


def stall(checkpoints: Checkpoints, stepper: Stepper) -> float:
    """How long training stands still for a save, of what the whole save takes; the median."""
    found: list[float] = []
    for turn in range(4):
        began = time.perf_counter()
        checkpoints.save(stepper.network, stepper.optimizer, TrainerState(step=turn), {})
        stood = time.perf_counter() - began
        checkpoints.finish()
        found.append(stood / (time.perf_counter() - began))
    checkpoints.close()
    return statistics.median(found[1:])  # the first one warms up


if __name__ == "__main__":
    main()
