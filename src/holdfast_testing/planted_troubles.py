"""Troubles to plant on a machine, for tests and benchmarks of the pre-checks. Each is removed when its block ends.

Those that mount need root; they raise `CannotPlant` if this user may not mount.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from holdfast.observe.checks.matmul import Matmul
from holdfast.observe.checks.pairs import Pairs


class CannotPlant(Exception):
    """Raised if this machine or user does not allow to plant the trouble."""


@contextmanager
def tmpfs(point: Path, options: str) -> Iterator[Path]:
    """Mount a file system in memory with options such as `size=1m,nr_inodes=20`."""
    point.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], capture_output=True, check=False)
    if done.returncode:
        raise CannotPlant(done.stderr.decode(errors="replace").strip())
    try:
        yield point
    finally:
        _unmount(point)


def _unmount(point: Path) -> None:
    subprocess.run(["umount", "-l", point], check=True)


@contextmanager
def dead_mount(point: Path, *, lost: bool = False) -> Iterator[Path]:
    """Mount a FUSE file system whose server stops answering after the handshake; `lost`: the server exits instead."""
    point.mkdir(exist_ok=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise CannotPlant(f"/dev/fuse: {error.strerror}") from error
    with ExitStack() as stack:
        if not lost:
            # Closing the descriptor of the FUSE server ends every waiting request.
            stack.callback(os.close, fd)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        if libc.mount(b"dead", str(point).encode(), b"fuse", 0, options):
            if lost:
                os.close(fd)
            raise CannotPlant(f"mount: {os.strerror(ctypes.get_errno())}")
        stack.callback(_unmount, point)
        # Answer FUSE_INIT with the shortest reply that the kernel accepts (protocol 7.31).
        _, _, unique = struct.unpack_from("=IIQ", os.read(fd, 1 << 17))
        answer = struct.pack("=IIIIHHI", 7, 31, 0, 0, 0, 0, 4096) + bytes(40)
        os.write(fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
        if lost:
            os.close(fd)
        yield point


@contextmanager
def hogs(cores: list[int]) -> Iterator[list[int]]:
    """Start one busy process on each of these cores; yield their pids."""
    code = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
    found = [subprocess.Popen([sys.executable, "-c", code, str(core)], stdout=subprocess.PIPE) for core in cores]
    try:
        for hog in found:
            assert hog.stdout is not None
            hog.stdout.readline()
        yield [hog.pid for hog in found]
    finally:
        for hog in found:
            hog.kill()
            hog.communicate()


@contextmanager
def busy_port() -> Iterator[int]:
    """Yield a port on which a process listens."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        yield listener.getsockname()[1]


class SlowGroup(Matmul):
    """A fault for a check: group 1 seems 100 times slower than it is."""

    factor = 100.0

    def measure(self, index: int) -> float:
        return super().measure(index) * (self.factor if index == 1 else 1)


class WrongGroup(Matmul):
    """A fault for a check: one number of group 0's product changes by the smallest step."""

    victim = False

    def measure(self, index: int) -> float:
        self.victim = index == 0
        return super().measure(index)

    def disturb(self, product: Any) -> Any:
        if self.victim:
            product[3][5] += 1
        return product


class BadPair(Pairs):
    """A fault for a check: group `victim` is `slow`, `garbles` the data that it sends, or is `silent`, as `how`
    says."""

    victim = 0
    how = "garbles"

    def disturb(self, node: int, data: bytes) -> bytes:
        return b"\0" + data[1:] if node == self.victim and self.how == "garbles" else data

    def exchange(self, node: int, other: int, link: socket.socket, number: int) -> float:
        if node == self.victim and self.how == "silent":
            # Behave like a hung peer: do nothing until this process is killed.
            signal.pause()
        took = super().exchange(node, other, link, number)
        return took + 0.5 if node == self.victim and self.how == "slow" else took
