"""Runs the cluster by hand: writes a kubeconfig, prints how to use it, waits for Ctrl-C.

python -m ml_assets_tests.servers.kubernetes [KUBECONFIG]
"""

import argparse
import threading
from pathlib import Path

from ml_assets_tests.servers.kubernetes import ApiServer

parser = argparse.ArgumentParser(prog="kubernetes_server", description="A Kubernetes for tests.")
parser.add_argument(
    "kubeconfig", type=Path, nargs="?", default=Path("kubeconfig"), help="default: %(default)s"
)
asked = parser.parse_args()

with ApiServer() as server:
    server.write_kubeconfig(asked.kubeconfig)
    print(f"export KUBECONFIG={asked.kubeconfig.resolve()}  # the namespace {server.namespace}")
    print("Ctrl-C ends it, and its pods.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        asked.kubeconfig.unlink()
