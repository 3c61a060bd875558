"""What a test started is found by a token in its environment, in another session too, and ends with the test run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

TOKEN_PREFIX = "HF_TEST"


def new_token() -> str:
    """A variable's name for the environment of all that a test starts; it begins with this process's number."""
    return f"{TOKEN_PREFIX}_{os.getpid()}_{time.monotonic_ns()}"


def living(token: str) -> list[str]:
    """Processes with this token that live, zombies left out: number and command."""
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


_GUARD = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.buffer.read()
word = sys.argv[1].encode()
for _ in range(50):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if word in file.read():
                        found.append(int(name))
            except OSError:
                pass
    if not found:
        break
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
"""


def guard() -> subprocess.Popen[bytes]:
    """A process that outlives this one, however it ends, until it has killed all that has a token of this one."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", _GUARD, f"{TOKEN_PREFIX}_{os.getpid()}_"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
