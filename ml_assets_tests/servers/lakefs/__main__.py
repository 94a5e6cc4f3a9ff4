"""Runs the server by hand, for the tests of other clients: prints how to reach it, waits.

    python -m ml_assets_tests.servers.lakefs [PORT] [--quickstart]

``--quickstart`` is as lakeFS's own quickstart, which other suites know: its keys, and a block store
on the server's disk, which cannot presign.
"""

import argparse
import threading

from ml_assets_tests.servers.lakefs import Setup, lakefs_server

QUICKSTART = Setup(
    access_key="AKIAIOSFOLQUICKSTART",
    secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    user="quickstart",
    blockstore="local",
)

parser = argparse.ArgumentParser(prog="lakefs_server", description="A lakeFS for tests.")
parser.add_argument("port", type=int, nargs="?", default=0, help="default: one that is free")
parser.add_argument("--quickstart", action="store_true", help="as lakeFS's own quickstart")
wish = parser.parse_args()

setup = QUICKSTART if wish.quickstart else Setup(import_seconds=2)
with lakefs_server(setup, wish.port) as server:
    print(server.endpoint, server.access_key, server.secret_key, flush=True)
    threading.Event().wait()
