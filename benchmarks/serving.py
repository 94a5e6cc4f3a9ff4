"""A release over HTTP: ML_ASSETS_HOME=... python benchmarks/serving.py PIPELINE [SECONDS]

Starts `ml-assets serve` twice, with batching and without, and asks it from this process over
connections that stay. One row at 50 requests a second, evenly: the wall time of a whole request,
and of a call of the network alone in a process of its own, at the same pace. Then one row each from
64 connections, as fast as they are answered. A busy machine shows in the p99 first. One figure a
line: NAME VALUE [AIM holds|short].
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from figures import tell

from ml_assets.assets.released_model.golden import golden_rows
from ml_assets.assets.released_model.predict import Predictor, open_release
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.training.rows.arrays import Rows
from ml_assets.training.score import load_predictor

NEEDS = ("setting ML_ASSETS_HOME",)

PORT = 8123
PACE = 50
CONNECTIONS = 64


def main() -> None:
    """Print each figure with its aim."""
    pipeline = (sys.argv[1:] or ["flight_delays"])[0]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    predictor = open_release(pipeline)
    alone = network_alone(predictor, seconds)
    report("network_alone", alone)
    request = one_row(predictor)
    served, batched = asyncio.run(measure(pipeline, request, seconds))
    report("one_row", served, p99=10.0)
    tell("overhead_p50_ms", ms(served, 0.5) - ms(alone, 0.5), 2.0)
    _, single = asyncio.run(measure(pipeline, request, seconds, "--batch-rows", "1"))
    print(f"batched_rows_per_second {batched:,.0f}")
    print(f"unbatched_rows_per_second {single:,.0f}")
    print(f"batching_times {batched / single:.3g}")


def report(name: str, taken: np.ndarray, p99: float | None = None) -> None:
    """Print the percentiles of what was taken, in milliseconds."""
    for share in (0.5, 0.95):
        print(f"{name}_p{share * 100:.0f}_ms {ms(taken, share):.3g}")
    if p99 is None:
        print(f"{name}_p99_ms {ms(taken, 0.99):.3g}")
    else:
        tell(f"{name}_p99_ms", ms(taken, 0.99), p99)


def ms(taken: np.ndarray, share: float) -> float:
    """A percentile, in milliseconds."""
    return float(np.quantile(taken, share)) * 1000


def network_alone(predictor: Predictor, seconds: float) -> np.ndarray:
    """Seconds of each call with one row, encoded before."""
    manifest = predictor.release.manifest
    numeric, words = encode_rows(golden_rows(manifest).head(1), manifest.preprocessing)
    row = Rows(numeric, words, np.zeros(1, np.float32))
    threads = predictor.pipeline.spec.training.threads
    predict = load_predictor(Path(predictor.release.model.uri), manifest, threads)
    taken = np.empty(int(seconds * PACE))
    for number in range(len(taken)):
        begin = time.perf_counter()
        predict(row)
        taken[number] = time.perf_counter() - begin
        time.sleep(max(0.0, 1 / PACE - taken[number]))
    return taken


def one_row(predictor: Predictor) -> bytes:
    """A request for one row, whole."""
    body = json.dumps({"rows": golden_rows(predictor.release.manifest).head(1).to_dicts()}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def measure(
    pipeline: str, request: bytes, seconds: float, *options: str
) -> tuple[np.ndarray, float]:
    """Seconds of each request at the pace, and rows a second from many connections."""
    async with serving(pipeline, *options):
        taken = await paced(request, seconds)
        ends = time.perf_counter() + seconds / 2
        counts = await asyncio.gather(*(hurried(request, ends) for _ in range(CONNECTIONS)))
        return taken, sum(counts) / (seconds / 2)


async def paced(request: bytes, seconds: float) -> np.ndarray:
    """Requests at even intervals over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    taken = np.empty(int(seconds * PACE))
    for number in range(len(taken)):
        begin = time.perf_counter()
        await ask(reader, writer, request)
        taken[number] = time.perf_counter() - begin
        await asyncio.sleep(max(0.0, 1 / PACE - taken[number]))
    writer.close()
    return taken


async def hurried(request: bytes, ends: float) -> int:
    """Requests without a break over one connection; how many."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    count = 0
    while time.perf_counter() < ends:
        await ask(reader, writer, request)
        count += 1
    writer.close()
    return count


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """One request and its answer, which has to be a 200."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


@asynccontextmanager
async def serving(pipeline: str, *options: str) -> AsyncIterator[None]:
    """A server, ready."""
    command = [*(sys.executable, "-m", "ml_assets.cli.main", "serve", pipeline), *options]
    process = subprocess.Popen([*command, "--port", str(PORT)], stdout=subprocess.DEVNULL)
    try:
        while not await ready():
            assert process.poll() is None
            await asyncio.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


async def ready() -> bool:
    """Whether it answers."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        await ask(reader, writer, b"GET /v2/health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    except (OSError, AssertionError):
        return False
    writer.close()
    return True


if __name__ == "__main__":
    main()
