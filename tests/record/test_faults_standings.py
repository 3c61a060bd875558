"""Standings that outlive processes: one log, any number of writers, snapshots, and disks that fail."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from record_builders import reported

from builders import T
from holdfast.decide.faults.fault_policy import FrequencyRule, Policy
from holdfast.decide.faults.isolation import standing
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Standing
from holdfast.node.devices import fault_log as door
from holdfast.node.devices.fault_log import FaultLog
from holdfast.record.database import FILE_NAME
from holdfast.record.device_standings import RowKind, Standings, StandingsUnusable
from places import TESTS

HOLDS_79 = Policy(
    levels={"79": Remedy.ISOLATE},
    frequency={"79": FrequencyRule(window_s=3600, times=3, remedy=Remedy.HOLD, release_s=86_400)},
)


def write_faults(home: Path, *events: FaultEvent, policy: Policy = HOLDS_79) -> None:
    for each in events:
        with FaultLog(home, policy, each.at, writable=True) as book:
            book.report(each, each.at)


def standing_at(home: Path, at: float, device: str = "gpu0", policy: Policy = HOLDS_79) -> Standing:
    with FaultLog(home, policy, T + at, writable=False) as book:
        return standing(book.engine, device).standing


def test_counts_and_holds_outlive_the_process(tmp_path: Path) -> None:
    write_faults(tmp_path, reported(0), reported(10))
    assert standing_at(tmp_path, 15) is Standing.HEALTHY
    write_faults(tmp_path, reported(20))
    assert standing_at(tmp_path, 30) is Standing.HELD
    assert standing_at(tmp_path, 20 + 86_401) is Standing.HEALTHY, "the code's own release window"


def test_a_release_keeps_who_when_and_why_and_counts_from_zero(tmp_path: Path) -> None:
    write_faults(tmp_path, reported(0), reported(1), reported(2))
    with FaultLog(tmp_path, HOLDS_79, T + 5, writable=True) as book:
        (change,) = book.release("gpu0", "ada", "new riser card", T + 5)
        assert (change.before, change.after) == (Remedy.HOLD, None)
    write_faults(tmp_path, reported(10), reported(11))
    with FaultLog(tmp_path, HOLDS_79, T + 12, writable=False) as book:
        assert book.engine.counts("gpu0") == {"79": 2}
        ((when, note),) = book.releases()
    assert (when, note.who, note.reason, note.device) == (T + 5, "ada", "new riser card", "gpu0")
    assert "3 times" in note.was


def test_a_hold_survives_its_rule_and_reading_changes_nothing(tmp_path: Path) -> None:
    write_faults(tmp_path, reported(0), reported(1), reported(2))
    assert standing_at(tmp_path, 5, policy=Policy()) is Standing.HELD
    assert standing_at(tmp_path, 20 + 86_401) is Standing.HEALTHY, "the rule of the log still counts"
    write_faults(tmp_path, reported(30, device="gpu1"), policy=Policy())
    assert standing_at(tmp_path, 20 + 86_401, policy=Policy()) is Standing.HELD


def test_snapshots_only_shorten_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SNAPSHOT_EVERY", 3)
    story = [reported(n * 10, device=f"gpu{n % 3}", assertion=list(Assertion)[n % 3]) for n in range(20)]
    short, long = tmp_path / "short", tmp_path / "long"
    write_faults(short, *story)
    monkeypatch.setattr(door, "SNAPSHOT_EVERY", 10**6)
    write_faults(long, *story)
    seen = []
    for home in (short, long):
        with FaultLog(home, HOLDS_79, T + 300, writable=False) as book:
            seen.append((book.standings(), [book.engine.counts(f"gpu{n}") for n in range(3)]))
            started_at = book._snapshot_seq
        assert (started_at > 0) == (home == short)
    assert seen[0] == seen[1]
    db = sqlite3.connect(short / FILE_NAME)
    assert db.execute("SELECT count(*) FROM fault_snapshots").fetchone()[0] <= 2
    db.execute("UPDATE fault_snapshots SET state = x'00'")
    db.commit()
    db.close()
    with FaultLog(short, HOLDS_79, T + 300, writable=False) as book:
        assert book.standings() == seen[0][0], "a snapshot that cannot be read is not needed"


def test_two_writers_at_once_lose_nothing_and_see_each_other(tmp_path: Path) -> None:
    Standings.for_writing(tmp_path).close()
    program = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[3:]\n"
        "from test_faults_standings import *\n"
        "book = FaultLog(Path(sys.argv[1]), HOLDS_79, T, writable=True)\n"
        "for n in range(40): book.report(reported(n, device=sys.argv[2]), T + n)\n"
        "book.close()\n"
    )
    places = [str(Path(__file__).parent), str(TESTS)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), name, *places], stderr=subprocess.PIPE, text=True
        )
        for name in ("gpu0", "gpu1")
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    log = Standings.for_reading(tmp_path)
    rows = [row for row in log.after(0) if row.kind is RowKind.EVENT]
    log.close()
    assert len(rows) == 80
    assert standing_at(tmp_path, 41, "gpu0") is standing_at(tmp_path, 41, "gpu1") is Standing.HELD


def test_a_book_that_stays_open_hears_what_others_write(tmp_path: Path) -> None:
    with FaultLog(tmp_path, HOLDS_79, T, writable=True) as mine:
        write_faults(tmp_path, reported(1), reported(2))
        changes = mine.report(reported(3), T + 3)
        assert changes[-1].after is Remedy.HOLD
        with FaultLog(tmp_path, HOLDS_79, T + 4, writable=True) as other:
            other.release("gpu0", "bob", "checked", T + 4)
        assert [change.after for change in mine.sync(T + 5)] == [None]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (reported(61), "future"),
        (reported(-900_000), "days old"),
        (reported(0, device="a b"), "device's name"),
        (reported(0, code="x y"), "fault code"),
        (reported(0, device=""), "device's name"),
    ],
)
def test_bad_events_are_refused_counted_and_change_nothing(tmp_path: Path, bad: FaultEvent, why: str) -> None:
    write_faults(tmp_path, reported(0))
    with FaultLog(tmp_path, HOLDS_79, T, writable=True) as book:
        before = book.standings()
        with pytest.raises(BadUsage, match=why):
            book.report_all([reported(0.5), bad], T)
        assert book.standings() == before
        assert sum(book.store.refused().values()) == 1
        assert len(list(book.store.after(0))) == 2


def test_an_unknown_device_cannot_be_released(tmp_path: Path) -> None:
    with FaultLog(tmp_path, HOLDS_79, T, writable=True) as book, pytest.raises(BadUsage, match="gpu7"):
        book.release("gpu7", "ada", "x", T)


def test_another_users_standings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_faults(tmp_path, reported(0))
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(BadUsage, match="another user"):
        FaultLog(tmp_path, HOLDS_79, T, writable=True)


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"SQLite format 3\0" + b"rubbish" * 500)
    for writable in (True, False):
        with pytest.raises(HoldfastError, match=r"damaged|not a journal"):
            FaultLog(tmp_path, HOLDS_79, T, writable=writable)


def test_a_full_disk_says_so_and_the_fault_is_not_half_noted(tmp_path: Path) -> None:
    write_faults(tmp_path, reported(0))
    log = Standings.for_writing(tmp_path)
    assert log._db is not None
    pages = log._db.execute("PRAGMA page_count").fetchone()[0]
    log._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StandingsUnusable, match="full"):
        log.append(T, RowKind.EVENT, [b"x" * 100_000, b"y"])
    assert len(list(log.after(0))) == 2
    log.close()


def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    write_faults(tmp_path, reported(0))
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, lambda: other.execute("COMMIT"))
    timer.start()
    with FaultLog(tmp_path, HOLDS_79, T + 1, writable=True) as book:
        book.report(reported(1), T + 1)
    timer.join()
    other.close()
    with FaultLog(tmp_path, HOLDS_79, T + 2, writable=False) as book:
        assert book.engine.counts("gpu0") == {"79": 2}


def test_reading_only_never_writes(tmp_path: Path) -> None:
    log = Standings.for_reading(tmp_path)
    assert (list(log.after(0)), log.snapshot(), log.refused()) == ([], None, {})
    with pytest.raises(StandingsUnusable, match="reading only"):
        log.append(T, RowKind.EVENT, [b"{}"])
    log.close()
    assert not (tmp_path / FILE_NAME).exists()
