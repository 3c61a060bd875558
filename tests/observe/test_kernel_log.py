"""The kernel's log, from a file of records as /dev/kmsg gives them, and from the device itself where it may be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.observe.kernel_log import KEPT, KernelLog


@pytest.fixture
def kernel_log(tmp_path: Path) -> Iterator[tuple[Path, KernelLog]]:
    path = tmp_path / "kmsg"
    path.write_text("3,1,1,-;Out of memory: Killed process 1 (before) total-vm:1kB\n")
    opened = KernelLog(path)
    yield path, opened
    opened.close()


def stamp(ago_s: float) -> int:
    return int((time.monotonic() - ago_s) * 1e6)


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def test_only_what_came_after_the_start_and_matters(kernel_log: tuple[Path, KernelLog]) -> None:
    path, kernel = kernel_log
    append(path, f"6,2,{stamp(1)},-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c189:0\n")
    append(path, f"4,3,{stamp(1)},-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    append(path, "6,4,99,-;eth0: Link is D")
    first = kernel.lines(0)
    append(path, "own\n")
    second = kernel.lines(0)

    assert [line.text for line in first] == ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]
    assert [line.text for line in second][1:] == ["eth0: Link is Down"]
    assert {line.source for line in second} == {"kernel log"}
    assert {line.kind for line in second} == {"kernel"}


def test_stamps_become_wall_time_and_old_lines_stay_out(kernel_log: tuple[Path, KernelLog]) -> None:
    path, kernel = kernel_log
    append(path, f"3,2,{stamp(500)},-;Buffer I/O error on dev sda\n3,3,{stamp(10)},-;Buffer I/O error on dev sdb\n")
    lines = kernel.lines(time.time() - 60)

    assert [line.text for line in lines] == ["Buffer I/O error on dev sdb"]
    assert lines[0].at == pytest.approx(time.time() - 10, abs=5)


def test_crashes_of_strangers_are_left_out(kernel_log: tuple[Path, KernelLog]) -> None:
    path, kernel = kernel_log
    append(path, f"6,2,{stamp(1)},-;python[77]: segfault at 8 ip 1 sp 2 error 4 in libfoo.so\n")
    append(path, f"6,3,{stamp(1)},-;traps: python[78] trap invalid opcode ip:1 sp:2 error:0\n")
    append(path, f"6,4,{stamp(1)},-;EXT4-fs error (device vda): bad block\n")

    assert len(kernel.lines(0)) == 3
    assert [line.text[:10] for line in kernel.lines(0, pids=frozenset({77}))] == ["python[77]", "EXT4-fs er"]
    assert [line.text[:10] for line in kernel.lines(0, pids=frozenset({78}))] == ["traps: pyt", "EXT4-fs er"]


def test_a_storm_keeps_the_newest(kernel_log: tuple[Path, KernelLog]) -> None:
    path, kernel = kernel_log
    append(path, "".join(f"3,{n},{stamp(0)},-;I/O error number {n}\n" for n in range(5 * KEPT)))
    lines = kernel.lines(0)

    assert len(lines) == KEPT
    assert lines[-1].text == f"I/O error number {5 * KEPT - 1}"


def test_printed_form_and_lines_without_a_time(kernel_log: tuple[Path, KernelLog]) -> None:
    path, kernel = kernel_log
    append(path, f"[{time.monotonic() - 5:12.6f}] mce: [Hardware Error]: CPU 3\n")
    append(path, "Nov 20 host kernel: nfs: server store not responding, still trying\n")
    printed, bare = kernel.lines(time.time() - 60)

    assert printed.text == "mce: [Hardware Error]: CPU 3"
    assert bare.at is None


def test_unreadable_says_what_cannot_be_known(tmp_path: Path) -> None:
    kernel = KernelLog(tmp_path / "none")

    assert kernel.lines(0) == []
    assert "cannot be read" in kernel.missing
    assert "No such file" in kernel.missing
    assert kernel.fileno() == -1
    kernel.close()


@pytest.mark.real
@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
def test_the_device_is_read_without_waiting() -> None:
    kernel = KernelLog()
    try:
        assert kernel.missing == ""
        assert kernel.lines(time.time() + 3600) == []
    finally:
        kernel.close()
