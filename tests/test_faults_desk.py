"""Faults during a run: real files and sockets in, changes of level out, and a disk that fails in between."""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path

import pytest

from holdfast.decide.faults.shipped import default_policy
from holdfast.loop.devices.desk import FaultDesk
from holdfast.loop.faults import FaultBook
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Standing
from holdfast.observe.devices.inbox import Inbox
from holdfast.observe.devices.sources import KernelFaults

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
