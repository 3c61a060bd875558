"""The disk cleaner: who is the biggest user, and the reason in numbers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Holdfast, wait_for
from holdfast.model import events as ev
from holdfast.model.codec import encode
from holdfast.node.disk_cleaner import LOCK_NAME, DiskCleaner
from holdfast.node.disk_shares import SHARE_NAME, STOPPED_NAME, DiskShare, DiskShares
from holdfast.observe.disk_usage import in_units, still_there, taken, written_files
from holdfast.record.owner_lock import OwnerInfo, OwnerLock
from holdfast.settings.value_kinds import DiskLimit
from small_disks import small_disk


def write_random(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def cleaner(job: Path, limit: DiskLimit, say: Callable[[str], None] = print) -> DiskCleaner:
    return DiskCleaner(limit, job_dir=job, places=[job], own=[job], pids=list, now=0.0, say=say)


class DiskJobs:
    """Live jobs of one state directory, each with a log of some size."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.locks: dict[str, OwnerLock] = {}

    def start(self, name: str, size: int) -> Path:
        job = self.home / "jobs" / name
        write_random(job / "log", size)
        who = OwnerInfo(job_id=name, name="x", host=os.uname().nodename, pid=os.getpid(), created=0.0)
        self.locks[name] = OwnerLock.take(job, who)
        return job

    def end(self, name: str) -> None:
        self.locks.pop(name).release()


@pytest.fixture
def disk_jobs(tmp_path: Path) -> Iterator[DiskJobs]:
    found = DiskJobs(tmp_path)
    yield found
    for name in list(found.locks):
        found.end(name)


#: A limit that every disk is over.
ANY = DiskLimit(size_bytes=1)


def test_the_biggest_user_is_asked_to_stop(disk_jobs: DiskJobs) -> None:
    small, big = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20)
    # The small one looks first, when the big one has not yet said what it has.
    said: list[str] = []
    assert cleaner(small, ANY, said.append).tick(10.0) == []
    assert "the biggest user is job b" in said[0]
    [event] = cleaner(big, ANY).tick(10.0)
    assert isinstance(event, ev.StopRequested)
    assert event.request.phrase == "KilledByDiskCleaner"
    assert "limit 1 byte" in event.request.reason
    assert "(1.1 MB)" in event.request.reason
    assert "the next user is job a" in event.request.reason


def test_while_a_stopped_job_holds_the_most_no_other_is_stopped(disk_jobs: DiskJobs) -> None:
    small, big = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20)
    watch = cleaner(big, ANY)
    assert watch.tick(10.0)
    watch.close()
    disk_jobs.end("b")
    other = cleaner(small, ANY)
    assert other.tick(10.0) == []
    (big / "log").unlink()
    assert other.tick(20.0)


def test_a_live_job_owns_what_it_writes_anew_where_a_stopped_one_had_written(
    disk_jobs: DiskJobs, tmp_path: Path
) -> None:
    shared = tmp_path / "checkpoint"
    write_random(shared, 1 << 20)
    old, new = disk_jobs.start("a", 1), disk_jobs.start("b", 1)
    mine = DiskShare(files={str(shared): shared.stat().st_ino})
    (old / STOPPED_NAME).write_bytes(encode(mine))
    disk_jobs.end("a")
    shares = DiskShares(new, (str(new),))
    shares.note(mine.files)
    sizes = {user.job: user.size_bytes for user in shares.users(tmp_path.stat().st_dev)}
    assert sizes["b"] > 1 << 20 > sizes["a"]


def test_of_two_jobs_that_look_at_one_instant_one_decides(disk_jobs: DiskJobs) -> None:
    one, other = disk_jobs.start("a", 1 << 20), disk_jobs.start("b", 1 << 20)
    with (disk_jobs.home / LOCK_NAME).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        watch = cleaner(other, ANY)
        assert watch.tick(10.0) == []
    assert watch.next_wake() == 11.0
    assert watch.tick(11.0)
    assert cleaner(one, ANY).tick(11.0) == []


def test_what_a_dead_job_left_stops_nothing(disk_jobs: DiskJobs) -> None:
    small, gone = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20)
    (gone / SHARE_NAME).write_bytes(encode(DiskShare(directories=(str(gone),))))
    disk_jobs.end("b")
    assert cleaner(small, ANY).tick(10.0)


def test_a_bigger_job_without_a_limit_is_named_and_nothing_is_stopped(disk_jobs: DiskJobs) -> None:
    small = disk_jobs.start("a", 1 << 16)
    disk_jobs.start("b", 1 << 20)
    said: list[str] = []
    watch = cleaner(small, ANY, said.append)
    assert watch.tick(10.0) == watch.tick(20.0) == []
    assert "job b" in said[0]
    assert "without --disk-limit" in said[0]
    assert len(said) == 1


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"[]",
        b"\xff\xfe{",
        b'{"files": 3}',
        b"[" * 100_000,
        b'{"directories": ["\\u0000"], "files": {"\\u0000": 1}}',
    ],
)
def test_a_malformed_share_is_named_once_and_its_job_measured_from_outside(disk_jobs: DiskJobs, hostile: bytes) -> None:
    small, big = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20)
    (big / SHARE_NAME).write_bytes(hostile)
    said: list[str] = []
    watch = cleaner(small, ANY, said.append)
    assert watch.tick(10.0) == watch.tick(20.0) == []
    assert sum("cannot be used" in line for line in said) == ("u0000" not in hostile.decode(errors="ignore"))


def test_a_share_that_is_a_pipe_or_endless_blocks_nothing(disk_jobs: DiskJobs) -> None:
    small, big, other = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20), disk_jobs.start("c", 1)
    os.mkfifo(big / SHARE_NAME)
    (other / SHARE_NAME).symlink_to("/dev/zero")
    said: list[str] = []
    assert cleaner(small, ANY, said.append).tick(10.0) == []
    assert sum("a file was expected" in line for line in said) == 2


def test_a_bigger_job_that_has_not_looked_yet_is_known_to_have_a_limit(disk_jobs: DiskJobs) -> None:
    small, big = disk_jobs.start("a", 1 << 16), disk_jobs.start("b", 1 << 20)
    cleaner(big, ANY)
    said: list[str] = []
    assert cleaner(small, ANY, said.append).tick(10.0) == []
    assert "the disk cleaner stops that one" in said[0]


def test_a_job_that_ends_by_itself_leaves_no_share(disk_jobs: DiskJobs) -> None:
    job = disk_jobs.start("a", 1)
    watch = cleaner(job, DiskLimit(percent=100.0))
    watch.tick(10.0)
    assert (job / SHARE_NAME).exists()
    watch.close()
    assert not (job / SHARE_NAME).exists()


@pytest.mark.parametrize("limit", [DiskLimit(percent=100.0), DiskLimit(size_bytes=1 << 60), DiskLimit(inodes=1 << 60)])
def test_under_the_limit_nothing_happens(tmp_path: Path, limit: DiskLimit) -> None:
    watch = cleaner(tmp_path, limit)
    assert watch.tick(10.0) == []
    assert watch.next_wake() == 20.0


def test_taken_counts_each_file_once(tmp_path: Path) -> None:
    write_random(tmp_path / "a", 8192)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    device = tmp_path.stat().st_dev
    size, inodes = taken([tmp_path, tmp_path], {str(tmp_path / "a"): (tmp_path / "a").stat().st_ino}, device)
    assert inodes == 2
    assert size >= 8192
    assert taken([tmp_path], {}, device + 1) == (0, 0)


def test_a_file_of_another_is_not_counted_and_a_renamed_one_is(tmp_path: Path) -> None:
    write_random(tmp_path / "checkpoint.tmp", 8192)
    known = {str(tmp_path / "checkpoint.tmp"): (tmp_path / "checkpoint.tmp").stat().st_ino}
    device = tmp_path.stat().st_dev
    (tmp_path / "checkpoint.tmp").rename(tmp_path / "checkpoint")
    write_random(tmp_path / "checkpoint.tmp", 8192)  # another program's, under the name of before
    assert taken([], known, device) == (0, 0)
    moved = still_there(known)
    assert list(moved) == [str(tmp_path / "checkpoint")]
    assert taken([], moved, device)[1] == 1
    (tmp_path / "checkpoint").unlink()
    assert still_there(moved) == {}


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, "1 byte"), (999, "999 bytes"), (1600, "1.6 kB"), (61_000_000, "61 MB"), (999_700_000, "1.0 GB"),
     (91 * 10**9, "91 GB"), (1234 * 10**9, "1.2 TB")],
)  # fmt: skip
def test_sizes_have_the_unit_that_tells_something(size: int, words: str) -> None:
    assert in_units(size) == words


def test_written_files_are_those_open_for_writing(tmp_path: Path) -> None:
    write_random(tmp_path / "read", 1)
    with (tmp_path / "read").open("rb"), (tmp_path / "written").open("wb"):
        found = written_files([os.getpid()])
    assert str(tmp_path / "written") in found
    assert str(tmp_path / "read") not in found
    assert written_files([2**22 + 1]) == {}


@pytest.fixture
def disk_of_32m(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "32m") as disk:
        yield disk


@pytest.mark.real
def test_a_job_that_fills_its_disk(holdfast: Holdfast, disk_of_32m: Path) -> None:
    script = holdfast.script(
        f"""
        import os, time
        with open({str(disk_of_32m / "checkpoint")!r}, "wb") as file:
            file.write(os.urandom(29 << 20))
            file.flush()
            time.sleep(60)
        """
    )
    ran = holdfast.run("--disk-limit", "85%", "--grace", "1", script)
    report = ran.report
    assert (ran.status, report["code"], report["phrase"]) == (198, 198, "KilledByDiskCleaner")
    assert "limit 85 %" in report["reason"]
    assert "this job uses 91 %" in report["reason"]
    agg = (ran.job_dir / "attempt-1" / "runtime.pai.agg.error").read_text()
    assert "exitcode: 198" in agg


@pytest.mark.real
def test_of_two_jobs_on_one_disk_only_the_bigger_is_stopped(holdfast: Holdfast, disk_of_32m: Path) -> None:
    over = holdfast.dir / "over"
    script = holdfast.script(
        f"""
        import os, signal, sys, time
        path = {str(disk_of_32m)!r} + "/" + sys.argv[1]
        # the disk has room again once the job is stopped, so that the other job is not stopped too
        signal.signal(signal.SIGTERM, lambda *_: (os.truncate(path, 0), sys.exit(1)))
        with open(path, "wb") as file:
            for _ in range(int(sys.argv[2])):
                file.write(b"x" * (1 << 20))
            file.flush()
            while not os.path.exists({str(over)!r}):
                time.sleep(0.05)
        """
    )
    options = ("run", "--no-checks", "--disk-limit", "90%", "--grace", "30")
    small = holdfast.start(*options, script, "small", "7")
    wait_for(disk_of_32m / "small")
    big = holdfast.start(*options, script, "big", "23")
    assert holdfast.finish(big).status == 198
    over.touch()
    assert holdfast.finish(small).status == 0
