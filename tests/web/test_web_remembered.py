"""What the pages' process has read before: the same answers, from what is new alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from builders import job_spec
from holdfast.model.decisions import DecisionKind, JobReport
from holdfast.model.events import Event, StopRequested
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.exit_report import Outcome
from holdfast.record import job_history
from holdfast.record.job_directory import claim
from holdfast.record.job_history import job_history as past
from holdfast.record.job_views import events
from holdfast.record.journal import Journal
from holdfast.untrusted import json_as
from holdfast.web.journal_cache import JournalCache
from holdfast_testing.history_generator import make_history


def request_number(number: int) -> Event:
    return StopRequested(request=StopRequest(source=StopSource.OPERATOR, reason=f"number {number}"))


def test_a_second_look_at_jobs_is_the_same_as_a_first_one_and_reads_no_job_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_history(tmp_path, jobs=40, ranks=8, now=time.time())
    remembered = JournalCache()
    assert remembered.past(tmp_path) == past(tmp_path)
    decoded = 0

    def counted(data: bytes, kind: type) -> object:
        nonlocal decoded
        decoded += 1
        return json_as(data, kind)

    monkeypatch.setattr(job_history, "json_as", counted)
    again = remembered.past(tmp_path)
    live = [job for job in again.jobs if job.view.ended is None]
    assert decoded == sum(1 + len(job.attempts) for job in live)
    assert again == past(tmp_path)


def test_a_job_that_ends_between_two_looks_is_read_anew(tmp_path: Path) -> None:
    make_history(tmp_path, jobs=3, ranks=2, now=time.time())
    remembered = JournalCache()
    [made, *_] = [job for job in remembered.past(tmp_path).jobs if job.attempts]
    journal, place = Journal.open(tmp_path), claim(tmp_path, name="train", now=time.time())
    journal.create_job(place.job_id, job_spec(name="train"), now=time.time(), host="n1", pid=1)
    assert [job.view.ended for job in remembered.past(tmp_path).jobs if job.view.id == place.job_id] == [None]
    record = made.attempts[-1]
    journal.record_attempt(place.job_id, record)
    report = JobReport(
        job_id=place.job_id, name="train", outcome=Outcome.FAILED, report=record.report, attempts=(record,)
    )
    journal.finish(report, now=time.time())
    journal.close()
    place.lock.release()
    [ended] = [job for job in remembered.past(tmp_path).jobs if job.view.id == place.job_id]
    assert ended.view.ended is not None and ended.attempts == (record,)
    assert record.decision.kind in DecisionKind


def test_events_that_were_read_are_not_read_again_and_new_ones_follow_them(tmp_path: Path) -> None:
    journal, place = Journal.open(tmp_path), claim(tmp_path, name="train", now=1000.0)
    journal.create_job(place.job_id, job_spec(name="train"), now=1000.0, host="n1", pid=1)
    remembered = JournalCache()
    for number in range(3):
        journal.append(place.job_id, 1000.0 + number, request_number(number))
        seen = remembered.events(tmp_path, place.job_id)
        assert list(seen) == list(events(tmp_path, place.job_id))
        assert len(seen) == number + 1
    journal.close()
    place.lock.release()


def test_a_job_without_a_journal_has_no_events(tmp_path: Path) -> None:
    assert JournalCache().events(tmp_path, "none") == ()
