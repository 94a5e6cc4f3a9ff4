"""Whether the demo's release is the same, bit for bit, as the one that was kept.

    ml-assets demo && python benchmarks/bits.py

reads the release of the state folder (ML_ASSETS_HOME) through ``ml-assets status --json`` and holds
weights, table versions, metrics and gates to ``benchmarks/results/bits.json``. ``--keep`` adds this
release to that file. Latency, throughput and memory are measured anew each time, so they do not
count. Another kind of processor sums in another order: the tables and the decision are the same on
each, weights and metrics are kept for each kind of its own.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "results" / "bits.json"
MEASURED = ("latency", "throughput", "memory", "cost")
"""Gates whose value is a measurement of this machine."""
DATA = ("raw_snapshot", "validated_table", "derived_table", "feature_set")
EVERYWHERE = ("tables", "reason", "stage")
"""The parts that are equal on every kind of processor."""


def main() -> int:
    """Print each part of the release and whether it is the one that was kept; 1 where it is not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pipeline", nargs="?", default="flight_delays")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} anew")
    asked = parser.parse_args()
    found, here = release_of(asked.pipeline), processor()
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {"processors": {}}
    if asked.keep:
        kept |= {part: found.pop(part) for part in EVERYWHERE}
        kept["processors"][here] = found
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
        return 0
    expected = {part: kept[part] for part in EVERYWHERE} | kept["processors"].get(here, {})
    for part in sorted(found.keys() & expected.keys()):
        same = found[part] == expected[part]
        print(f"bits_{part}", "same" if same else f"{found[part]} was {expected[part]}")
    if here not in kept["processors"]:
        print(f"No weights are kept for this kind of processor, {here}: --keep adds them.")
    return 0 if found == expected else 1


def processor() -> str:
    """Vendor, family and model of this machine's processor; its architecture where none is told."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    told = dict(tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line)
    names = ("vendor_id", "cpu family", "model")
    found = [told[name] for name in names if name in told]
    return " ".join(found) if len(found) == len(names) else platform.machine()


def release_of(pipeline: str) -> dict[str, Any]:
    """Weights, table versions, metrics and gates of the pipeline's release."""
    command = [sys.executable, "-m", "ml_assets.cli.main", "status", pipeline, "--json"]
    status = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    release = status["release"]
    home = Path(os.environ.get("ML_ASSETS_HOME", ".ml_assets"))
    model = home / "objects" / "models" / release["version"]
    weights = (model / "weights.safetensors").read_bytes()
    gates = [_gate(gate) for gate in release["gates"] if gate["name"] not in MEASURED]
    return {
        "weights": hashlib.sha256(weights).hexdigest(),
        "tables": _tables(status["stages"]),
        "metrics": release["metrics"],
        "gates": {gate.pop("name"): gate for gate in gates},
        "reason": release["reason"],
        "stage": release["stage"],
    }


def _gate(gate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: gate[name] for name in ("name", "passed", "value", "bound") if name in gate}


def _tables(stages: list[Mapping[str, Any]]) -> dict[str, str]:
    """A digest for each table, of its partitions' versions."""
    versions: dict[str, list[str]] = defaultdict(list)
    for stage in stages:
        _, kind, *source = stage["key"].split("/")
        if kind in DATA:
            name = "/".join([kind, *(part.removeprefix("raw_") for part in source)])
            versions[name].append(f"{stage['partition']} {stage['version']}")
    lines = {name: "\n".join(sorted(rows)).encode() for name, rows in versions.items()}
    return {name: hashlib.sha256(rows).hexdigest() for name, rows in lines.items()}


if __name__ == "__main__":
    sys.exit(main())
