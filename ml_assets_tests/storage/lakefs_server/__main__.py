"""Runs the server by hand, for the tests of other clients: prints how to reach it, waits."""

import sys
import threading

from ml_assets_tests.storage.lakefs_server import lakefs_server

with lakefs_server(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
    print(server.endpoint, server.access_key, server.secret_key, flush=True)
    threading.Event().wait()
