"""Objects in the API's own form, as a cluster answers them; each test changes what it is about."""

from ml_assets.launch.kubernetes.observations import job_state, kubernetes_event, pod_state

JOB = "flights-train-1a2b-a1"
TIME = "2026-01-05T10:00:{second:02d}Z"


def at(second):
    return TIME.format(second=second)


def condition(kind, reason="", message="", status="True", second=9):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(second),
    }


def job_json(*conditions, name=JOB, parallelism=2, suspend=False, labels=(), **status):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": at(0),
            "labels": {"app.kubernetes.io/managed-by": "ml-assets", **dict(labels)},
        },
        "spec": {"parallelism": parallelism, "completions": parallelism, "suspend": suspend},
        "status": {"startTime": at(0), "conditions": list(conditions), **status},
    }


def terminated(exit_code, reason="Error", message="", second=8):
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": reason,
            "message": message,
            "startedAt": at(2),
            "finishedAt": at(second),
        }
    }


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


RUNNING = {"running": {"startedAt": at(2)}}


def pod_json(
    index=0,
    state=RUNNING,
    *conditions,
    phase="Running",
    node="node-1",
    deleted=None,
    reason=None,
    message=None,
    job=JOB,
):
    meta = {
        "name": f"{job}-{index}-x7k2p",
        "uid": f"uid-{job}-{index}",
        "resourceVersion": "8",
        "creationTimestamp": at(1),
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        "labels": {"batch.kubernetes.io/job-name": job, "job-name": job},
    }
    if deleted is not None:
        meta |= {"deletionTimestamp": at(deleted + 30), "deletionGracePeriodSeconds": 30}
    status = {"phase": phase, "conditions": list(conditions)}
    if state is not None:
        status["containerStatuses"] = [{"name": "training", "state": state, "ready": False}]
    status |= {"reason": reason} if reason else {}
    status |= {"message": message} if message else {}
    spec = {"nodeName": node} if node else {}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def a_job(*conditions, **how):
    return job_state(job_json(*conditions, **how))


def a_pod(*arguments, **how):
    return pod_state(pod_json(*arguments, **how))


def an_event(reason, message, about=JOB, second=5):
    return kubernetes_event(
        {
            "reason": reason,
            "message": message,
            "involvedObject": {"kind": "Job", "name": about},
            "firstTimestamp": at(second),
            "lastTimestamp": at(second),
            "count": 3,
        }
    )
