"""The same program on a GPU: close to the CPU's losses, and as exact in itself.

Skipped where there is none: nothing of it can be had on a CPU.
"""

import pytest
import torch

from ml_assets_tests.training.conftest import SPEC, Sessions
from ml_assets_tests.training.test_exactness import newest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")


def test_losses_on_the_gpu_are_those_of_the_cpu_to_1e_3(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = sessions.attempt("gpu", procs=1)
    assert there.run() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    here = sessions.attempt("cpu", procs=1)
    assert here.run() == 0
    on_gpu, on_cpu = there.validation_losses(), here.validation_losses()
    assert on_gpu.keys() == on_cpu.keys()
    assert max(abs(on_gpu[step] - on_cpu[step]) for step in on_gpu) < 1e-3


@pytest.mark.parametrize("changes", [{"cpu_offload": True}, {"prefetch": True}])
def test_where_a_step_lies_and_what_comes_ahead_changes_little(
    sessions: Sessions, changes: dict[str, bool]
) -> None:
    spec = SPEC.model_copy(update={"processes": 1})
    plain = sessions.attempt("plain", procs=1, spec=spec)
    other = sessions.attempt("other", procs=1, spec=spec.model_copy(update=changes))
    assert (plain.run(), other.run()) == (0, 0)
    one, two = plain.validation_losses(), other.validation_losses()
    assert max(abs(one[step] - two[step]) for step in one) < 1e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", ["replicate", "shard"])
def test_a_killed_training_resumes_to_the_same_bits_on_the_gpu(
    sessions: Sessions, precision: str, strategy: str
) -> None:
    spec = SPEC.model_copy(update={"precision": precision, "strategy": strategy, "processes": 1})
    whole = sessions.attempt("whole", procs=1, spec=spec)
    assert whole.run() == 0
    first = sessions.attempt("killed", procs=1, spec=spec)
    first.kill_after(15)
    again = sessions.attempt(
        "killed", number=2, procs=1, spec=spec, resume=newest(first.folder / "checkpoints")
    )
    assert again.run() == 0
    assert again.weights() == whole.weights()
