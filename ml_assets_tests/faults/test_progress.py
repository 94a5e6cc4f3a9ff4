"""What is read of the work from the outside, and what is counted by it; the page of no rounds."""

import json
from pathlib import Path

from ml_assets_tests.faults.matrix import ARENAS, TURNS, WANTED
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.places import PLACES
from ml_assets_tests.faults.progress import Pace, Progress


def test_what_the_matrix_is_to_have_names_faults_that_there_are() -> None:
    known = {fault for faults in ARENAS.values() for fault in faults}
    assert {fault for faults in WANTED.values() for fault in faults} <= known
    assert {*TURNS} == {*ARENAS} == {*PLACES}
    page = write_page([])
    assert "- a real cluster\n" in page
    assert "No round was played yet." in page
    assert "not drawn in these rounds: laptop: the command is killed" in page


def test_what_a_fault_cost_is_held_to_where_nothing_struck() -> None:
    pace = Pace()
    pace.learn({"begun": 0.0, "data": 2.0, "model": 5.0, "ended": 6.0})
    reached = {"begun": 0.0, "data": 2.0, "model": 12.0, "ended": 13.0}
    assert pace.lost(reached, 4.0) == 7.0
    assert pace.lost(reached, 12.5) == 0.0
    assert pace.lost(reached, 14.0) is None
    pace.learn(reached, [4.0])
    assert pace.seen == {"data": [2.0, 2.0], "model": [3.0], "ended": [1.0, 1.0]}


def test_steps_that_are_taken_again_are_counted_from_events_and_heartbeats(tmp_path: Path) -> None:
    attempt = tmp_path / "objects" / "sessions" / "irises-train-0123" / "attempts" / "1"
    attempt.mkdir(parents=True)
    progress = Progress(tmp_path, lambda: ["a table", "a table"])

    def tell(second: int, **event: object) -> None:
        with (attempt / "events.jsonl").open("a") as events:
            head = {"session": "irises-train-0123", "time": f"2026-01-01T00:00:{second:02}Z"}
            events.write(json.dumps(head | event) + "\n")

    tell(1, kind="first_rows")
    tell(2, kind="metrics", step=20)
    beat = {"step": 33, "time": "2026-01-01T00:00:03Z"}
    (attempt / "heartbeat.0.json").write_text(json.dumps(beat))
    progress.look()
    assert progress.again == 0
    tell(4, kind="progress", step=20, message="resumed at step 20 of 240")
    progress.look()
    assert progress.again == 13
    assert {*progress.reached} == {
        "begun",
        "train: step 20",
        "published: a table (1)",
        "published: a table (2)",
    }


def test_the_work_is_between_what_it_reached_and_what_comes_next(tmp_path: Path) -> None:
    published: list[str] = []
    progress = Progress(tmp_path, lambda: published)
    way = {"begun": 0.0, "published: a table (1)": 5.0, "ended": 5.5}
    assert 0.0 <= progress.position(way) < 5.0
    progress.reached["begun"] -= 60
    assert progress.position(way) == 5.0
    published.append("a table")
    progress.look()
    assert 5.0 <= progress.position(way) <= 5.5
