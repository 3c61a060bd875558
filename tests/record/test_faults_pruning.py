"""The fault log does not grow for ever, and nothing that matters goes with what is dropped."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from record_builders import reported

from builders import DAY_S, T
from holdfast.decide.faults.fault_policy import FrequencyRule, Policy
from holdfast.model.faults import Assertion, Remedy, Standing
from holdfast.node.devices import fault_log as door
from holdfast.node.devices.excluded_devices import kept_out
from holdfast.node.devices.fault_log import KEEP_S, FaultLog
from holdfast.record.database import FILE_NAME
from holdfast.record.device_standings import RowKind

HOLDS_63 = Policy(
    levels={"79": Remedy.ISOLATE, "63": Remedy.NONE},
    frequency={"63": FrequencyRule(window_s=864_000, times=3, remedy=Remedy.HOLD)},
)


STORY = [
    reported(0, "63", "gpu0"), reported(1, "63", "gpu0"), reported(2, "63", "gpu0"),  # held
    reported(3, "79", "gpu1", Assertion.OCCUR),  # lasts
    reported(4, "79", "gpu2", Assertion.OCCUR), reported(5, "79", "gpu2", Assertion.RECOVER),  # over
    reported(6, "63", "gpu3"), reported(7, "63", "gpu3"), reported(8, "63", "gpu3"),  # held, then released
    *[reported(20 * DAY_S + n, "63", "gpu4") for n in range(2)],  # two within the window
]  # fmt: skip


def tell_story(home: Path) -> None:
    for each in STORY:
        with FaultLog(home, HOLDS_63, each.at, writable=True) as book:
            book.report(each, each.at)
            if each.at == T + 8:
                book.release("gpu3", "ada", "new card", T + 9)


def state_at(home: Path, now: float = T + 20 * DAY_S + 60) -> object:
    with FaultLog(home, HOLDS_63, now, writable=False) as book:
        return book_state(book)


def book_state(book: FaultLog) -> object:
    """All that can be asked of a book; nothing of what it only keeps for late events that can come no more."""
    engine = book.engine
    engine.sweep()
    return [
        (each, engine.level(each.device), engine.counts(each.device), engine.reasons(each.device), engine.next_wake())
        for each in book.standings()
    ]


def log_rows(home: Path) -> list[tuple[str, float]]:
    with sqlite3.connect(home / FILE_NAME) as db:
        found = db.execute("SELECT kind, now FROM fault_log ORDER BY seq").fetchall()
    db.close()
    return [(kind, at) for kind, at in found]


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """One state directory as it was written, and the same with its old entries dropped."""
    whole, pruned = tmp_path / "whole", tmp_path / "pruned"
    tell_story(whole)
    shutil.copytree(whole, pruned)
    monkeypatch.setattr(door, "SNAPSHOT_EVERY", 0)
    FaultLog(pruned, HOLDS_63, T + 20 * DAY_S + 10, writable=True).close()
    monkeypatch.undo()
    return whole, pruned


def test_old_events_go_and_the_state_is_the_same(homes: tuple[Path, Path]) -> None:
    whole, pruned = homes
    assert [kind for kind, _ in log_rows(whole)].count("event") == len(STORY)
    assert [kind for kind, _ in log_rows(pruned)] == ["policy", "left", "release", "event", "event"]
    assert state_at(pruned) == state_at(whole)
    later = T + 20 * DAY_S + 100
    for home in homes:
        with FaultLog(home, HOLDS_63, later, writable=True) as book:
            book.report(reported(20 * DAY_S + 99, "63", "gpu4"), later)
            assert book.engine.held("gpu4"), "what is in the window still counts"
    assert state_at(pruned, later + 1) == state_at(whole, later + 1)


def test_the_releases_stay(homes: tuple[Path, Path]) -> None:
    with FaultLog(homes[1], HOLDS_63, T + 20 * DAY_S, writable=False) as book:
        [(at, note)] = list(book.releases())
    assert (at, note.device, note.who, note.reason) == (T + 9, "gpu3", "ada", "new card")


def test_without_a_readable_snapshot_no_hold_is_lost(homes: tuple[Path, Path]) -> None:
    whole, pruned = homes
    with sqlite3.connect(pruned / FILE_NAME) as db:
        db.execute("UPDATE fault_snapshots SET state = x'00'")
    db.close()
    found = []
    for home in (whole, pruned):
        with FaultLog(home, HOLDS_63, T + 20 * DAY_S + 60, writable=False) as book:
            found.append({each.device: (each.standing, each.codes) for each in book.standings()})
            assert book.engine.counts("gpu4") == {"63": 2}
    assert found[1].items() <= found[0].items()
    assert found[1]["gpu0"] == (Standing.HELD, ("63",))
    assert found[1]["gpu1"] == (Standing.ISOLATED, ("79",))
    assert "gpu3" not in found[1] or found[1]["gpu3"][0] is Standing.HEALTHY
    assert {each.device for each in kept_out(str(pruned), "n1", T + 20 * DAY_S + 60)} == {"gpu0", "gpu1"}


def test_a_process_that_read_none_of_what_is_gone_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultLog(tmp_path, HOLDS_63, T - 1, writable=True) as behind:
        tell_story(tmp_path)
        monkeypatch.setattr(door, "SNAPSHOT_EVERY", 0)
        FaultLog(tmp_path, HOLDS_63, T + 20 * DAY_S + 10, writable=True).close()
        monkeypatch.undo()
        changes = behind.sync(T + 20 * DAY_S + 60)
        assert {(change.device, change.after) for change in changes} == {
            ("gpu0", Remedy.HOLD),
            ("gpu1", Remedy.ISOLATE),
        }
        assert book_state(behind) == state_at(tmp_path)


def test_a_bad_day_is_bounded_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(door, "KEEP_MOST", 50)
    with FaultLog(tmp_path, HOLDS_63, T, writable=True) as book:
        for number in range(400):
            book.report(reported(number, "63", f"gpu{number % 7}"), T + number)
    kinds = [kind for kind, _ in log_rows(tmp_path)]
    assert kinds.count("event") < 100
    assert kinds.count("left") == 1
    with FaultLog(tmp_path, HOLDS_63, T + 400, writable=False) as book:
        assert sorted(each.device for each in book.standings() if each.standing is Standing.HELD) == [
            f"gpu{number}" for number in range(7)
        ]


def test_rules_that_come_and_go_leave_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with rules of their own write theirs in turn."""
    other = Policy(levels={"79": Remedy.AVOID})
    for number in range(10):
        at = T + number
        for policy in (HOLDS_63, other):
            with FaultLog(tmp_path, policy, at, writable=True) as book:
                book.report(reported(number, "63", "gpu0"), at)
    monkeypatch.setattr(door, "SNAPSHOT_EVERY", 0)
    FaultLog(tmp_path, other, T + KEEP_S + 100, writable=True).close()
    assert [kind for kind, _ in log_rows(tmp_path)] == ["policy", str(RowKind.LEFT)]
