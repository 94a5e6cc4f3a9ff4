"""A day of three teams on 128 GPUs by deploy/kueue: python benchmarks/kueue.py [FOLDER]

A made-up day of jobs whose demand is above what there is, replayed by Kueue's rules of quota,
borrowing and preemption (queue_rules.py says which are followed and which are left out), with the
ClusterQueues of the folder, and once more without borrowing. No cluster and no Kueue are involved.
One figure a line: NAME VALUE AIM holds|short.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.figures import tell  # noqa: E402 - found through the line above
from benchmarks.queue_rules import read_queues  # noqa: E402
from benchmarks.queue_trace import HOUR, make_trace, replay  # noqa: E402


def main(folder: Path) -> None:
    """Print each figure with its aim."""
    queues = read_queues(folder)
    day = replay(queues, make_trace(queues))
    print(f"gpus {day.capacity}")
    tell("demand", day.wanted, 1.1, at="least")
    tell("gpu_time_used", day.used, 0.9, at="least")
    tell("guaranteed_quota_after_minutes", day.guaranteed / 60, 5)
    tell("longest_wait_hours", day.waits[-1] / HOUR, 20)
    print(f"median_wait_hours {day.waits[len(day.waits) // 2] / HOUR:.3g}")
    print(f"jobs_ended {day.ended}")
    print(f"gave_way_to_owners {day.gave_way}")
    alone = replay(queues, make_trace(queues), borrowing=False)
    print(f"without_borrowing_gpu_time_used {alone.used:.3g} (falls short of 0.9)")
    print(f"without_borrowing_longest_wait_hours {alone.waits[-1] / HOUR:.3g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "deploy" / "kueue")
