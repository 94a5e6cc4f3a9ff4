"""A million files taken in by reference: processor time and memory per object, nothing copied.

    python benchmarks/references.py [--objects 1000000]

``read`` makes the table, ``look`` is what a tick of the landing sensor does. Each is measured in a
process of its own, with the whole number and a tenth of it, so that what every process needs for
its libraries is not counted. Then `ml-assets run` takes as many in and publishes their table.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from figures import tell

from ml_assets.assets.raw_snapshot.readers.read import look, read_source
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import FilesSource
from ml_assets_tests.worlds import digits

FOLDER = 1000
"""Files of one folder."""
SOURCE = FilesSource.model_validate(
    {
        "kind": "files",
        "path": "{partition}/{camera}/*.jpg",
        "format": "binary",
        "columns": {
            "path": "string",
            "bytes": "int64",
            "modified": "datetime",
            "etag": "string",
            "camera": "string",
        },
        "key": ["path"],
        "contract": "c.json",
    }
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=3, metavar=("FOLDER", "PARTITION", "WHAT"))
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sizes = {"tenth": arguments.objects // 10, "whole": arguments.objects}
        for partition, count in sizes.items():
            lay_out(root / partition, count)
        found = {
            (what, partition): in_a_process(root, partition, what)
            for what in ("read", "look")
            for partition in sizes
        }
    for what, most in (("read", 20), ("look", 15)):
        tenth, whole = found[what, "tenth"], found[what, "whole"]
        tell(f"references_{what}_us_per_object", whole["seconds"] / sizes["whole"] * 1e6, most)
        grown = (whole["peak"] - tenth["peak"]) / (sizes["whole"] - sizes["tenth"])
        tell(f"references_{what}_bytes_per_object", grown, 300 if what == "read" else 20)
    published(arguments.objects)


def published(count: int) -> None:
    """Seconds, memory and bytes of publishing the table of so many files by the command line."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        digits.plant(root / "pipelines", root / "sources")
        lay_out(root / "sources" / "images", count, ".pgm")
        places = {"HOME": "home", "SOURCES": "sources", "PIPELINES": "pipelines"}
        asked = {f"ML_ASSETS_{name}": str(root / place) for name, place in places.items()}
        command = [sys.executable, "-m", "ml_assets.cli.main", "run", "digits"]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--through", "raw_snapshot"],
            env=os.environ | asked,
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"ml-assets run ended with status {status}")
        seconds = time.monotonic() - began
        largest = max(f.stat().st_size for f in (root / "home").rglob("*") if f.is_file())
    print(f"references_publish_seconds {seconds:.0f}")
    print(
        f"references_publish_cpu_us_per_object {(used.ru_utime + used.ru_stime) / count * 1e6:.1f}"
    )
    print(f"references_publish_peak_mib {used.ru_maxrss / 1024:.0f}")
    tell("references_table_bytes_per_object", largest / count, 300)


def lay_out(folder: Path, count: int, ending: str = ".jpg") -> None:
    """Empty files, a thousand a folder."""
    for begin in range(0, count, FOLDER):
        camera = folder / f"camera_{begin // FOLDER:05}"
        camera.mkdir(parents=True)
        for number in range(begin, min(begin + FOLDER, count)):
            (camera / f"frame_{number:08}{ending}").touch()


def in_a_process(root: Path, partition: str, what: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(root), partition, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measure(folder: str, partition: str, what: str) -> dict[str, float]:
    """Seconds of the processor, and the peak of the process's memory in bytes."""
    now = datetime.now(UTC)
    window = PartitionWindow(partition, now, now)
    begin = time.process_time()
    if what == "read":
        read_source("images", SOURCE, Path(folder), _no_sql, window)
    else:
        source = SOURCE.model_copy(update={"path": f"{partition}/*/*.jpg", "partitioned": False})
        look("images", source, Path(folder), _no_sql, None).receipt(None)
    seconds = time.process_time() - begin
    return {"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _no_sql(name: str) -> str:
    raise ValueError(name)


if __name__ == "__main__":
    main()
