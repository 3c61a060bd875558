"""Faults during a run: events in, changes of level out, and a disk that fails in between."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from builders import T
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Standing
from holdfast.node.devices.buffered_log import BufferedFaultLog
from holdfast.node.devices.fault_log import FaultLog
from holdfast.record.database import FILE_NAME


def _buffered(tmp_path: Path) -> BufferedFaultLog:
    log = FaultLog(tmp_path / "home", default_policy(), T, writable=True)
    return BufferedFaultLog(log, default_policy())


def _fault(device: str, code: str = "79", *, at: float = T, **more: Any) -> FaultEvent:
    return FaultEvent(device=device, code=code, assertion=Assertion.OCCUR, at=at, **more)


def test_events_become_changes_evidence_and_entries_of_the_log(tmp_path: Path) -> None:
    faults = _buffered(tmp_path)
    (change,) = faults.note([_fault("gpu3")], T)
    assert (change.device, change.after) == ("gpu3", Remedy.ISOLATE)
    assert [change.after for change in faults.note([_fault("gpu5", "48", at=T + 1)], T + 1)] == [Remedy.RESET_NOW]
    assert [event.code for event in faults.events] == ["79", "48"]
    assert [fault.ranks for fault in faults.within(T - 5, T + 5, {"gpu3": (3,)})] == [(3,), ()]
    assert faults.close() == 0
    with FaultLog(tmp_path / "home", default_policy(), T + 9, writable=False) as log:
        assert [each.device for each in log.standings()] == ["gpu3", "gpu5"]


def test_a_bad_event_among_good_ones_is_named_and_left_out(tmp_path: Path) -> None:
    faults = _buffered(tmp_path)
    good = FaultEvent(device="gpu0", code="48", assertion=Assertion.OCCUR, at=T, source="nvml")
    bad = FaultEvent(device="gpu0", code="48", assertion=Assertion.OCCUR, at=T + 1000, source="nvml")
    assert [change.after for change in faults.note([bad, good], T)] == [Remedy.RESET_NOW]
    assert (len(faults.events), len(faults.news)) == (1, 1)
    assert "future" in faults.news[0]
    faults.close()


def test_deadlines_pass_without_any_event(tmp_path: Path) -> None:
    faults = _buffered(tmp_path)
    faults.note([FaultEvent(device="npu0", code="81078603", assertion=Assertion.OCCUR, at=T)], T)
    wake = faults.next_wake()
    assert wake == pytest.approx(T + 20.001)
    assert [change.after for change in faults.tick(T + 20.5)] == [Remedy.AVOID]
    faults.close()


def test_the_run_goes_on_when_the_disk_does_not(tmp_path: Path) -> None:
    faults = _buffered(tmp_path)
    log = faults.log
    assert log is not None
    assert log.store._db is not None
    pages = log.store._db.execute("PRAGMA page_count").fetchone()[0]
    log.store._db.execute(f"PRAGMA max_page_count = {pages}")
    event = FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T, text="x" * 200_000)
    assert [change.after for change in faults.note([event], T)] == [Remedy.ISOLATE]
    assert "full" in faults.news[0]
    assert "judged in memory only" in faults.news[0]
    faults.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.RECOVER, at=T + 1)], T + 1)
    assert (faults.engine.level("gpu0"), len(faults.news)) == (None, 1), "it is printed once"
    faults.close()


def _holder(home: Path) -> sqlite3.Connection:
    """Another process's write that does not end."""
    other = sqlite3.connect(home / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_book_that_somebody_holds_is_written_later(tmp_path: Path) -> None:
    home = tmp_path / "home"
    faults = BufferedFaultLog(FaultLog(home, default_policy(), T, writable=True, busy_ms=10), default_policy())
    faults.note([FaultEvent(device="gpu1", code="79", assertion=Assertion.OCCUR, at=T)], T)
    other = _holder(home)
    (change,) = faults.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert (change.device, change.after) == ("gpu0", Remedy.ISOLATE), "it is judged at once"
    assert "locked by another process" in faults.news[0]
    faults.news.clear()
    faults.note([FaultEvent(device="gpu1", code="79", assertion=Assertion.RECOVER, at=T + 1)], T + 0.1)
    at = faults.next_wake()
    assert at is not None
    assert faults.sync(at) == []
    assert faults.news == [], "it is printed once, however often it is tried"
    other.execute("COMMIT")
    other.close()
    later = faults.next_wake()
    assert later is not None
    assert later > at
    assert faults.sync(later) == [], "nothing is news that was judged before"
    assert [event.device for event in faults.events] == ["gpu1", "gpu0", "gpu1"]
    assert "can be written again" in faults.news[0]
    assert faults.close() == 0
    with FaultLog(home, default_policy(), T + 60, writable=False) as log:
        found = {each.device: each.standing for each in log.standings()}
    assert found == {"gpu0": Standing.ISOLATED, "gpu1": Standing.HEALTHY}


def test_what_others_wrote_before_the_book_was_held_is_news(tmp_path: Path) -> None:
    home = tmp_path / "home"
    policy = default_policy()
    faults = BufferedFaultLog(FaultLog(home, policy, T, writable=True, busy_ms=10), policy)
    with FaultLog(home, policy, T, writable=True) as theirs:
        theirs.report(FaultEvent(device="gpu5", code="79", assertion=Assertion.OCCUR, at=T), T)
    other = _holder(home)
    changes = faults.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert sorted(change.device for change in changes) == ["gpu0", "gpu5"]
    other.execute("COMMIT")
    with FaultLog(home, policy, T + 1, writable=True) as theirs:
        theirs.release("gpu5", "ada", "why not", T + 1)
        theirs.report(FaultEvent(device="gpu5", code="79", assertion=Assertion.RECOVER, at=T + 1), T + 1)
    other.close()
    (change,) = faults.sync(T + 60)
    assert (change.device, change.before, change.after) == ("gpu5", Remedy.ISOLATE, None)
    faults.close()


def test_a_book_that_could_not_be_opened_is_opened_later(tmp_path: Path) -> None:
    home, policy = tmp_path / "home", default_policy()
    FaultLog(home, Policy(), T, writable=True).close()
    tries = []

    def reopen(at: float) -> FaultLog:
        tries.append(at)
        return FaultLog(home, policy, at, writable=True, busy_ms=10)

    other = _holder(home)
    faults = BufferedFaultLog(None, policy, reopen=reopen)
    (change,) = faults.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert change.after is Remedy.ISOLATE
    assert tries == [T]
    other.execute("COMMIT")
    other.close()
    assert faults.sync(T + 60) == []
    assert faults.close() == 0
    with FaultLog(home, policy, T + 61, writable=False) as log:
        assert [each.standing for each in log.standings()] == [Standing.ISOLATED]


def test_what_was_never_written_is_counted_at_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    faults = BufferedFaultLog(FaultLog(home, default_policy(), T, writable=True, busy_ms=10), default_policy())
    other = _holder(home)
    faults.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert faults.close() == 1
    other.close()
