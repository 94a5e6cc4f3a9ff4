"""All faults by the place where they strike, and what a matrix of them is to have."""

import signal

from ml_assets_tests.faults import injections as harm
from ml_assets_tests.faults import servers
from ml_assets_tests.faults.injections import Fault
from ml_assets_tests.servers.kubernetes import ApiServer

EVERYWHERE: dict[str, Fault] = {
    "the command is killed": harm.to_the_command(signal.SIGKILL),
    "the command is interrupted (Ctrl-C)": harm.to_the_command(signal.SIGINT),
    "the command is told to end (SIGTERM)": harm.to_the_command(signal.SIGTERM),
    "the command stands still for 10 s": harm.stands_still(),
    "the same command is given twice": harm.second_command,
}
LAPTOP: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    "a rank stops (SIGSTOP)": harm.stop_a_rank,
    "a rank gets a notice (SIGTERM)": harm.to_a_rank(signal.SIGTERM),
    "torchrun is killed": harm.kill_torchrun,
    "the supervisor is killed": harm.to_process(signal.SIGKILL, "supervisor.py"),
    "the supervisor stands still for 10 s": harm.stands_still("supervisor.py"),
    "the machine is lost": harm.machine_lost,
    "a checkpoint is damaged, a rank dies": harm.damaged_checkpoint,
    "another version takes over in mid-training": harm.upgraded(
        "training/train.py", "launch", "actions"
    ),
    "the disk is full": harm.full_disk,
    "the disk is read-only for 3 s": harm.read_only_disk,
    "the clock goes an hour on": harm.clock_jumps(3600),
    "the clock goes an hour back": harm.clock_jumps(-3600),
}
API_AND_STORE: dict[str, Fault] = {
    "the API server is away for 4 s": servers.api_away,
    "the API server answers 429": servers.to_the_api(lambda c: c.faults.refuse(429, times=5)),
    "the API server answers 500": servers.to_the_api(lambda c: c.faults.refuse(500, times=5)),
    "the API server is slow": servers.to_the_api(lambda c: c.faults.delay(1.5, times=6)),
    "an answer of the API server is lost": servers.to_the_api(lambda c: c.faults.reset(after=True)),
    "all watches end": servers.watches_end,
    "a watch is too old (410)": servers.to_the_api(lambda c: c.faults.expire_watch(times=2)),
    "events of the API server come twice": servers.to_the_api(servers.twice),
    "events of pods come after those of jobs": servers.to_the_api(servers.out_of_order),
    "the store asks for patience (503)": servers.to_the_store("503 Slow Down", "SlowDown", 8),
    "the store fails (500)": servers.to_the_store("500 Internal Server Error", "InternalError", 5),
    "the store is away for 4 s": servers.store_away,
    "the store stands still": servers.store_stands_still,
    "the store is slow": servers.slow_store,
    "an upload is torn": servers.torn("PUT", 2),
    "a download is torn": servers.torn("GET", 2),
    "the store's token has expired": servers.to_the_store("403 Forbidden", "ExpiredToken", 3),
    "the API server's token has expired": servers.to_the_api(
        lambda c: c.faults.refuse(401, times=3)
    ),
}
OF_PODS: dict[str, Fault] = {
    "a pod's wrapper is killed": servers.to_a_pod(servers.kill_wrapper),
    "a pod's wrapper stands still for 10 s": servers.to_a_pod(servers.stop_wrapper),
    "a rank in a pod is killed": servers.to_a_pod(servers.to_rank_in_pod(signal.SIGKILL)),
    "a rank in a pod stops (SIGSTOP)": servers.stop_a_rank_in_a_pod,
    "a pod is drained": servers.to_a_pod(ApiServer.drain),
    "a pod is preempted": servers.to_a_pod(ApiServer.preempt),
    "a pod is evicted for pressure": servers.to_a_pod(ApiServer.evict_for_pressure),
    "a pod runs out of memory": servers.to_a_pod(ApiServer.run_out_of_memory),
    "a node is cut off": servers.to_a_pod(ApiServer.cut_off),
    "a pod runs twice": servers.to_a_pod(ApiServer.double),
}
PODS: dict[str, Fault] = {
    **EVERYWHERE,
    **OF_PODS,
    **API_AND_STORE,
    "another version takes over in mid-training": harm.upgraded("launch", "actions"),
}
LAKE: dict[str, Fault] = {
    "lakeFS is away for 4 s": servers.lake_away,
    "lakeFS answers 500": servers.to_the_lake(status=500, times=5),
    "lakeFS answers 429": servers.to_the_lake(status=429, times=8),
    "lakeFS refuses a merge (409)": servers.to_the_lake("POST", "/merge/", status=409, times=2),
    "lakeFS merges, and its answer is lost": servers.to_the_lake("POST", "/merge/", after=True),
    "lakeFS commits, and its answer is lost": servers.to_the_lake("POST", "/commits", after=True),
    "an object of lakeFS breaks off": servers.to_the_lake("GET", "/objects", cut=100, times=2),
    "lakeFS is slow": servers.to_the_lake(delay=1.5, times=6),
    "the key of lakeFS has expired (401)": servers.to_the_lake(status=401, times=3),
}
LAKEFS: dict[str, Fault] = {
    **EVERYWHERE,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    **LAKE,
}
ALONE: dict[str, Fault] = {name: f for name, f in EVERYWHERE.items() if "twice" not in name}
MOVES: dict[str, Fault] = {
    **ALONE,
    "a rollback races the release": harm.rolled_back,
    "a recall and its lift race the release": harm.recalled_and_lifted,
    "a rollback and a recall race the release": harm.both_at_once,
}
BY_SENSORS: dict[str, Fault] = {
    **ALONE,
    "a run's worker is killed": servers.kill_server("spawn_main"),
    "a run's worker stands still for 10 s": harm.stands_still("spawn_main"),
    "the code location is killed": servers.kill_server("dagster", "grpc"),
    "the machine is lost": harm.machine_lost,
    "the same data lands again": harm.landed_again,
}
SERVED: dict[str, Fault] = {
    **BY_SENSORS,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    "the daemon is killed": servers.kill_server("dagster-daemon"),
    "the daemon stands still for 10 s": harm.stands_still("dagster-daemon", "run"),
    "the web server is killed": servers.kill_server("ml_assets.adapters.webserver"),
    "MLflow's server is killed": servers.kill_server("mlflow", "server"),
    "a second daemon is begun": servers.second_daemon,
    "a second UI is begun": servers.second_ui,
}
OF_POSTGRES: dict[str, Fault] = {
    "another daemon works beside it for 30 s": servers.daemon_beside,
    "Postgres restarts": servers.database_restarts("fast"),
    "Postgres dies and recovers": servers.database_restarts("immediate"),
    "Postgres is away for 6 s": servers.database_away,
}
POSTGRES: dict[str, Fault] = {
    **BY_SENSORS,
    "a rank is killed": harm.to_a_rank(signal.SIGKILL),
    **OF_POSTGRES,
}
CLUSTER: dict[str, Fault] = {**BY_SENSORS, **OF_PODS, **API_AND_STORE, **OF_POSTGRES}
OFTEN = API_AND_STORE.keys() | LAKE.keys()
"""Faults that end no process: the work gets over one soon."""
DURING_TRAINING = {
    name
    for name in [*LAPTOP, *PODS]
    if any(
        word in name for word in ("rank", "torchrun", "supervisor", "a pod", "a node", "training")
    )
}
"""Faults that find what they harm for a short part of the work only."""
ARENAS = {
    "laptop": LAPTOP,
    "pods": PODS,
    "lakefs": LAKEFS,
    "moves": MOVES,
    "served": SERVED,
    "postgres": POSTGRES,
    "cluster": CLUSTER,
}
WHERE = {
    "laptop": "`ml-assets run`, with processes of this machine",
    "pods": "`ml-assets run`, with pods of the tests' API server and objects on S3",
    "lakefs": "`ml-assets run`, with tables, records and ledger on the tests' lakeFS",
    "moves": "`ml-assets run` after two releases, while people move the models of before",
    "served": "`ml-assets ui` with two pipelines: the daemon's sensors take in what lands; one"
    " trains then, the other by a schedule, each minute",
    "postgres": "`dagster-daemon` with a cluster's settings, its history on a real Postgres",
    "cluster": "the same daemon, with pods of the tests' API server and objects on S3",
}
"""Place -> what works there."""
TURNS = (
    *("laptop", "pods", "lakefs", "cluster", "laptop", "moves"),
    *("served", "pods", "postgres", "cluster"),
)
"""The places in the order in which a campaign visits them, again and again: often where there are
many faults."""
WANTED = {
    "kill of a command, a run's worker, a supervisor, a rank, a pod's wrapper": (
        "the command is killed",
        "a run's worker is killed",
        "the supervisor is killed",
        "a rank is killed",
        "a rank in a pod is killed",
        "a pod's wrapper is killed",
    ),
    "stopped processes": (
        "a rank stops (SIGSTOP)",
        "a rank in a pod stops (SIGSTOP)",
        "the command stands still for 10 s",
        "the supervisor stands still for 10 s",
        "a pod's wrapper stands still for 10 s",
        "a run's worker stands still for 10 s",
        "the daemon stands still for 10 s",
    ),
    "loss of a pod, of a node, eviction, a notice": (
        "a pod is drained",
        "a pod is evicted for pressure",
        "a node is cut off",
        "a pod is preempted",
        "a rank gets a notice (SIGTERM)",
    ),
    "an API server that is away, slow, or refuses": ("the API server is away for 4 s",),
    "S3 that is away, slow, or refuses": ("the store is away for 4 s",),
    "lakeFS that is away, conflicts, or refuses": ("lakeFS is away for 4 s",),
    "a full disk": ("the disk is full",),
    "clocks that jump": ("the clock goes an hour on", "the clock goes an hour back"),
    "expired tokens": ("the store's token has expired", "the API server's token has expired"),
    "a torn upload": ("an upload is torn",),
    "a disk that becomes read-only": ("the disk is read-only for 3 s",),
    "a restart of Postgres": ("Postgres restarts",),
    "kill of the daemon or of the UI's server, two daemons, runs by sensors and schedules": (
        "the daemon is killed",
        "the web server is killed",
        "MLflow's server is killed",
        "a second daemon is begun",
        "another daemon works beside it for 30 s",
    ),
    "a release that races a rollback and a recall": ("a rollback and a recall race the release",),
    "an upgrade of the orchestrator in mid-training": (
        "another version takes over in mid-training",
    ),
    "duplicated and reordered events": (
        "events of the API server come twice",
        "events of pods come after those of jobs",
    ),
    "a real cluster": (),
}
"""What a matrix of faults is to have -> the faults here that are it; what has none is missing."""
