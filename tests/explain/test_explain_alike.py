"""Ranks that end alike have no culprit."""

from __future__ import annotations

import json
import re

import pytest
from explain_builders import ended_rank, report_of_workers
from msgspec.structs import replace

from conftest import Holdfast
from holdfast.explain import explain
from holdfast.explain.openpai_exit_file import agg_error_file
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import Outcome
from holdfast.record.report_file import from_json_object, to_json_object
from holdfast.report.brief_report import render_brief
from holdfast.report.failure_place import FailurePlace


def test_four_ranks_that_leave_without_a_word_are_told_together() -> None:
    report = report_of_workers([ended_rank(rank, at=100.0 + rank * 0.004) for rank in range(4)])
    assert report.reason == "all 4 ranks exited with status 1 within 12 ms and printed nothing"
    assert (report.first, report.collateral, report.also) == (None, (), ())
    assert report.original.exit_code == 1
    assert [item.kind for item in report.evidence] == ["exit_code"] * 4


def test_a_rank_that_was_only_stopped_is_not_counted() -> None:
    workers = [ended_rank(rank, at=100.0 + rank * 0.004) for rank in range(3)] + [ended_rank(3, at=100.6, stopped=True)]
    report = report_of_workers(workers)
    assert report.reason == "3 of 4 ranks exited with status 1 within 8 ms and printed nothing"
    assert (report.first, report.collateral) == (None, ())


def test_one_rank_that_leaves_alone_is_the_culprit() -> None:
    report = report_of_workers([ended_rank(0, stopped=True, at=100.6), ended_rank(1)])
    assert report.first is not None
    assert report.first.rank == 1


def test_another_status_is_another_end() -> None:
    report = report_of_workers([ended_rank(0), ended_rank(1, code=7, at=100.1)])
    assert report.first is not None
    assert report.first.rank == 0


KEY_ERROR = """Traceback (most recent call last):
  File "/app/train.py", line 9, in <module>
    lr = cfg["lr"]
KeyError: 'lr'
"""


def test_ranks_that_raise_the_same_exception_at_the_same_place_have_no_culprit() -> None:
    report = report_of_workers([ended_rank(rank, at=100.0 + rank * 0.004, said=KEY_ERROR) for rank in range(4)])
    assert report.reason.startswith("all 4 ranks raised KeyError: 'lr'; all of them at /app/train.py:9")
    assert (report.first, report.collateral, report.also) == (None, (), ())
    assert [item.text for item in report.evidence] == ["KeyError: 'lr'\n  at /app/train.py:9 in <module>"]
    assert (report.exception, report.original.exit_code) == ("KeyError", 1)


def test_those_that_were_stopped_while_they_raised_it_count_and_the_others_do_not() -> None:
    said = [
        ended_rank(0, said=KEY_ERROR),
        ended_rank(1, at=100.6, stopped=True, said=KEY_ERROR),
        ended_rank(2, at=100.6, stopped=True),
    ]
    report = report_of_workers(said, stop_asked_at=100.1)
    assert report.reason.startswith("2 of 3 ranks raised KeyError: 'lr'")
    assert report.first is None


@pytest.mark.parametrize(
    "other",
    [
        KEY_ERROR.replace("'lr'", "'split'"),
        KEY_ERROR.replace("line 9", "line 12"),
        KEY_ERROR.replace("KeyError: 'lr'", "ValueError: 'lr'"),
    ],
)
def test_another_exception_or_another_place_has_a_culprit(other: str) -> None:
    report = report_of_workers([ended_rank(0, said=KEY_ERROR), ended_rank(1, at=100.1, said=other)])
    assert report.first is not None
    assert report.first.rank == 0


def test_one_that_dies_of_another_cause_leaves_a_culprit() -> None:
    segv = ended_rank(2, at=100.02)
    assert segv.exit is not None
    killed = WorkerEvidence(rank=2, node="n0", exit=replace(segv.exit, exit_code=None, signal=11))
    report = report_of_workers([ended_rank(0, said=KEY_ERROR), ended_rank(1, at=100.01, said=KEY_ERROR), killed])
    assert report.first is not None


def test_logs_alone_tell_of_all_that_raised_it() -> None:
    logs = (WorkerEvidence(rank=rank, log=LogExcerpt(source=f"{rank}.log", text=KEY_ERROR)) for rank in range(3))
    report = explain(AttemptEvidence(workers=tuple(logs)))
    assert report.reason.startswith("all 3 ranks raised KeyError: 'lr'")
    assert report.first is None


def test_what_left_the_program_stays_with_its_cause() -> None:
    chain = """Traceback (most recent call last):
  File "/app/conf.py", line 4, in read
    return parse(f)
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/train.py", line 9, in <module>
    read()
RuntimeError: cannot read config run.cfg
"""
    report = report_of_workers([ended_rank(0, said=chain)])
    assert (
        report.reason
        == "rank 0 on n0 raised RuntimeError: cannot read config run.cfg, because ZeroDivisionError: division by zero"
    )
    assert report.exception == "ZeroDivisionError"
    assert report.chain == (
        "RuntimeError: cannot read config run.cfg",
        "because ZeroDivisionError: division by zero",
    )
    assert report.evidence[0].text.splitlines()[:2] == list(report.chain)


def test_one_that_says_why_is_the_culprit_of_those_that_say_nothing() -> None:
    report = report_of_workers([ended_rank(0), ended_rank(1, at=100.1, said="ValueError: no such split\n")])
    assert report.first is not None
    assert report.first.rank == 1


def test_one_that_accuses_a_peer_leaves_the_silent_one_as_the_culprit() -> None:
    report = report_of_workers(
        [ended_rank(0), ended_rank(1, at=100.1, said="RuntimeError: Connection closed by peer [::1]:1\n")]
    )
    assert report.first is not None
    assert report.first.rank == 0


def test_later_than_half_a_second_is_not_together() -> None:
    report = report_of_workers([ended_rank(0), ended_rank(1, at=101.0)], stop_asked_at=102.0)
    assert report.first is not None


def test_words_that_explain_nothing_are_told() -> None:
    report = report_of_workers([ended_rank(rank, code=3, said="bye\n") for rank in range(2)])
    assert report.reason == "both ranks exited with status 3 within 1 ms and nothing known in their logs says why"
    assert report.first is None
    assert "bye" in [item.text for item in report.evidence]


def test_a_status_that_means_something_keeps_its_meaning() -> None:
    report = report_of_workers([ended_rank(rank, code=127) for rank in range(2)])
    assert report.phrase == "CommandNotFound"
    assert report.first is None
    assert "exited with status 127 within 1 ms and printed nothing; status 127, a command" in report.reason
    contract = report_of_workers([ended_rank(rank, code=201) for rank in range(2)])
    assert (contract.code, contract.first, contract.rerun) == (201, None, "later")


def test_every_surface_copes_with_no_culprit() -> None:
    evidence = AttemptEvidence(workers=tuple(ended_rank(rank) for rank in range(4)), stop_asked_at=100.5, job="j")
    report = explain(evidence)
    record = AttemptRecord(
        attempt=1, started_at=90.0, ended_at=101.0, report=report,
        decision=Decision(kind=DecisionKind.FAIL, reason="enough"),
    )  # fmt: skip
    job = JobReport(job_id="j", name="n", outcome=Outcome.FAILED, report=report, attempts=(record,))
    assert from_json_object(json.loads(json.dumps(to_json_object(job)))) == job
    text = render_brief(job, FailurePlace(), verbose=True)
    assert "    rank " not in text
    assert "others" not in text
    assert b"originalUserExitCode: 1\n" in agg_error_file(report, evidence)


@pytest.mark.real
def test_a_real_gang_that_exits_alike(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, pathlib, sys, time
        pathlib.Path(f"there-{os.environ['RANK']}").touch()
        while len(list(pathlib.Path().glob("there-*"))) < 4:
            time.sleep(0.01)
        sys.exit(1)
        """
    )
    ran = holdfast.run("--nproc-per-node", "4", "--max-restarts", "0", script)
    report = ran.report
    assert re.fullmatch(r"all 4 ranks exited with status 1 within \d+ ms and printed nothing", report["reason"])
    assert (report["first"], report["collateral"], report["original"]["exit_code"]) == (None, [], 1)
    shown = holdfast("show", report["job"]["id"])
    listed = holdfast("jobs", "--json")
    assert (shown.status, listed.status) == (0, 0)
    assert "all 4 ranks exited" in shown.out
    assert holdfast("show", report["job"]["id"], "--json").status == 0


@pytest.mark.real
def test_the_others_have_half_a_second_to_say_why(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, time
        if os.environ["RANK"] == "1":
            time.sleep(0.1)
            raise KeyError("rows")
        os._exit(1)
        """
    )
    report = holdfast.run("--nproc-per-node", "3", "--max-restarts", "0", script).report
    assert (report["exception"], report["first"]["rank"]) == ("KeyError", 1)
