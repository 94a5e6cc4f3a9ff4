"""A million files taken in by reference: processor time and memory per object, nothing copied.

    python benchmarks/references.py [--objects 1000000]

``read`` makes the table, ``look`` is what a tick of the landing sensor does, and ``publish`` is
``ml-assets run --through raw_snapshot``: the table read, published in the embedded store, its page
drawn. Each is measured in a process of its own, with the whole number and a tenth of it, so that
what every process needs for its libraries is not counted.
"""

import argparse
import json
import os
import random
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
        for partition in sizes:
            found["publish", partition] = published(root, partition)
    more = sizes["whole"] - sizes["tenth"]
    for what, most, bound in (("read", 20, 300), ("look", 15, 20), ("publish", 50, 300)):
        tenth, whole = found[what, "tenth"], found[what, "whole"]
        tell(f"references_{what}_us_per_object", whole["seconds"] / sizes["whole"] * 1e6, most)
        grown = (whole["peak"] - tenth["peak"]) / more
        tell(f"references_{what}_bytes_per_object", grown, bound)
    laid = found["publish", "whole"]["kept"] - found["publish", "tenth"]["kept"]
    tell("references_publish_bytes_on_disk_per_object", laid / more, 300)


def lay_out(folder: Path, count: int) -> None:
    """Files without content, a thousand a folder, whose sizes and times are all their own."""
    draw = random.Random(count)
    for begin in range(0, count, FOLDER):
        camera = folder / f"camera_{begin // FOLDER:05}"
        camera.mkdir(parents=True)
        for number in range(begin, min(begin + FOLDER, count)):
            file = camera / f"frame_{number:08}.jpg"
            with file.open("wb") as made:
                made.truncate(draw.randrange(10**6, 10**7))  # takes no room
            moment = draw.randrange(10**18, 2 * 10**18)
            os.utime(file, ns=(moment, moment))


def in_a_process(root: Path, partition: str, what: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(root), partition, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def published(root: Path, partition: str) -> dict[str, float]:
    """Seconds of the processor, peak memory in bytes, and bytes of the state folder afterwards."""
    pipeline, home = root / "pipelines" / "digits", root / f"home-{partition}"
    pipeline.mkdir(parents=True, exist_ok=True)
    spec = digits.SPEC.replace("images/{digit}/*.pgm", "'{digit}/*.jpg'")
    (pipeline / "defs.yaml").write_text(spec)
    (pipeline / "features.py").write_text(digits.FEATURES)
    (pipeline / "images.json").write_text(json.dumps(digits.CONTRACT))
    apart = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    places = {"HOME": home, "SOURCES": root / partition, "PIPELINES": pipeline.parent}
    environment = {**apart, **{f"ML_ASSETS_{name}": str(place) for name, place in places.items()}}
    command = [sys.executable, "-m", "ml_assets.cli.main", "run", "digits"]
    command += ["--through", "raw_snapshot"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    kept = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    seconds = used.ru_utime + used.ru_stime
    return {"seconds": seconds, "peak": used.ru_maxrss * 1024, "kept": kept}


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
