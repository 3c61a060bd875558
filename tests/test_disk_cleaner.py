"""The disk cleaner: who is the biggest user, and the reason in numbers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.loop.cleaning import SHARE_NAME, Cleaning, Share
from holdfast.model import events as ev
from holdfast.model.codec import encode
from holdfast.observe.disk import disk_use, taken, written_files
from holdfast.record.liveness import Supervisor, SupervisorLock
from holdfast.show.setting_kinds import DiskLimit


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def cleaner(job: Path, limit: DiskLimit) -> Cleaning:
    return Cleaning(limit, job_dir=job, places=[job], own=[job], pids=list, now=0.0)


def test_the_biggest_user_is_asked_to_stop(tmp_path: Path) -> None:
    small, big = tmp_path / "jobs" / "a", tmp_path / "jobs" / "b"
    write(small / "log", 1 << 16)
    write(big / "log", 1 << 20)
    use = disk_use(small)
    assert use is not None
    locks = [
        SupervisorLock.take(
            job, Supervisor(job_id=job.name, name="x", host=os.uname().nodename, pid=os.getpid(), created=0.0)
        )
        for job in (small, big)
    ]
    limit = DiskLimit(size_bytes=1)
    try:
        (big / SHARE_NAME).write_bytes(encode(Share(device=use.device, size_bytes=1 << 20, inodes=2)))
        assert cleaner(small, limit).tick(10.0) == []
        [event] = cleaner(big, limit).tick(10.0)
    finally:
        for lock in locks:
            lock.release()
    assert isinstance(event, ev.StopRequested)
    assert event.request.phrase == "KilledByDiskCleaner"
    assert "limit 0.0 GB" in event.request.reason
    # A share that a dead job left behind stops nobody from being the biggest.
    assert cleaner(small, limit).tick(10.0)


@pytest.mark.parametrize("limit", [DiskLimit(percent=100.0), DiskLimit(size_bytes=1 << 60), DiskLimit(inodes=1 << 60)])
def test_under_the_limit_nothing_happens(tmp_path: Path, limit: DiskLimit) -> None:
    watch = cleaner(tmp_path, limit)
    assert watch.tick(10.0) == []
    assert watch.next_wake() == 20.0


def test_taken_counts_each_file_once(tmp_path: Path) -> None:
    write(tmp_path / "a", 8192)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    device = tmp_path.stat().st_dev
    size, inodes = taken([tmp_path, tmp_path], [str(tmp_path / "a")], device)
    assert inodes == 2
    assert size >= 8192
    assert taken([tmp_path], [], device + 1) == (0, 0)


def test_written_files_are_those_open_for_writing(tmp_path: Path) -> None:
    write(tmp_path / "read", 1)
    with (tmp_path / "read").open("rb"), (tmp_path / "written").open("wb"):
        found = written_files([os.getpid()])
    assert str(tmp_path / "written") in found
    assert str(tmp_path / "read") not in found
    assert written_files([2**22 + 1]) == set()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.getuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("a file system of its own cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.real
def test_a_job_that_fills_its_disk(holdfast: Holdfast, small_disk: Path) -> None:
    script = holdfast.script(
        f"""
        import os, time
        with open({str(small_disk / "checkpoint")!r}, "wb") as file:
            file.write(os.urandom(20 << 20))
            file.flush()
            time.sleep(60)
        """
    )
    ran = holdfast.run("--disk-limit", "50%", "--grace", "1", script)
    report = ran.report
    assert (ran.status, report["code"], report["phrase"]) == (198, 198, "KilledByDiskCleaner")
    assert "limit 50 %" in report["reason"]
    assert "this job uses 62 %" in report["reason"]
    agg = (ran.job_dir / "attempt-1" / "runtime.pai.agg.error").read_text()
    assert "exitcode: 198" in agg
