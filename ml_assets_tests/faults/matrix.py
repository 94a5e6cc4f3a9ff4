"""All faults by the place where they strike, and what a matrix of them is to have."""

import signal

from ml_assets_tests.faults import injections as harm
from ml_assets_tests.faults.injections import Fault
from ml_assets_tests.servers.kubernetes import ApiServer

EVERYWHERE: dict[str, Fault] = {
    "the command is killed": harm.to_the_command(signal.SIGKILL),
    "the command is interrupted (Ctrl-C)": harm.to_the_command(signal.SIGINT),
    "the command is told to end (SIGTERM)": harm.to_the_command(signal.SIGTERM),
    "the same command is given twice": harm.second_command,
}
LAPTOP: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    "a rank stops (SIGSTOP)": harm.to_a_rank(signal.SIGSTOP),
    "a rank gets a notice (SIGTERM)": harm.to_a_rank(signal.SIGTERM),
    "torchrun is killed": harm.kill_torchrun,
    "the supervisor is killed": harm.to_process(signal.SIGKILL, "supervisor.py"),
    "the machine is lost": harm.machine_lost,
    "a checkpoint is damaged, a rank dies": harm.damaged_checkpoint,
    "the disk is full": harm.full_disk,
    "the disk is read-only for 3 s": harm.read_only_disk,
    "the clock goes an hour on": harm.clock_jumps(3600),
    "the clock goes an hour back": harm.clock_jumps(-3600),
}
PODS: dict[str, Fault] = {
    **EVERYWHERE,
    "a pod's processes are killed": harm.to_a_pod(harm.kill_in_pod),
    "a pod is drained": harm.to_a_pod(ApiServer.drain),
    "a pod is preempted": harm.to_a_pod(ApiServer.preempt),
    "a pod is evicted for pressure": harm.to_a_pod(ApiServer.evict_for_pressure),
    "a pod runs out of memory": harm.to_a_pod(ApiServer.run_out_of_memory),
    "a node is cut off": harm.to_a_pod(ApiServer.cut_off),
    "a pod runs twice": harm.to_a_pod(ApiServer.double),
    "the API server is away for 4 s": harm.to_the_api(harm.api_away),
    "the API server answers 429": harm.to_the_api(lambda c: c.faults.refuse(429, times=5)),
    "the API server answers 500": harm.to_the_api(lambda c: c.faults.refuse(500, times=5)),
    "the API server is slow": harm.to_the_api(lambda c: c.faults.delay(1.5, times=6)),
    "an answer of the API server is lost": harm.to_the_api(lambda c: c.faults.reset(after=True)),
    "all watches end": harm.to_the_api(lambda c: c.faults.drop_watches()),
    "a watch is too old (410)": harm.to_the_api(lambda c: c.faults.expire_watch(times=2)),
    "the store asks for patience (503)": harm.to_the_store("503 Slow Down", "SlowDown", 8),
    "the store fails (500)": harm.to_the_store("500 Internal Server Error", "InternalError", 5),
    "the store is away for 4 s": harm.store_away,
    "the store stands still": harm.store_stands_still,
    "the store is slow": harm.slow_store,
    "an upload is torn": harm.torn("PUT", 2),
    "a download is torn": harm.torn("GET", 2),
    "the store's token has expired": harm.to_the_store("403 Forbidden", "ExpiredToken", 3),
    "the API server's token has expired": harm.to_the_api(lambda c: c.faults.refuse(401, times=3)),
}
LAKEFS: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    "lakeFS is away for 4 s": harm.lake_away,
    "lakeFS answers 500": harm.to_the_lake(status=500, times=5),
    "lakeFS answers 429": harm.to_the_lake(status=429, times=8),
    "lakeFS refuses a merge (409)": harm.to_the_lake("POST", "/merge/", status=409, times=2),
    "lakeFS merges, and its answer is lost": harm.to_the_lake("POST", "/merge/", after=True),
    "lakeFS commits, and its answer is lost": harm.to_the_lake("POST", "/commits", after=True),
    "an object of lakeFS breaks off": harm.to_the_lake("GET", "/objects", cut=100, times=2),
    "lakeFS is slow": harm.to_the_lake(delay=1.5, times=6),
    "the key of lakeFS has expired (401)": harm.to_the_lake(status=401, times=3),
}
MOVES: dict[str, Fault] = {
    **{name: fault for name, fault in EVERYWHERE.items() if "twice" not in name},
    "a rollback races the release": harm.rolled_back,
    "a recall and its lift race the release": harm.recalled_and_lifted,
    "a rollback and a recall race the release": harm.both_at_once,
}
ARENAS = {"laptop": LAPTOP, "pods": PODS, "lakefs": LAKEFS, "moves": MOVES}
WANTED = {
    "kill of a command, a supervisor, a rank, a pod": ("the command is killed", "a rank is killed"),
    "stopped processes": ("a rank stops (SIGSTOP)",),
    "loss of a pod, of a node, eviction, a notice": ("a node is cut off", "a pod is preempted"),
    "an API server that is away, slow, or refuses": ("the API server is away for 4 s",),
    "S3 that is away, slow, or refuses": ("the store is away for 4 s",),
    "lakeFS that is away, conflicts, or refuses": ("lakeFS is away for 4 s",),
    "a full disk": ("the disk is full",),
    "clocks that jump": ("the clock goes an hour on", "the clock goes an hour back"),
    "expired tokens": ("the store's token has expired", "the API server's token has expired"),
    "a torn upload": ("an upload is torn",),
    "a disk that becomes read-only": ("the disk is read-only for 3 s",),
    "a restart of Postgres": (),
    "kill of the daemon or of the UI's server, two daemons, runs by schedules and sensors": (),
    "a release that races a rollback and a recall": ("a rollback and a recall race the release",),
    "an upgrade of the orchestrator in mid-training": (),
    "duplicated and reordered events": (),
    "a real cluster": (),
}
"""What a matrix of faults is to have -> the faults here that are it; what has none is missing."""
