"""What the client's claims are about: a Job, what is left of it, and what a real cluster lacks."""

from ml_assets.launch.kubernetes.diagnosis import PodObservations, diagnose
from ml_assets_tests.servers.kubernetes.sample_jobs import until

SELECTOR = "claim=claim"
LABELS = {"claim": "claim"}
CUT_OFF = "the answer is cut off behind a call that was done, or before one that was not"


def left(api):
    return [*api.jobs(SELECTOR), *api.pods(SELECTOR)]


def lost(watch):
    return until(lambda: [pod for pod in watch.now().pods if pod.lost])


def ending(watch):
    seen = watch.now()
    return diagnose(PodObservations(next(iter(seen.jobs), None), seen.pods))
