"""Two deaths at once: the rank that died first is named, though the kernel tells of it second, or our stop cuts it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from holdfast.act.linux import is_dying
from holdfast.explain import explain, first_hand, is_wordless
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit

NO_NUMBER = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\nValueError: the loss is no number\n'
)
GLOO_PEER_CLOSED = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "RuntimeError: [pair.cc:525] Connection closed by peer [127.0.0.1]:33333\n"
)
STOP_AT = 10.5


def dying_worker(
    rank: int,
    at: float,
    *,
    code: int | None = None,
    number: int | None = None,
    log: str = "",
    said_at: float | None = None,
    after_stop: bool = False,
    was_dying: bool = False,
) -> WorkerEvidence:
    ended = WorkerExit(
        role="worker",
        rank=rank,
        node="n",
        attempt=1,
        pid=100 + rank,
        exit_code=code,
        signal=number,
        started_at=0.0,
        ended_at=at,
        order=rank + 1,
        after_stop=after_stop,
        was_dying=was_dying,
        last_words=log,
    )
    stderr = LogExcerpt(source=f"worker-{rank} stderr", text=log) if log else None
    return WorkerEvidence(rank=rank, node="n", exit=ended, stderr=stderr, last_output_at=said_at)


def culprit_of(*workers: WorkerEvidence) -> tuple[int, str]:
    report = explain(AttemptEvidence(workers=workers, stop_asked_at=STOP_AT))
    assert report.first is not None
    return report.first.rank, report.phrase


def test_a_rank_that_was_dying_already_is_no_victim_of_the_stop() -> None:
    silent = dying_worker(0, 10.4, code=1)
    assert culprit_of(silent, dying_worker(1, 10.4, number=9, was_dying=True)) == (1, "KilledBySignal")
    assert culprit_of(silent, dying_worker(1, 10.6, number=9, after_stop=True))[0] == 0


def test_the_exception_of_a_rank_that_our_stop_met_on_its_way_out_is_the_cause() -> None:
    cut_short = dying_worker(1, 10.7, number=15, log=NO_NUMBER, said_at=10.1, after_stop=True)
    assert culprit_of(dying_worker(0, 10.4, code=1), cut_short) == (1, "UserException")
    assert culprit_of(dying_worker(0, 10.4, code=1, log=GLOO_PEER_CLOSED, said_at=10.4), cut_short) == (
        1,
        "UserException",
    )


def test_what_a_rank_says_after_the_stop_is_no_cause() -> None:
    late = dying_worker(1, 10.7, number=15, log=NO_NUMBER, said_at=10.6, after_stop=True)
    assert culprit_of(dying_worker(0, 10.4, code=1), late)[0] == 0


def test_a_crash_before_the_stop_comes_before_words_of_the_stopped() -> None:
    cut_short = dying_worker(1, 10.7, number=15, log=NO_NUMBER, said_at=10.1, after_stop=True)
    assert culprit_of(dying_worker(0, 10.4, number=11), cut_short)[0] == 0


@pytest.mark.parametrize(
    ("ended", "wordless"),
    [
        (dying_worker(0, 1.0, code=1), True),
        (dying_worker(0, 1.0, code=3, log=" \n"), True),
        (dying_worker(0, 1.0, code=1, log="out of luck"), False),
        (dying_worker(0, 1.0, code=200), False),
        (dying_worker(0, 1.0, code=0), False),
        (dying_worker(0, 1.0, number=9), False),
    ],
)
def test_wordless(ended: WorkerEvidence, wordless: bool) -> None:
    assert ended.exit is not None
    assert is_wordless(ended.exit) is wordless
    if wordless:
        assert first_hand(ended.exit), "it blames no rank: it only does not speak"


@pytest.mark.real
def test_a_process_is_dying_from_its_last_moment_until_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not is_dying(process.pid)
        pidfd = os.pidfd_open(process.pid)
        process.send_signal(signal.SIGKILL)
        select.select([pidfd], [], [], 30)
        os.close(pidfd)
        assert is_dying(process.pid), "dead, not yet reaped"
        process.wait()
        assert not is_dying(process.pid), "gone"
