"""The table: every end of an attempt becomes what to do next and a sentence with a remedy."""

import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ml_assets.errors import TrainingFailed, TrainingHindered, TrainingInterrupted
from ml_assets.launch.failure import TABLE, judge
from ml_assets.launch.kubernetes.pod_failures import of_cause
from ml_assets.spec.training_program.events import Failed
from ml_assets.spec.training_program.exit_codes import EXIT_BUG, PRECEDENCE, VERDICTS

PROJECT = Path(__file__).parents[2]
LOG = "log.txt"

TORCHRUN = """\
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : {other} (pid: 18210)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {root} (pid: 18211)
  error_file: <N/A>
"""


def failed(code, reason="why", rank=0, detail="", generation=0):
    return Failed(
        session="s",
        attempt=1,
        seq=0,
        time=datetime.now(UTC),
        exit_code=code,
        reason=reason,
        rank=rank,
        generation=generation,
        step=None,
        detail=detail,
    )


@pytest.fixture
def ended(tmp_path):
    def ended(code, *events, log="", workers=False):
        (tmp_path / LOG).write_text(log)
        return judge(code, events, tmp_path / LOG, workers=workers)

    return ended


@pytest.mark.parametrize(
    ("code", "then", "says"),
    [
        (64, "stop", "request cannot be read"),
        (65, "stop", "Materialize that asset again"),
        (66, "stop", "learning_rate"),
        (69, "stop", "Install"),
        (70, "stop", "traceback"),
        (71, "again", "connection"),
        (74, "stop", "Free space"),
        (75, "interrupted", "Run again"),
        (76, "again", "no longer answered"),
        (77, "stop", "orphan"),
        (-9, "again", "out of memory"),
        (-11, "again", "SIGSEGV"),
        (-15, "interrupted", "last whole checkpoint"),
        (-2, "interrupted", "last whole checkpoint"),
        (-31, "again", "signal 31"),
        (1, "stop", "exit code 1"),
        (0, "stop", "no complete result"),
    ],
)
def test_each_end_has_a_next_step_and_a_sentence(ended, code, then, says):
    ending = ended(code)
    assert ending.then == then
    error = ending.error("attempt 1", Path(LOG))
    assert says in str(error)
    assert str(error).startswith("attempt 1 stopped: ")
    assert str(error).endswith("\n  Log: log.txt")
    kind = TrainingHindered if code in (69, 74) else TrainingFailed
    assert type(error) is (TrainingInterrupted if then == "interrupted" else kind)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("ImagePull", TrainingHindered),
        ("QuotaExceeded", TrainingHindered),
        ("NodeLost", TrainingHindered),
        ("ScratchFull", TrainingFailed),
        ("OOMKilled", TrainingFailed),
    ],
)
def test_what_a_cluster_keeps_from_running_is_not_at_fault(cause, kind):
    assert type(of_cause(cause).error("attempt 1", Path(LOG))) is kind


@pytest.mark.parametrize("code", [64, 65, 66, 75])
def test_torchruns_exit_code_1_is_read_as_what_the_workers_ended_with(ended, code):
    log = TORCHRUN.format(root=code, other=-15)
    assert ended(1, log=log, workers=True).code == code


def test_a_rank_that_was_killed_is_the_cause_not_what_its_peer_made_of_it(ended):
    peer = failed(70, "RuntimeError: Connection closed by peer")
    ending = ended(1, peer, log=TORCHRUN.format(root=-9, other=70), workers=True)
    assert (ending.code, ending.then) == (-9, "again")
    assert "out of memory" in ending.report("attempt 1")


def test_a_ranks_own_verdict_is_the_cause_not_the_exceptions_of_its_peers(ended):
    events = failed(70, "RuntimeError: Connection closed by peer"), failed(66, "loss nan", rank=1)
    ending = ended(1, *events, log=TORCHRUN.format(root=70, other=66), workers=True)
    assert (ending.code, ending.then) == (66, "stop")
    assert "loss nan (rank 1)" in ending.report("attempt 1")


def test_a_rank_that_hung_is_the_cause_not_the_signal_that_ended_it(ended):
    silent = failed(76, "waited 30 s for rank 1, whose last heartbeat came 31 s ago at step 7")
    ending = ended(1, silent, log=TORCHRUN.format(root=76, other=-9), workers=True)
    assert (ending.code, ending.then) == (76, "again")
    assert "rank 1, whose last heartbeat" in ending.report("attempt 1")


def test_what_an_earlier_start_of_the_processes_ended_with_is_history(ended):
    events = failed(76), failed(71, generation=3)
    ending = ended(1, *events, log=TORCHRUN.format(root=-9, other=71), workers=True)
    assert ending.code == -9


def test_the_programs_own_verdicts_are_those_that_a_restart_would_only_repeat():
    """``VERDICTS`` is what the program itself ends a restart for; a bug it tells from the ranks."""
    final = {code for code, meaning in TABLE.items() if code > 0 and meaning.then != "again"}
    assert final - {EXIT_BUG} == VERDICTS


def test_the_table_is_in_the_order_by_which_the_true_code_is_found():
    assert tuple(TABLE) == PRECEDENCE


def test_the_table_in_the_docs_is_the_table():
    text = (PROJECT / "docs" / "operate.md").read_text()
    wanted = [
        f"| {_named(code)} | {meaning.what} | {_NEXT[meaning.then]} | {meaning.remedy} |"
        for code, meaning in TABLE.items()
    ]
    assert [line for line in wanted if line not in text.splitlines()] == []


_NEXT = {"stop": "it stops", "again": "again", "interrupted": "it waits for you"}


def _named(code):
    return f"`{signal.Signals(-code).name}`" if code < 0 else f"`{code}`"


def test_torchruns_own_trouble_is_tried_again(ended):
    assert ended(1, log="the port is taken", workers=True).then == "again"


def test_a_bug_is_told_with_the_end_of_its_traceback(ended):
    text = ended(70, failed(70, detail="\n".join(f"frame {n}" for n in range(50)))).report("a")
    assert "frame 49" in text and "frame 30" in text and "frame 29" not in text


def test_a_log_that_is_lost_or_not_text_is_no_second_failure(tmp_path, ended):
    (tmp_path / LOG).write_bytes(b"\xff\xfe\n" * 100_000)
    assert judge(-9, [], tmp_path / LOG, workers=False).code == -9
    assert "(empty)" in judge(-9, [], tmp_path / "lost.txt", workers=False).report("a")
