"""The reader: typed, whole lines only, each event once, an older attempt's late words unheard."""

import json

from ml_assets.launch.events import (
    EventReader,
    SessionReader,
    append_warning,
    parse,
    session_events,
)


def line(seq, attempt=1, step=1):
    head = {"v": 1, "session": "s", "attempt": attempt, "seq": seq}
    time = "2026-01-02T03:04:05+00:00"
    body = {"time": time, "kind": "metrics", "step": step, "metrics": {"train_loss": 0.5}}
    return json.dumps({**head, **body}) + "\n"


def attempt(session, number):
    folder = session / "attempts" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "events.jsonl"


def test_a_half_written_line_waits_until_it_is_whole(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text(line(0) + line(1)[:25])
    reader = EventReader(tmp_path)
    assert [event.seq for event in reader.new()] == [0]
    file.write_text(line(0) + line(1))
    assert [event.seq for event in reader.new()] == [1]
    assert list(reader.new()) == []


def test_a_line_that_is_no_event_is_passed_by(tmp_path):
    naive = line(1).replace("+00:00", "")
    (tmp_path / "events.jsonl").write_text("{}\nnot json\n" + naive + line(2))
    assert [event.seq for event in EventReader(tmp_path).new()] == [2]


def test_an_event_is_typed():
    event = parse(line(7).encode())
    assert event is not None and event.kind == "metrics"
    assert event.metrics == {"train_loss": 0.5}


def test_ranks_that_failed_are_heard_after_rank_0(tmp_path):
    (tmp_path / "events.jsonl").write_text(line(0))
    (tmp_path / "events.rank1.jsonl").write_text(line(10_000_000))
    assert [event.seq for event in EventReader(tmp_path).new()] == [0, 10_000_000]


def test_attempts_come_in_order_of_their_number_not_of_their_name(tmp_path):
    for number in (10, 9, 1):
        attempt(tmp_path, number).write_text(line(0, number))
    assert [event.attempt for event in session_events(tmp_path)] == [1, 9, 10]


def test_what_an_orphan_of_an_older_attempt_adds_later_does_not_count(tmp_path):
    attempt(tmp_path, 1).write_text(line(0))
    reader = SessionReader(tmp_path)
    assert len(list(reader.new())) == 1
    attempt(tmp_path, 2).write_text(line(0, 2))
    assert len(list(reader.new())) == 1
    with attempt(tmp_path, 1).open("a") as orphan:
        orphan.write(line(1))
    assert list(reader.new()) == []


def test_the_launchers_warnings_are_part_of_the_stream_each_with_a_number_of_its_own(tmp_path):
    file = attempt(tmp_path, 1)
    file.write_text(line(0))
    append_warning(file.parent, "s", 1, "it crashed")
    append_warning(file.parent, "s", 1, "and again")
    events = session_events(tmp_path)
    assert [event.kind for event in events] == ["metrics", "warning", "warning"]
    assert len({event.seq for event in events}) == 3


def test_the_launchers_words_take_no_number_of_a_rank(tmp_path):
    append_warning(tmp_path, "s", 1, "the launcher says a word")
    (tmp_path / "events.rank100.jsonl").write_text(line(100 * 10_000_000))
    assert {event.kind for event in EventReader(tmp_path).new()} == {"warning", "metrics"}
