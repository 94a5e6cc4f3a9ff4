"""An API server for tests: a small Kubernetes whose pods are local processes.

The official client, and kubectl, talk real HTTP to it. It behaves as a v1.36 cluster does in all
that a client of batch/v1 Jobs can see; what it leaves out is listed in README.md.

    with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")

In tests take the fixture `cluster` (see ../conftest.py) instead. What is public:

server.url, server.namespace ("ml-assets"), server.write_kubeconfig(path, token=, namespace=)
server.clock.advance(seconds)       time passes: back-offs, deadlines, TTLs, tokens, watches
server.access.token(user, rules=, namespace=, seconds=)     a bearer token under a Role's rules
server.access.revoke(token)
server.calls                        every call: iterate, .of(verb, resource), .rules(), .clear()
server.faults                       .refuse(code, times=, verb=, resource=) .delay(seconds, ...)
                                    .reset(..., after=) .stall_watch() .expire_watch()
                                    .drop_watches() .api_down() (a context) .clear()
server.store.compact()              every older resource version is 410 Gone
server.images.failing[image] = why  it cannot be pulled; `.absent` for the pull policy Never;
                                    hosts that end in `.invalid` never can
server.images.packages[image] = folder   its Python finds packages there first
server.add_node(name, cpu=, memory=, gpus=, labels=, taints=) .remove_node(name) .cordon(name)
server.apply(manifest), server.create_namespace(name), server.pods(), server.processes(pod)
server.preempt(pod) .drain(pod) .evict_for_pressure(pod) .run_out_of_memory(pod)
server.cut_off(pod) -> pids         Failed and gone for the API, but its processes run on
server.double(pod) -> name          a second live pod of the same index
server.kueue_preempt(job)           Kueue (served, with no quota) suspends the Job
server.failures                     errors of the server itself; the fixture holds them to be none
"""

from ml_assets_tests.servers.kubernetes.api_server import ApiServer
from ml_assets_tests.servers.kubernetes.recorder import Call

__all__ = ["ApiServer", "Call"]
