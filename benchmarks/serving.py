"""A release over HTTP: ML_ASSETS_HOME=... python benchmarks/serving.py PIPELINE [SECONDS]

Starts `ml-assets serve` and asks it from this process over connections that stay. One row at 50
requests a second, evenly: the wall time of a whole request, and of a call of the network alone in a
process of its own, at the same pace. Then one row each from 64 connections, as fast as they are
answered. The same of MLflow's own server with the same weights. HTTP costs more than the demo's
network, so what batching gains is measured on a wide one, which is trained for it. A busy machine
shows in the p99 first. One figure a line: NAME VALUE [AIM holds|short].
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from figures import tell

from ml_assets.assets.released_model.handover import golden_rows
from ml_assets.assets.released_model.predict import Predictor, open_release
from ml_assets.assets.training_set.encoding import encode_rows
from ml_assets.training.rows.arrays import Rows
from ml_assets.training.score import load_predictor
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

NEEDS = ("setting ML_ASSETS_HOME",)

PORT = 8123
PACE = 50
CONNECTIONS = 64
WIDE = {
    "width: 32, depth: 2": "width: 2048, depth: 3",
    "epochs: 30": "epochs: 1",
    "at_least: 0.8": "at_least: 0.01",
    "margin: 0.3": "margin: -36.0",
}
"""In the spec of the irises: a network whose weights no cache holds."""


@dataclass(frozen=True)
class Server:
    """A server that is to be started, and one row for it."""

    command: Sequence[str]
    path: str
    body: object
    health: str
    environment: Mapping[str, str]

    @property
    def request(self) -> bytes:
        """The row, as it goes over the wire."""
        body = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def main() -> None:
    """Print each figure with its aim."""
    pipeline = (sys.argv[1:] or ["flight_delays"])[0]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    predictor = open_release(pipeline)
    alone = network_alone(predictor, seconds)
    report("network_alone", alone)
    ours = served(predictor, os.environ)
    taken, rate = asyncio.run(measure(ours, seconds))
    report("one_row", taken)
    print(f"rows_per_second {rate:,.0f}")
    with tempfile.TemporaryDirectory() as scratch:
        theirs, theirs_rate = asyncio.run(measure(mlflow(predictor, Path(scratch)), seconds))
        report("mlflow_one_row", theirs)
        print(f"mlflow_rows_per_second {theirs_rate:,.0f}")
        batched, single = wide_rates(Path(scratch), seconds)
    why = "the client, the server and its model share the machine's cores"
    tell("one_row_p99_ms", ms(taken, 0.99), 10.0, why=why)
    tell("overhead_p50_ms", ms(taken, 0.5) - ms(alone, 0.5), 2.0, why=why)
    tell("faster_than_mlflow_p50", ms(theirs, 0.5) / ms(taken, 0.5), 1.0, at="least")
    print(f"wide_rows_per_second {batched:,.0f}")
    print(f"wide_rows_per_second_unbatched {single:,.0f}")
    tell("batching_times", batched / single, 5.0, at="least", why=why)


def report(name: str, taken: np.ndarray) -> None:
    """Print the percentiles of what was taken, in milliseconds."""
    for share in (0.5, 0.95, 0.99):
        print(f"{name}_p{share * 100:.0f}_ms {ms(taken, share):.3g}", flush=True)


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


def served(predictor: Predictor, environment: Mapping[str, str], *options: str) -> Server:
    """Our server."""
    name = predictor.pipeline.name
    command = (sys.executable, "-m", "ml_assets.cli.main", "serve", name, *options)
    body = {"rows": golden_rows(predictor.release.manifest).head(1).to_dicts()}
    whole = (*command, "--port", str(PORT))
    return Server(whole, "/predict", body, "/v2/health/ready", environment)


def mlflow(predictor: Predictor, scratch: Path) -> Server:
    """MLflow's own, with one worker, of the same weights."""
    from mlflow.pyfunc import save_model

    model, release = scratch / "model", predictor.release
    save_model(model, loader_module="mlflow_network", data_path=release.model.uri)
    local = ("--env-manager", "local", "--workers", "1", "--port", str(PORT))
    command = (sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(model), *local)
    body = {"dataframe_records": golden_rows(release.manifest).head(1).to_dicts()}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # it calls uvicorn
    here = {"PYTHONPATH": str(Path(__file__).parent), "PATH": programs, "OMP_NUM_THREADS": "1"}
    return Server(command, "/invocations", body, "/ping", {**os.environ, **here})


def wide_rates(scratch: Path, seconds: float) -> tuple[float, float]:
    """Rows a second of the wide network: with batching, and without."""
    world = World(scratch)
    irises.plant(world.pipelines, world.sources)
    spec = world.pipelines / "irises" / "defs.yaml"
    for old, new in WIDE.items():
        assert old in spec.read_text(), old
        spec.write_text(spec.read_text().replace(old, new))
    world.cli("run", "irises")
    wide = served(open_release("irises", world.settings), world.environment)
    single = replace(wide, command=(*wide.command, "--batch-rows", "1"))
    batched, alone = (asyncio.run(measure(one, seconds, pace=False))[1] for one in (wide, single))
    return batched, alone


async def measure(server: Server, seconds: float, pace: bool = True) -> tuple[np.ndarray, float]:
    """Seconds of each request at the pace, and rows a second from many connections."""
    async with serving(server):
        taken = await paced(server.request, seconds) if pace else np.empty(0)
        ends = time.perf_counter() + seconds / 2
        asking = (hurried(server.request, ends) for _ in range(CONNECTIONS))
        return taken, sum(await asyncio.gather(*asking)) / (seconds / 2)


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
async def serving(server: Server) -> AsyncIterator[None]:
    """The server, ready."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        server.command,
        env={**server.environment},
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        while not await ready(server.health):
            assert process.poll() is None
            await asyncio.sleep(0.2)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # MLflow's has a child that answers
        process.wait()


async def ready(health: str) -> bool:
    """Whether it answers."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        await ask(reader, writer, f"GET {health} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    except (OSError, AssertionError, asyncio.IncompleteReadError):
        return False
    writer.close()
    return True


if __name__ == "__main__":
    main()
