"""Names of the system calls in which a hung process is usually found, by machine.

The tables have only calls that can block; another number is shown as `syscall N`. Source: the kernel's
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (arm64).
"""

from __future__ import annotations

import os

_X86_64 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 22: "pipe", 23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 65: "semop",
    70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 219: "restart_syscall", 220: "semtimedop",
    230: "clock_nanosleep", 232: "epoll_wait", 243: "mq_timedreceive", 247: "waitid", 257: "openat",
    262: "newfstatat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range", 281: "epoll_pwait", 288: "accept4",
    299: "recvmmsg", 306: "syncfs", 326: "copy_file_range", 426: "io_uring_enter", 441: "epoll_pwait2",
    449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_ARM64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync",
    83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
    124: "sched_yield", 128: "restart_syscall", 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 183: "mq_timedreceive",
    188: "msgrcv", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs",
    285: "copy_file_range", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_BY_MACHINE = {"x86_64": _X86_64, "aarch64": _ARM64}
_HERE = _BY_MACHINE.get(os.uname().machine, {})


_WITH_FILE = frozenset({
    "read", "write", "pread64", "pwrite64", "readv", "writev", "ioctl", "fcntl", "flock", "fsync", "fdatasync",
    "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "accept", "accept4", "connect", "sync_file_range",
})  # fmt: skip


def syscall_file(line: str) -> int | None:
    """Return the call's descriptor: the first argument, for calls that take one; None for others."""
    words = line.split()
    if len(words) < 2 or syscall_name(line) not in _WITH_FILE:
        return None
    try:
        number = int(words[1], 16)
    except ValueError:
        return None
    return number if number < 1 << 24 else None


def syscall_name(line: str) -> str:
    """Return the name of the call in a line of /proc/PID/syscall; empty if the thread runs, or the line could not be
    read."""
    word = line.split(" ", 1)[0].strip()
    if not word.isdigit():
        return ""
    number = int(word)
    return _HERE.get(number, f"syscall {number}")
