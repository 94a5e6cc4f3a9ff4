"""Whatever a house lives through, what is reached stays whole and what is not goes in its time."""

from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ml_assets.launch.session_folder import SessionFolder
from ml_assets.records.ledger import chain as ledger
from ml_assets.spec.training_program import ModelManifest
from ml_assets.store.objects import file_digest, verify
from ml_assets_tests.actions.house import PIPELINE, House, Trained, working_on

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(1, 12)),
        st.tuples(st.just("land"), st.integers(0, 99)),
        st.tuples(st.just("train"), st.just(0)),
        st.tuples(st.just("decide"), st.booleans()),
        st.tuples(st.just("tag"), st.just(0)),
        st.tuples(st.just("interrupt"), st.booleans()),
        st.tuples(st.just("collect"), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)


class Diary:
    """What the test saw happen, told without the code under test."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.born: dict[Path, datetime] = {}
        self.states: list[tuple[datetime, set[str]]] = []
        self.for_good: set[str] = set()
        self.at_head: dict[str, set[str]] = {}
        self.tagged: dict[str, dict[str, bytes]] = {}
        self.open: list[tuple[SessionFolder, str, bool]] = []
        self.sets: set[str] = set()
        """Training sets of the released model, the one before it, and what was decided since."""
        self._released: list[tuple[str, str]] = []

    def trained(self, trained: Trained) -> None:
        self._born("models", trained.model)
        self._born("sessions", trained.session)
        self._born(f"shards/{PIPELINE}", trained.data)
        self.at_head["trained"] = {trained.model, trained.session, trained.data}
        self._state()

    def decided(self, model: str, data: str, session: str, passes: bool) -> None:
        self.for_good |= {model, session}
        if passes:
            held = [one for one in self._released[-1:] if one[0] != model]
            self.sets = {data, *(kept for _, kept in held)}
            self._released.append((model, data))
        else:
            self.sets.add(data)
        self.at_head["judged"] = {model, data}
        if passes:
            self.at_head["released"] = {model, session}
        self._state()

    def tag(self, name: str) -> None:
        store = self.house.store
        head = store.resolve()
        store.tag(name, head)
        self.tagged[name] = {e.path: store.read_bytes(head, e.path) for e in store.list(head)}
        self.for_good |= set().union(*self.at_head.values())

    def interrupted(self, session: SessionFolder, data: str, works: bool) -> None:
        self._born("sessions", session.session)
        self._born(f"shards/{PIPELINE}", data)
        self.open.append((session, data, works))

    def _born(self, kind: str, name: str) -> None:
        self.born[self.house.root / "objects" / kind / name] = self.house.now

    def _state(self) -> None:
        self.states.append((self.house.now, set().union(*self.at_head.values())))

    def expected(self) -> set[str]:
        """Names of objects that must stay."""
        house = self.house
        young = [
            names
            for (_, names), (until, _) in pairwise(self.states)
            if house.now - until <= house.retention.grace
        ]
        names = set().union(self.for_good, self.sets, *self.at_head.values(), *young)
        for session, data, works in self.open:
            age = house.now - self.born[session.root]
            if works or age < max(house.retention.sessions, house.retention.grace):
                names |= {session.session, data}
        return names


def live(house: House, steps: list[tuple[str, int]], held: ExitStack) -> Diary:
    diary = Diary(house)
    for number, (what, value) in enumerate(steps):
        if what == "pass":
            house.pass_days(value)
        elif what == "land":
            house.land(f"2026-{value:03}")
        elif what == "train":
            diary.trained(house.train())
        elif what == "decide" and house.trained:
            trained = house.trained
            if house.decide(passes=bool(value)):
                diary.decided(trained.model, trained.data, trained.session, bool(value))
        elif what == "tag":
            diary.tag(f"tag-{number}")
        elif what == "interrupt":
            data = house.lay_out()
            session = house.begin_session(data)
            if value:
                held.enter_context(working_on(session))
            diary.interrupted(session, data, bool(value))
        elif what == "collect":
            house.collect()
    return diary


@given(steps=STEPS, days=st.integers(0, 60))
@example(  # replaced a moment ago: a run that began before may still read it
    steps=[("train", 0), ("pass", 40), ("train", 0)], days=0
)
@example(  # what an unfinished session was given is old, and named nowhere else
    steps=[("interrupt", False), ("pass", 12)], days=0
)
@example(steps=[("train", 0), ("tag", 0), ("pass", 40), ("train", 0)], days=60)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_reached_stays_whole_and_what_is_not_goes_in_its_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], days: int
) -> None:
    house = House(tmp_path_factory.mktemp("house"))
    with ExitStack() as held:
        diary = live(house, steps, held)
        house.pass_days(days)
        house.collect()
    expected = diary.expected()
    limits = {
        "models": house.retention.models,
        PIPELINE: house.retention.shards,
        "sessions": house.retention.sessions,
    }
    for path, born in diary.born.items():
        if path.name in expected:
            assert path.is_dir(), f"{path} is reached"
        elif house.now - born >= limits[path.parent.name]:
            assert not path.exists(), f"{path} is reached by nothing"
    check_whole(house, diary)


def check_whole(house: House, diary: Diary) -> None:
    """Everything reached can be read and verified."""
    entries = ledger.read(house.store, PIPELINE)
    assert len({e.model for e in entries}) == len(house.decided)
    lines = [commit for commit in house.store.log() if commit.message.startswith("ledger ")]
    assert len(lines) == len(entries)
    for commit in lines:
        for entry in house.store.list(commit.id):
            house.store.read_bytes(commit.id, entry.path)
    reports = {
        file_digest_of(house, commit.id)
        for commit in lines
        if house.store.exists(commit.id, f"tables/{PIPELINE}/evaluation_report/all/report.json")
    }
    for evidence in house.decided:
        folder = house.objects.path("models", evidence.model)
        assert file_digest(folder / "model.json") == evidence.model
        manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
        verify(folder, [manifest.weights])
        session = house.objects.path("sessions", house.made_by[evidence.model])
        assert SessionFolder(session).finished_training()
        assert house.objects.path("reports", PIPELINE, f"{evidence.model[:16]}.html").is_file()
        assert evidence.report in reports
    for name, files in diary.tagged.items():
        commit = house.store.resolve(name)
        for path, content in files.items():
            assert house.store.read_bytes(commit, path) == content


def file_digest_of(house: House, commit: str) -> str:
    path = f"tables/{PIPELINE}/evaluation_report/all/report.json"
    return next(e.digest for e in house.store.list(commit, path))
