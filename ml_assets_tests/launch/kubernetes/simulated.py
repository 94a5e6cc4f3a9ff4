"""A cluster of which only time is simulated: what it is asked, hour after hour, is counted.

The calls pass through the real retries; only the HTTP below them is not there.
"""

import itertools
import json
from types import SimpleNamespace

from kubernetes.client import ApiException
from urllib3.exceptions import NewConnectionError, ProtocolError

from ml_assets.launch.kubernetes.calls import ClusterCalls, SilentStream, Trouble, broken_by
from ml_assets.launch.kubernetes.connection import Connections
from ml_assets.launch.kubernetes.resources import ObjectList

HOUR = 3600.0
RESET = ProtocolError("Connection aborted.", ConnectionResetError(104, "reset by peer"))
EXPIRED = ApiException(status=410, reason="Expired")
AWAY = NewConnectionError(None, "refused")  # pyright: ignore[reportArgumentType]


class Simulated:
    """A source for a reflector, with a clock of its own.

    Args:
        objects: what there is now.
        token_seconds: so long a token is good.
        fault: asked at each call and every second of a watch, with what it is and the time; what it
            returns is raised.
        bookmarks: seconds between two; None: the server sends none.
    """

    def __init__(self, *objects, token_seconds=HOUR, fault=None, bookmarks=60.0):
        self.now, self.reached, self.versions = 0.0, 0, itertools.count(10)
        self.objects = {item["metadata"]["uid"]: item for item in objects}
        self.fault, self.bookmarks, self.token_seconds = fault, bookmarks, token_seconds
        self.happens = []  # (time, type, object), in order
        self.calls = ClusterCalls(Connections(self._connect), 300.0, self.clock, self.pause)

    def clock(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds

    def _connect(self):
        configuration = SimpleNamespace(host="https://simulated:6443")
        return SimpleNamespace(configuration=configuration, read_at=self.now)

    # --- what a reflector asks --------------------------------------------------------------------

    def all_of(self, kind, selector):
        return self.calls.ask(f"list {kind}", lambda client: self._list(client, kind))

    def page(self, kind, selector):
        return self.calls.once(f"list {kind}", lambda client: self._list(client, kind))

    def stream(self, kind, selector, version, seconds, silence):
        def open_watch(client):
            self._answer(client, "watch")
            return Watch(self, seconds, silence)

        return self.calls.once(f"watch {kind}", open_watch)

    def _list(self, client, kind):
        self._answer(client, "list")
        self.catch_up()
        return ObjectList(list(self.objects.values()), str(next(self.versions)))

    def _answer(self, client, what):
        error = self.fault(what, self.now) if self.fault else None
        self.now += 0.01
        self.reached += error is not AWAY
        if error is not None:
            raise error.with_traceback(None)  # one instance for all: it would collect them
        if self.now - client.read_at > self.token_seconds:
            raise ApiException(status=401, reason="Unauthorized")

    def catch_up(self):
        """Everything that happened until now; the changes."""
        changes = []
        while self.happens and self.happens[0][0] <= self.now:
            _, kind, item = self.happens.pop(0)
            item["metadata"]["resourceVersion"] = str(next(self.versions))
            if kind == "DELETED":
                self.objects.pop(item["metadata"]["uid"], None)
            else:
                self.objects[item["metadata"]["uid"]] = item
            changes.append({"type": kind, "object": item})
        return changes


class Watch:
    """One watch: it ends after its seconds, by a fault, or when it says nothing for too long."""

    def __init__(self, cluster, seconds, silence):
        self.cluster, self.seconds, self.silence = cluster, seconds, silence

    def __iter__(self):
        cluster = self.cluster
        end = cluster.now + self.seconds
        said = cluster.now
        while cluster.now < end:
            cluster.now += 1
            error = cluster.fault("watching", cluster.now) if cluster.fault else None
            if isinstance(error, ApiException):  # in the midst of a watch it is a line of it
                status = {"code": error.status, "reason": error.reason, "message": "told"}
                yield json.dumps({"type": "ERROR", "object": status}).encode()
            elif error is not None:
                raise broken_by(error.with_traceback(None)) or error
            for change in cluster.catch_up():
                said = cluster.now
                yield json.dumps(change).encode()
            due = cluster.bookmarks is not None and cluster.now - said >= cluster.bookmarks
            if due:
                said = cluster.now
                mark = {"metadata": {"resourceVersion": str(next(cluster.versions))}}
                yield json.dumps({"type": "BOOKMARK", "object": mark}).encode()
            if cluster.now - said > self.silence:
                raise SilentStream("nothing was said", Trouble("no answer"))

    def close(self):
        pass
