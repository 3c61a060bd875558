"""A write that found no room: the report names the file system, and how full it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import of_stderr
from conftest import Holdfast
from holdfast.explain import explain
from holdfast.node.missing_resources import look_around
from holdfast.observe.disk_usage import in_units
from holdfast.observe.full_disks import full_disks
from small_disks import small_disk

FILLS = """
with open("{place}/checkpoint.bin", "wb") as file:
    for _ in range(64):
        file.write(b"x" * (1 << 20))
"""


@pytest.fixture
def disk_of_8m(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "a small disk", "8m") as disk:
        yield disk


@pytest.mark.real
def test_the_report_of_a_full_disk_names_the_disk_and_its_room(holdfast: Holdfast, disk_of_8m: Path) -> None:
    script = holdfast.script(FILLS.format(place=disk_of_8m))
    ran = holdfast.run("--max-restarts", "0", script, COLUMNS="400")
    assert "DiskFull" in ran.err
    assert f"{disk_of_8m} (tmpfs, tmpfs) has 0 bytes of 8.4 MB free" in ran.err


def test_a_disk_that_was_named_is_told_also_when_it_has_room_again(disk_of_8m: Path) -> None:
    [told] = full_disks([str(disk_of_8m / "no" / "such" / "file")], [], lambda path: True)
    assert told.startswith(f"{disk_of_8m} (tmpfs, tmpfs) has 8.4 MB of 8.4 MB free now: a quota")


def test_a_disk_without_inodes_says_so(disk_of_8m: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=3", disk_of_8m], check=True)
    for name in ("a", "b"):
        (disk_of_8m / name).touch()
    assert "has 0 of 3 inodes free" in full_disks([], [str(disk_of_8m)], lambda path: True)[0]


def test_a_server_that_does_not_answer_is_not_asked_any_further() -> None:
    asked: list[str] = []

    def silent(path: str) -> bool:
        asked.append(path)
        return False

    assert not [told for told in full_disks(["/proc/nowhere/x"], [], silent) if told.startswith("/proc")]
    assert asked == ["/proc/nowhere/x"]


@pytest.mark.parametrize(
    "line", ["OSError: [Errno 28] No space left on device: '{}'", "cp: error writing {}: No space left on device"]
)
def test_the_path_is_read_from_the_line(line: str, disk_of_8m: Path) -> None:
    place = disk_of_8m / "out.bin"
    text = line.format(place if "'" in line else f"'{place}'")
    found = look_around(of_stderr(text), ("/v/python",), "/v/python", None, {})
    assert found is not None and found.disks[0].startswith(str(disk_of_8m))


def test_a_log_alone_says_nothing_of_the_disks_of_this_machine() -> None:
    report = explain(of_stderr("OSError: [Errno 28] No space left on device"))
    assert report.phrase == "DiskFull" and "free" not in report.reason


@pytest.mark.real
def test_a_loader_that_died_for_shared_memory_has_its_size_in_the_report(holdfast: Holdfast) -> None:
    said = "RuntimeError: DataLoader worker (pid 17) is killed by signal: Bus error. It is possible that dataloader's"
    script = holdfast.script(f"raise RuntimeError({said!r}[14:] + ' workers are out of shared memory.')\n")
    ran = holdfast.run("--max-restarts", "0", script)
    assert ran.report["phrase"] == "SharedMemoryExhausted"
    size = os.statvfs("/dev/shm")
    assert f"/dev/shm has a size of {in_units(size.f_frsize * size.f_blocks)}" in ran.report["reason"]


def test_a_quota_that_ended_a_write_is_told_with_its_figures(disk_of_8m: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No file system of a test machine has quotas: the kernel's answer alone is put in its place.
    monkeypatch.setattr("holdfast.observe.full_disks.quota_of", lambda path: (99_000_000, 100_000_000))
    [told] = full_disks([str(disk_of_8m / "out.bin")], [], lambda path: True)
    assert told.endswith("gives this user 100 MB by its quota, of which 99 MB are used")
