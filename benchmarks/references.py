"""A million files taken in by reference: processor time and memory per object, nothing copied.

    python benchmarks/references.py [--objects 1000000]

``read`` makes the table, ``look`` is what a tick of the landing sensor does, and ``publish`` is
``ml-assets run --through raw_snapshot``: the table read, published in the embedded store, its page
drawn. ``publish_s3`` is the same of a bucket: a server here answers boto3's requests for its list,
a thousand objects a page. Each is measured in a process of its own, with the whole number and a
tenth of it, so that what every process needs for its libraries is not counted.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from figures import tell

import ml_assets.pipelines
from ml_assets.assets.raw_snapshot.readers.read_source import look, read_source
from ml_assets.spec.partitions import PartitionWindow
from ml_assets.spec.sources import FilesSource

EXAMPLE = Path(ml_assets.pipelines.__path__[0]) / "shown_after_demo" / "images" / "digits"
FOLDER = 1000
"""Files of one folder."""
PAGE = 1000
"""What S3 lists in an answer."""
LONGER = (
    "What it takes beyond files of a folder is boto3's: it asks for the list, and parses it.",
    "The names and etags of a bucket are 28 signs longer than those of a folder.",
)
"""Why a bucket may take more: time, and memory."""
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
            found["publish", partition] = published(root, partition, root / partition)
        with bucket(sizes) as place:
            for partition in sizes:
                found["publish_s3", partition] = published(root, partition, place)
    more = sizes["whole"] - sizes["tenth"]
    aims = {"read": (20, 300), "look": (15, 20), "publish": (50, 300), "publish_s3": (150, 300)}
    for what, (most, bound) in aims.items():
        tenth, whole = found[what, "tenth"], found[what, "whole"]
        slow, wide = LONGER if what == "publish_s3" else ("", "")
        spent = whole["seconds"] / sizes["whole"] * 1e6
        tell(f"references_{what}_us_per_object", spent, most, why=slow)
        grown = (whole["peak"] - tenth["peak"]) / more
        tell(f"references_{what}_bytes_per_object", grown, bound, why=wide)
        if "kept" in whole:
            laid = (whole["kept"] - tenth["kept"]) / more
            tell(f"references_{what}_bytes_on_disk_per_object", laid, 300)
            tell(f"references_{what}_seconds", whole["wall"], 300)


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


def published(root: Path, partition: str, place: Path | str) -> dict[str, float]:
    """Seconds of the processor and of the clock, peak memory in bytes, and bytes of the state
    folder afterwards.

    Args:
        place: a folder, or the endpoint of a server of buckets.
    """
    pipeline, home = root / "pipelines" / "digits", root / f"home-{partition}"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(EXAMPLE, pipeline, dirs_exist_ok=True)
    where = "" if isinstance(place, Path) else f"s3://bucket/{partition}/"
    spec = (EXAMPLE / "defs.yaml").read_text()
    spec = spec.replace("images/{digit}/*.pgm", f"'{where}{{digit}}/*.jpg'")
    (pipeline / "defs.yaml").write_text(spec)
    apart = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    places = {"HOME": home, "SOURCES": root / partition, "PIPELINES": pipeline.parent}
    environment = {**apart, **{f"ML_ASSETS_{name}": str(path) for name, path in places.items()}}
    environment |= {"AWS_ENDPOINT_URL": str(place), "AWS_REGION": "us-east-1"} if where else {}
    environment |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "none")
    begun = time.monotonic()
    command = [sys.executable, "-m", "ml_assets.cli.main", "run", "digits"]
    command += ["--through", "raw_snapshot"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    kept = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    seconds = used.ru_utime + used.ru_stime
    wall = time.monotonic() - begun
    return {"seconds": seconds, "wall": wall, "peak": used.ru_maxrss * 1024, "kept": kept}


@contextmanager
def bucket(sizes: Mapping[str, int]) -> Iterator[str]:
    """The address of a server that lists the files of ``lay_out`` as S3 does, and nothing else."""

    class Listing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = dict(parse_qsl(urlsplit(self.path).query))
            partition, _, camera = asked["prefix"].strip("/").partition("/")
            begin, end = 0, sizes[partition]
            if camera:
                begin = int(camera.removeprefix("camera_")) * FOLDER
                end = min(begin + FOLDER, end)
            step = FOLDER if "delimiter" in asked else 1
            begin = int(asked.get("continuation-token", begin))
            after = begin + PAGE * step
            told = _prefix if step > 1 else _object
            items = "".join(
                told(partition, number) for number in range(begin, min(after, end), step)
            )
            more = f"<NextContinuationToken>{after}</NextContinuationToken>" if after < end else ""
            cut = str(after < end).lower()
            answer = (
                '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                f"<IsTruncated>{cut}</IsTruncated>{more}{items}</ListBucketResult>"
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Listing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _prefix(partition: str, number: int) -> str:
    folder = f"{partition}/camera_{number // FOLDER:05}/"
    return f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"


def _object(partition: str, number: int) -> str:
    etag = hashlib.md5(str(number).encode()).hexdigest()
    key = f"{partition}/camera_{number // FOLDER:05}/frame_{number:08}.jpg"
    moment = datetime.fromtimestamp(10**9 + int(etag[:7], 16), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return (
        f"<Contents><Key>{key}</Key><LastModified>{moment}.000Z</LastModified>"
        f'<ETag>"{etag}"</ETag><Size>{int(etag[7:12], 16)}</Size></Contents>'
    )


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
