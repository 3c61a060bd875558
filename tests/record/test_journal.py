"""The journal: what was appended is what is replayed, and no state of the disk stops a run or stays unsaid."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import failed_job, job_spec
from holdfast.model.events import AgentReported, Event, JobSubmitted, StopRequested, Tick
from holdfast.model.evidence import StopRequest
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.record import database
from holdfast.record import journal as journal_module
from holdfast.record.journal import Journal
from small_disks import small_disk

DEMO = job_spec(2, name="demo")


def _history() -> list[tuple[float, Event]]:
    up = tuple(Member(rank=rank, state=MemberState.UP) for rank in range(2))
    return [
        (1.0, JobSubmitted(job_id="j", spec=DEMO, nodes=(), seed=7)),
        (1.5, AgentReported(report=Report(node="n", boot=1, attempt=1, stopped=0, sent=1.5, members=up))),
        (1.5, Tick()),
        (2.25, StopRequested(request=StopRequest(reason="Grüße \udcff", who="me@here"))),
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "home")
    yield opened
    opened.close()


def _begin_in(journal: Journal, job_id: str = "j") -> None:
    journal.create_job(job_id, DEMO, now=1.0, host="h", pid=1)


def _stored_events(home: Path, job_id: str = "j") -> list[tuple[float, Event]]:
    again = Journal.open(home)
    try:
        return list(again.events(job_id))
    finally:
        again.close()


def test_replay_is_what_was_appended_also_after_a_crash(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    _begin_in(journal)
    history = _history()
    for now, event in history:
        journal.append("j", now, event)
    # Not closed: a reader now reads what a killed supervisor leaves.
    replayed = _stored_events(home)
    journal.close()
    assert [now for now, _ in replayed] == [now for now, _ in history]
    assert [event for _, event in replayed[:3]] == [event for _, event in history[:3]]
    last = replayed[3][1]
    assert isinstance(last, StopRequested) and last.request.reason == "Grüße ?"


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(
        st.tuples(
            st.floats(min_value=0, max_value=2e9),
            st.one_of(
                st.just(Tick()),
                st.builds(StopRequested, request=st.builds(StopRequest, reason=st.text(max_size=50))),
            ),
        ),
        max_size=20,
    )
)
def test_any_history_replays(journal: Journal, history: list[tuple[float, Event]]) -> None:
    job_id = f"job-{os.urandom(6).hex()}"
    _begin_in(journal, job_id)
    for now, event in history:
        journal.append(job_id, now, event)
    assert list(journal.events(job_id)) == history


def test_an_owner_that_comes_back_appends_after_the_last_event(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = Journal.open(home)
    _begin_in(first)
    first.append("j", 1.0, Tick())
    first.close()
    second = Journal.open(home)
    second.append("j", 2.0, Tick())
    assert [now for now, _ in second.events("j")] == [1.0, 2.0]
    second.close()


def test_jobs_do_not_see_each_other(journal: Journal) -> None:
    _begin_in(journal, "a")
    _begin_in(journal, "b")
    journal.append("a", 1.0, Tick())
    journal.append("b", 2.0, Tick())
    assert [now for now, _ in journal.events("a")] == [1.0]


def test_directories_are_private(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    Journal.open(home).close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700


WRITER = """
import sys
from pathlib import Path
from holdfast.model.events import Tick
from holdfast.model.job_spec import JobSpec, Role
from holdfast.record.journal import Journal
home, job = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
journal = Journal.open(home)
journal.create_job(job, JobSpec(name=job, roles=(Role(name="w", count=1, command=("x",)),)), now=0.0, host="h", pid=1)
for number in range(400):
    journal.append(job, float(number), Tick())
journal.close()
print(journal.take_news())
"""


@pytest.mark.real
def test_two_processes_write_at_once_from_the_very_first_moment(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home), job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for job in ("a", "b", "c")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    # Waiting for each other's lock may be said; nothing may be missing at the end.
    assert all("never reached" not in text for text in said)
    for job in ("a", "b", "c"):
        assert [now for now, _ in _stored_events(home, job)] == [float(n) for n in range(400)]


def test_a_reader_in_the_middle_of_reading_does_not_stop_a_writer(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    _begin_in(journal)
    journal.append("j", 1.0, Tick())
    reader = database.open_for_reading(home)
    assert reader is not None
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM events").fetchone() == (1,)
    journal.append("j", 2.0, Tick())
    assert journal.saved and not journal.trouble
    assert reader.execute("SELECT count(*) FROM events").fetchone() == (1,)
    reader.close()
    journal.close()


@pytest.mark.parametrize(("network", "mode"), [(False, "wal"), (True, "delete")])
def test_wal_is_used_only_where_its_shared_memory_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: bool, mode: str
) -> None:
    monkeypatch.setattr(database, "on_network_filesystem", lambda path: network)
    journal, other = Journal.open(tmp_path), Journal.open(tmp_path)
    _begin_in(journal)
    _begin_in(other, "k")
    journal.append("j", 1.0, Tick())
    other.append("k", 2.0, Tick())
    assert (journal.trouble, other.trouble) == ("", "")
    journal.close()
    other.close()
    db = sqlite3.connect(tmp_path / "holdfast.db")
    assert db.execute("PRAGMA journal_mode").fetchone() == (mode,)
    assert db.execute("SELECT job, now FROM events ORDER BY job").fetchall() == [("j", 1.0), ("k", 2.0)]
    db.close()


def test_the_mount_that_is_nearest_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = (
        f"22 1 0:20 / / rw - ext4 /dev/sda1 rw\n"
        f"23 22 0:21 / {tmp_path}/home rw shared:1 - nfs4 server:/home rw\n"
        f"24 23 0:22 / {tmp_path}/home/scratch\\040disk rw - xfs /dev/sdb rw\n"
    )
    mounts = tmp_path / "mountinfo"
    mounts.write_text(table)
    monkeypatch.setattr(database, "MOUNTS", mounts)
    assert database.on_network_filesystem(tmp_path / "home" / "me")
    assert not database.on_network_filesystem(tmp_path / "homework")
    assert not database.on_network_filesystem(tmp_path / "home" / "scratch disk" / "x")
    monkeypatch.setattr(database, "MOUNTS", tmp_path / "none")
    assert not database.on_network_filesystem(tmp_path / "home")


class Clock:
    """Stands in for the passing of time between two tries."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(journal_module, "Clock", lambda: clock)
    return clock


def test_a_lock_held_too_long_is_said_once_and_nothing_is_lost(tmp_path: Path, clock: Clock) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    _begin_in(journal)
    other = sqlite3.connect(home / "holdfast.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    journal.append("j", 1.0, Tick())
    assert "locked by another process for longer than 250 ms" in journal.trouble
    assert journal.take_news() == journal.trouble
    journal.append("j", 2.0, Tick())
    clock.at += 2
    journal.append("j", 3.0, Tick())
    assert journal.take_news() == "", "one trouble, one sentence"
    assert [now for now, _ in journal.events("j")] == [1.0, 2.0, 3.0]
    other.execute("ROLLBACK")
    clock.at += 60
    journal.append("j", 4.0, Tick())
    assert "can be written again; 4 records" in journal.take_news()
    assert journal.saved and journal.trouble == ""
    journal.append("j", 5.0, Tick())
    other.close()
    journal.close()
    assert [now for now, _ in _stored_events(home)] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_close_saves_what_a_lock_had_kept_back(tmp_path: Path, clock: Clock) -> None:
    home = tmp_path / "home"
    journal = Journal.open(home)
    _begin_in(journal)
    other = sqlite3.connect(home / "holdfast.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    journal.append("j", 1.0, Tick())
    other.execute("ROLLBACK")
    other.close()
    journal.close()
    assert [now for now, _ in _stored_events(home)] == [1.0]


def test_memory_for_unsaved_events_is_bounded_and_no_hole_is_left(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "KEPT_BYTES", 2000)
    home = tmp_path / "home"
    journal = Journal.open(home)
    _begin_in(journal)
    other = sqlite3.connect(home / "holdfast.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for number in range(100):
        journal.append("j", float(number), Tick())
    kept = [now for now, _ in journal.events("j")]
    assert 0 < len(kept) < 100
    assert "no longer kept in memory" in journal.take_news()
    journal.finish(failed_job(), now=9.0)
    other.execute("ROLLBACK")
    clock.at += 60
    journal.append("j", 100.0, Tick())
    assert not journal.saved
    journal.close()
    other.close()
    assert [now for now, _ in _stored_events(home)] == [float(n) for n in range(len(kept))]


def _damage_whole(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def _damage_middle(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (size - 100))


def _truncate(path: Path) -> None:
    os.truncate(path, 5000)


@pytest.mark.parametrize("damage", [_damage_whole, _damage_middle, _truncate])
def test_a_damaged_file_is_left_alone_and_the_run_goes_on(tmp_path: Path, damage: object) -> None:
    home = tmp_path / "home"
    before = Journal.open(home)
    _begin_in(before, "old")
    for number in range(200):
        before.append("old", float(number), StopRequested(request=StopRequest(reason="x" * 200)))
    before.close()
    path = home / "holdfast.db"
    assert callable(damage)
    damage(path)
    left = path.read_bytes()

    journal = Journal.open(home)
    _begin_in(journal)
    history = _history()[:3]
    for now, event in history:
        journal.append("j", now, event)
    journal.record_attempt("j", failed_job().attempts[0])
    journal.finish(failed_job(), now=3.0)
    news = journal.take_news()
    assert f"the journal {path} is damaged" in news
    assert "it is left as it is" in news and "still report" in news
    assert f"mv {path}* {home}/damaged/" in news
    assert list(journal.events("j")) == history
    journal.close()
    assert "never reached the journal" in journal.take_news()
    assert path.read_bytes() == left


def test_what_to_type_for_a_damaged_file_works(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Journal.open(home).close()
    _damage_whole(home / "holdfast.db")
    journal = Journal.open(home)
    command = journal.trouble.rpartition("no holdfast is running: ")[2]
    journal.close()
    subprocess.run(command, shell=True, check=True, timeout=60)
    again = Journal.open(home)
    assert again.trouble == ""
    again.close()
    assert (home / "damaged" / "holdfast.db").exists()


def test_an_empty_file_is_laid_out_as_a_new_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.db").touch()
    journal = Journal.open(home)
    _begin_in(journal)
    journal.append("j", 1.0, Tick())
    assert journal.saved and journal.trouble == ""
    journal.close()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    other = sqlite3.connect(home / "holdfast.db")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    journal = Journal.open(home)
    assert "is not a journal of holdfast" in journal.trouble
    journal.close()
    again = sqlite3.connect(home / "holdfast.db")
    assert [name for (name,) in again.execute("SELECT name FROM sqlite_master")] == ["theirs"]
    again.close()


def test_a_newer_layout_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Journal.open(home).close()
    db = sqlite3.connect(home / "holdfast.db", isolation_level=None)
    db.execute(f"PRAGMA user_version = {database.LAYOUT + 1}")
    db.close()
    journal = Journal.open(home)
    assert "written by a newer holdfast" in journal.trouble
    journal.close()


def test_a_layout_from_before_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    old = Journal.open(home)
    _begin_in(old)
    old.append("j", 1.0, Tick())
    old.close()
    monkeypatch.setattr(database, "_LAYOUTS", (*database._LAYOUTS, ("ALTER TABLE jobs ADD COLUMN more TEXT",)))
    monkeypatch.setattr(database, "LAYOUT", database.LAYOUT + 1)
    new = Journal.open(home)
    assert new.trouble == ""
    assert [now for now, _ in new.events("j")] == [1.0]
    new.close()
    db = sqlite3.connect(home / "holdfast.db")
    assert db.execute("SELECT more FROM jobs").fetchall() == [(None,)]
    db.close()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_place_of_the_directory(tmp_path: Path, below: str) -> None:
    (tmp_path / "home").write_text("not a directory")
    journal = Journal.open(tmp_path / "home" / below)
    _begin_in(journal)
    journal.append("j", 1.0, Tick())
    assert "cannot be written" in journal.trouble and "HOLDFAST_HOME" in journal.trouble
    assert [now for now, _ in journal.events("j")] == [1.0]
    journal.close()


@pytest.fixture
def disk_of_2m(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "2m") as disk:
        yield disk


@pytest.mark.real
def test_a_disk_that_fills_up_and_is_freed(disk_of_2m: Path, clock: Clock) -> None:
    journal = Journal.open(disk_of_2m)
    ballast = disk_of_2m / "ballast"
    _begin_in(journal)
    assert journal.trouble == ""
    try:
        ballast.write_bytes(b"x" * 10_000_000)
    except OSError:
        pass  # it is full now, as wanted
    for number in range(50):
        journal.append("j", float(number), StopRequested(request=StopRequest(reason="x" * 3000)))
    assert "disk is full" in journal.trouble and f"df -h {disk_of_2m}" in journal.trouble
    assert len(list(journal.events("j"))) == 50
    ballast.unlink()
    clock.at += 120
    journal.append("j", 50.0, Tick())
    assert "can be written again" in journal.take_news()
    journal.close()
    assert [now for now, _ in _stored_events(disk_of_2m)] == [float(n) for n in range(51)]


@pytest.mark.real
def test_a_disk_that_is_full_from_the_start(disk_of_2m: Path) -> None:
    try:
        (disk_of_2m / "ballast").write_bytes(b"x" * 10_000_000)
    except OSError:
        pass  # it is full now, as wanted
    journal = Journal.open(disk_of_2m)
    _begin_in(journal)
    journal.append("j", 1.0, Tick())
    assert "disk is full" in journal.trouble
    assert [now for now, _ in journal.events("j")] == [1.0]
    journal.close()
    assert [entry.name for entry in disk_of_2m.iterdir()] == ["ballast"], "no temporary files are left behind"


@pytest.mark.real
def test_a_read_only_file_system(disk_of_2m: Path) -> None:
    first = Journal.open(disk_of_2m)
    _begin_in(first, "old")
    first.append("old", 1.0, Tick())
    first.close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk_of_2m)], check=True, timeout=60)
    journal = Journal.open(disk_of_2m)
    _begin_in(journal)
    journal.append("j", 1.0, Tick())
    assert "cannot be written" in journal.trouble
    assert [now for now, _ in journal.events("j")] == [1.0]
    journal.close()
    reader = database.open_for_reading(disk_of_2m)
    assert reader is not None
    assert reader.execute("SELECT id FROM jobs").fetchall() == [("old",)]
    reader.close()


def test_sqlite_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, holdfast.record.journal, holdfast.record.job_directory; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout == "False\n"


def test_what_is_secured_has_been_synchronized_and_what_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(tmp_path)
    journal.append("j", 1.0, Tick())
    synchronized: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synchronized.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    assert journal.secure() == ""
    assert str(tmp_path / "holdfast.db-wal") in synchronized

    def refuse(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    assert "cannot be synchronized: Input/output error" in journal.secure()
    journal.close()
