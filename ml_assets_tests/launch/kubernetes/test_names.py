"""Names on a cluster: DNS labels with room for a pod's index, never the same for two sessions."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.launch.kubernetes.names import (
    MAX_ATTEMPT,
    index_of,
    job_name,
    labels,
    pipeline_label,
    pod_host,
    selector_of,
    slug_of,
)
from ml_assets.settings.cluster import is_dns_label, is_label_key, is_label_value
from ml_assets.spec.cluster import MAX_NODES
from ml_assets.spec.training_program import World

pipelines = st.from_regex(re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII), fullmatch=True)
sessions = st.builds(
    "{}-{}-{}".format,
    pipelines,
    st.sampled_from(["train", "score", "sanity", "measure"]),
    st.from_regex(re.compile(r"[0-9a-f]{20}"), fullmatch=True),
)


def test_the_name_says_what_it_is() -> None:
    session = "flight_delays-train-0123456789abcdef0123"
    assert job_name(session, 3) == "flight-delays-train-0123456789abcdef0123-a3"
    assert pod_host(job_name(session, 3), 1) == f"{job_name(session, 3)}-1.{job_name(session, 3)}"


@given(sessions, st.integers(1, MAX_ATTEMPT), st.integers(0, MAX_NODES - 1))
def test_a_pods_name_is_a_dns_label(session: str, attempt: int, index: int) -> None:
    pod = f"{job_name(session, attempt)}-{index}"
    assert is_dns_label(pod)
    assert pod[0].isalpha(), "a Service's name begins with a letter"


@given(sessions, sessions, st.integers(1, MAX_ATTEMPT), st.integers(1, MAX_ATTEMPT))
def test_two_attempts_never_share_a_name(one: str, two: str, first: int, second: int) -> None:
    assert (job_name(one, first) == job_name(two, second)) == ((one, first) == (two, second))


@given(pipelines, pipelines)
def test_long_pipelines_that_begin_alike_are_told_apart(one: str, two: str) -> None:
    names = {slug_of(f"{'a' * 30}{end}"[:63] + "-train-" + "0" * 20) for end in (one, two)}
    assert len(names) == len({one[:33], two[:33]})


@given(pipelines, sessions, st.integers(1, MAX_ATTEMPT))
def test_labels_are_ones_that_kubernetes_takes(pipeline: str, session: str, attempt: int) -> None:
    found = labels(pipeline, session, attempt, "train", "on-demand")
    assert all(map(is_label_key, found))
    assert all(map(is_label_value, found.values()))
    selected = dict(part.split("=") for part in selector_of(session).split(","))
    assert selected.items() <= found.items()
    assert dict(part.split("=") for part in selector_of().split(",")).items() <= found.items()


def test_a_rank_is_in_the_pod_that_torchrun_puts_it_into() -> None:
    world = World(nodes=12, procs=4)
    first = [index_of("job", 4 * node, world) for node in range(12)]
    assert first == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assert index_of("job", 4 * 2 + 3, world) == 10


@given(pipelines, pipelines)
def test_two_pipelines_never_share_a_label(one: str, two: str) -> None:
    assert (pipeline_label(one) == pipeline_label(two)) == (one == two)


@pytest.mark.parametrize(
    "session",
    [
        "flight_delays",
        "Flight-train-0123456789abcdef0123",
        "flight-train-0123456789abcdef012",
        "../x-train-0123456789abcdef0123",
        "x-train-0123456789abcdef0123\n",
        "x,y=z-train-0123456789abcdef0123",
    ],
)
def test_what_is_no_session_names_nothing(session: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a session"):
        slug_of(session)


@pytest.mark.parametrize("attempt", [0, -1, MAX_ATTEMPT + 1])
def test_what_is_no_attempt_names_nothing(attempt: int) -> None:
    with pytest.raises(ValueError, match=f"an attempt is a number .* not {attempt}"):
        job_name("x-train-0123456789abcdef0123", attempt)
