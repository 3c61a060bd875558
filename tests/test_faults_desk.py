"""Faults during a run: real files and sockets in, changes of level out, and a disk that fails in between."""

from __future__ import annotations

import json
import select
import socket
import sqlite3
from pathlib import Path

import pytest

from holdfast.decide.faults.policy import Policy
from holdfast.decide.faults.shipped import default_policy
from holdfast.loop.devices.desk import FaultDesk
from holdfast.loop.faults import FaultBook
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Standing
from holdfast.observe.devices.inbox import Inbox
from holdfast.observe.devices.sources import KernelFaults
from holdfast.record.database import FILE_NAME

T = 1_700_000_000.0
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=5, GPU has fallen off the bus.\n"


def _desk(tmp_path: Path) -> FaultDesk:
    (tmp_path / "kern.log").touch()
    kernel = KernelFaults(tmp_path / "kern.log", node="n1", names={"0000:3b:00": "gpu3"})
    book = FaultBook(tmp_path / "home", default_policy(), T, writable=True)
    return FaultDesk(book, default_policy(), [kernel, Inbox(tmp_path / "faults.sock")])


def test_what_sources_see_becomes_changes_standings_and_evidence(tmp_path: Path) -> None:
    desk = _desk(tmp_path)
    kernel, inbox = desk.fds()
    (tmp_path / "kern.log").write_text(XID)
    assert select.select([kernel], [], [], 10)[0]
    (change,) = desk.ready(kernel, T)
    assert (change.device, change.after) == ("gpu3", Remedy.ISOLATE)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "faults.sock"))
        line = {"who": "me", "at": T + 1, "device": "gpu5", "code": "48"}
        peer.sendall(json.dumps(line).encode() + b"\n")
        changes = [change for _ in range(3) for change in desk.ready(inbox, T + 1)]
    assert [(change.device, change.after) for change in changes] == [("gpu5", Remedy.RESET_NOW)]
    assert [event.code for event in desk.events] == ["79", "48"]
    assert [fault.ranks for fault in desk.within(T - 5, T + 5, {"gpu3": (3,)})] == [(3,), ()]
    placing = desk.placeable(["gpu3", "gpu4"])
    assert (placing.usable, placing.kept_out[0].standing) == (("gpu4",), Standing.ISOLATED)
    desk.close()
    with FaultBook(tmp_path / "home", default_policy(), T + 9, writable=False) as book:
        assert [each.device for each in book.standings()] == ["gpu3", "gpu5"]


def test_a_bad_event_among_good_ones_is_named_and_left_out(tmp_path: Path) -> None:
    desk = _desk(tmp_path)
    good = FaultEvent(device="gpu0", code="48", assertion=Assertion.OCCUR, at=T, source="nvml")
    bad = FaultEvent(device="gpu0", code="48", assertion=Assertion.OCCUR, at=T + 1000, source="nvml")
    assert [change.after for change in desk.note([bad, good], T)] == [Remedy.RESET_NOW]
    assert (len(desk.events), len(desk.news)) == (1, 1)
    assert "future" in desk.news[0]
    desk.close()


def test_deadlines_pass_without_any_event(tmp_path: Path) -> None:
    desk = _desk(tmp_path)
    desk.note([FaultEvent(device="npu0", code="81078603", assertion=Assertion.OCCUR, at=T)], T)
    wake = desk.next_wake()
    assert wake == pytest.approx(T + 20.001)
    assert [change.after for change in desk.tick(T + 20.5)] == [Remedy.AVOID]
    desk.close()


def test_the_run_goes_on_when_the_disk_does_not(tmp_path: Path) -> None:
    desk = _desk(tmp_path)
    book = desk.book
    assert book is not None
    assert book.log._db is not None
    pages = book.log._db.execute("PRAGMA page_count").fetchone()[0]
    book.log._db.execute(f"PRAGMA max_page_count = {pages}")
    event = FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T, text="x" * 200_000)
    assert [change.after for change in desk.note([event], T)] == [Remedy.ISOLATE]
    assert "full" in desk.news[0]
    assert "judged in memory only" in desk.news[0]
    desk.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.RECOVER, at=T + 1)], T + 1)
    assert (desk.engine.level("gpu0"), len(desk.news)) == (None, 1), "it is said once"
    desk.close()


def _holder(home: Path) -> sqlite3.Connection:
    """Another process's write that does not end."""
    other = sqlite3.connect(home / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_book_that_somebody_holds_is_written_later(tmp_path: Path) -> None:
    home = tmp_path / "home"
    desk = FaultDesk(FaultBook(home, default_policy(), T, writable=True, busy_ms=10), default_policy(), ())
    desk.note([FaultEvent(device="gpu1", code="79", assertion=Assertion.OCCUR, at=T)], T)
    other = _holder(home)
    (change,) = desk.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert (change.device, change.after) == ("gpu0", Remedy.ISOLATE), "it is judged at once"
    assert "locked by another process" in desk.news[0]
    desk.news.clear()
    desk.note([FaultEvent(device="gpu1", code="79", assertion=Assertion.RECOVER, at=T + 1)], T + 0.1)
    at = desk.next_wake()
    assert at is not None
    assert desk.sync(at) == []
    assert desk.news == [], "it is said once, however often it is tried"
    other.execute("COMMIT")
    other.close()
    later = desk.next_wake()
    assert later is not None
    assert later > at
    assert desk.sync(later) == [], "nothing is news that was judged before"
    assert [event.device for event in desk.events] == ["gpu1", "gpu0", "gpu1"]
    assert "can be written again" in desk.news[0]
    assert desk.close() == 0
    with FaultBook(home, default_policy(), T + 60, writable=False) as book:
        found = {each.device: each.standing for each in book.standings()}
    assert found == {"gpu0": Standing.ISOLATED, "gpu1": Standing.HEALTHY}


def test_what_others_wrote_before_the_book_was_held_is_news(tmp_path: Path) -> None:
    home = tmp_path / "home"
    policy = default_policy()
    desk = FaultDesk(FaultBook(home, policy, T, writable=True, busy_ms=10), policy, ())
    with FaultBook(home, policy, T, writable=True) as theirs:
        theirs.report(FaultEvent(device="gpu5", code="79", assertion=Assertion.OCCUR, at=T), T)
    other = _holder(home)
    changes = desk.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert sorted(change.device for change in changes) == ["gpu0", "gpu5"]
    other.execute("COMMIT")
    with FaultBook(home, policy, T + 1, writable=True) as theirs:
        theirs.release("gpu5", "ada", "why not", T + 1)
        theirs.report(FaultEvent(device="gpu5", code="79", assertion=Assertion.RECOVER, at=T + 1), T + 1)
    other.close()
    (change,) = desk.sync(T + 60)
    assert (change.device, change.before, change.after) == ("gpu5", Remedy.ISOLATE, None)
    desk.close()


def test_a_book_that_could_not_be_opened_is_opened_later(tmp_path: Path) -> None:
    home, policy = tmp_path / "home", default_policy()
    FaultBook(home, Policy(), T, writable=True).close()
    tries = []

    def reopen(at: float) -> FaultBook:
        tries.append(at)
        return FaultBook(home, policy, at, writable=True, busy_ms=10)

    other = _holder(home)
    desk = FaultDesk(None, policy, (), reopen=reopen)
    (change,) = desk.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert change.after is Remedy.ISOLATE
    assert tries == [T]
    other.execute("COMMIT")
    other.close()
    assert desk.sync(T + 60) == []
    assert desk.close() == 0
    with FaultBook(home, policy, T + 61, writable=False) as book:
        assert [each.standing for each in book.standings()] == [Standing.ISOLATED]


def test_what_was_never_written_is_counted_at_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    desk = FaultDesk(FaultBook(home, default_policy(), T, writable=True, busy_ms=10), default_policy(), ())
    other = _holder(home)
    desk.note([FaultEvent(device="gpu0", code="79", assertion=Assertion.OCCUR, at=T)], T)
    assert desk.close() == 1
    other.close()
