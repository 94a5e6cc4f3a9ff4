"""Rows that are fetched as training comes to them: python benchmarks/fetch.py [ROWS] [MB/S]

An S3 of this machine, in a process of its own, gives so many megabytes a second in all. The
training split lies there; the disk may hold a third of it. Real steps of the program on the default
network go through an epoch. CPU seconds are those of fetching alone: range requests, checksums,
encoding. One figure a line: NAME VALUE AIM holds|short; NAME VALUE where there is no aim.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from figures import tell
from generated import train_request, training_set

from ml_assets.spec.training import TabM, TrainingSpec
from ml_assets.spec.training_program import ShardSchema, TrainRequest
from ml_assets.spec.training_program.on_demand import RowsOnDemand
from ml_assets.store.block_order import BlockOrder
from ml_assets.store.s3.client import S3Place
from ml_assets.training.distributed.ranks import join, leave
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.rows.remote_shards import RemoteShards
from ml_assets.training.step import StopFlags, assemble, initial_network

SPEC = TrainingSpec(
    epochs=1, microbatches=4, order="blocks", block_rows=4096, block_window=2, processes=1
)
BLOCKS = (SPEC.block_rows, 8 * SPEC.block_rows)
MODEL = TabM(family="tabm")
_PIECE = 1 << 16


def main() -> None:
    """Print each figure."""
    rows, rate = (int(given) for given in (*sys.argv[1:], *("200000", "50")[len(sys.argv) - 1 :]))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = training_set(rows, Path(folder) / "bucket" / "shards")
        local, schema = open_set(data)
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", str(rate)],
            cwd=Path(folder),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            os.environ |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "none",
                "AWS_SECRET_ACCESS_KEY": "none",
            }
            for block in BLOCKS:
                fetching(schema, block)
            request = train_request(Path(folder), data, MODEL, SPEC)
            third = (4 * (35 + 6 + 1)) * rows // 3
            source = RowsOnDemand(uri="s3://bucket/shards", scratch=folder, bytes=third)
            training(request.model_copy(update={"on_demand": source}), local, schema)
        finally:
            server.kill()


def fetching(schema: ShardSchema, block: int) -> None:
    """What it takes to bring half an epoch here, with nothing beside it."""
    shards = schema.splits["train"]
    remote = RemoteShards(S3Place("s3://bucket/shards"), schema, shards)
    order = BlockOrder([shard.rows for shard in shards], block, window=1)
    cpu = time.process_time()
    for first in order.firsts[: 1 + len(order.firsts) // 2].tolist():
        remote.rows(first, first + order.block)
    megabytes = remote.place.moved.bytes / 1e6
    print(
        f"fetched_mb_per_cpu_second_by_{block}_rows {megabytes / (time.process_time() - cpu):.0f}"
    )


def training(request: TrainRequest, local: Path, schema: ShardSchema) -> None:
    """An epoch of real steps: the share that waited, and what came of the split."""
    ranks = join()
    try:
        network = initial_network(request, schema)[0]
        stepper = assemble(request, network, local, schema, ranks)
        began = time.perf_counter()
        first = 0.0
        for step in range(stepper.batches.steps_per_epoch):
            stepper.take(step, None, lambda: StopFlags(notice=False, checkpoint_due=False))
            if step == 0:  # nothing was there: it waits for its windows, once in a training
                first = time.perf_counter() - began
                stepper.times.of(0.0)
        spent = stepper.times.of(time.perf_counter() - began - first)
    finally:
        leave()
    size = sum(shard.rows for shard in schema.splits["train"])
    print(f"bytes_a_row {bytes_of(local, schema) / size:.0f}")
    print(f"first_step_seconds {first:.2f}")
    print(f"rows_per_second {size / spent.seconds:,.0f}")
    tell("fetch_wait_percent", 100 * spent.fetch / spent.seconds, 3)
    whole = stepper.batches.rows.fetched_bytes / bytes_of(local, schema)
    tell("fetched_to_split", whole, 1.3)


def bytes_of(local: Path, schema: ShardSchema) -> int:
    """Bytes of the arrays of the training split."""
    names = ("numeric", "missing", "categorical", "label")
    folders = [local.parent / shard.digest for shard in schema.splits["train"]]
    return sum((folder / f"{name}.npy").stat().st_size for folder in folders for name in names)


class Files(BaseHTTPRequestHandler):
    """The files below this folder as objects, whole or by range; no request is signed or logged."""

    protocol_version = "HTTP/1.1"
    bytes_per_second = 0.0
    free_at = 0.0
    one_at_a_time = threading.Lock()

    def do_GET(self) -> None:
        content = Path(self.path.partition("?")[0].lstrip("/")).read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        part = content[int(found[1]) : int(found[2]) + 1] if found else content
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        for begin in range(0, len(part), _PIECE):
            piece = part[begin : begin + _PIECE]
            self.wfile.write(piece)
            time.sleep(self.delay(len(piece)))

    @classmethod
    def delay(cls, size: int) -> float:
        """Seconds until the line is free again; all who ask share it."""
        with cls.one_at_a_time:
            now = time.monotonic()
            cls.free_at = max(now, cls.free_at) + size / cls.bytes_per_second
            return cls.free_at - now

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def serve(rate: float) -> None:
    """Print the port, and answer until the end."""
    Files.bytes_per_second = rate * 1e6
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(float(sys.argv[2])) if sys.argv[1:2] == ["serve"] else main()
