"""On a Mac: what works on files works, and what needs Linux says so. The process lacks what only Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_MAC = """
import fcntl, os, select, signal, socket, sys
sys.platform = "darwin"
LACKING = {
    os: "pidfd_open memfd_create eventfd eventfd_read eventfd_write sched_getaffinity sched_setaffinity splice "
    "getrandom posix_fadvise posix_fallocate fdatasync pipe2 P_PIDFD O_TMPFILE O_PATH EFD_NONBLOCK EFD_CLOEXEC "
    "getxattr setxattr listxattr copy_file_range setresuid getresuid",
    select: "epoll EPOLLIN EPOLLOUT EPOLLHUP EPOLLERR EPOLLRDHUP",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR",
    socket: "SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_VSOCK",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS",
}
for module, names in LACKING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def absent(event, words):
    if event in ("open", "os.listdir", "os.scandir") and words and isinstance(words[0], (str, bytes)):
        path = os.fsdecode(words[0])
        if path in ("/proc", "/sys") or path.startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", path)

sys.addaudithook(absent)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that failed on Linux, and the log of another; `mac/` makes a Mac of each Python that has it on its path."""
    where = tmp_path_factory.mktemp("mac")
    (where / "mac").mkdir()
    (where / "mac/sitecustomize.py").write_text(_MAC)
    (where / "bad.py").write_text("[1][5]")
    (where / "bad.log").write_text("IndexError: list index out of range\n")
    assert typed_on_mac(where, "run", "--no-checks", "--max-restarts", "0", "bad.py", mac=False).returncode == 233
    return where


def typed_on_mac(where: Path, *words: str, mac: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOLDFAST_HOME": str(where / "home")}
    if mac:
        env["PYTHONPATH"] = str(where / "mac")
    command = [sys.executable, "-c", "import holdfast.cli as c; c.main()", *words]
    return subprocess.run(
        command, cwd=where, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_the_process_is_as_bare_as_a_mac(home: Path) -> None:
    ask = "import os, select, sys; print(sys.platform, hasattr(os, 'pidfd_open'), hasattr(select, 'epoll'))"
    ask += "; open('/proc/stat')"
    env = {**os.environ, "PYTHONPATH": str(home / "mac")}
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "darwin False False\n" and "FileNotFoundError" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "bad.log"], "IndexOutOfRange"),
        (["explain", "bad"], "IndexOutOfRange"),
        (["exits"], "HungWorker"),
        (["exits", "233"], "IndexOutOfRange"),
        (["show", "bad"], "IndexOutOfRange"),
        (["show", "bad", "--verbose"], "IndexOutOfRange"),
        (["logs", "bad"], "IndexError"),
        (["jobs"], "IndexOutOfRange"),
        (["doctor"], "darwin"),
        (["check", "--list"], "collective"),
        (["run", "--help"], "Usage: holdfast run"),
        (["run", "-h"], "Usage: holdfast run"),
        (["check", "--help"], "Usage: holdfast check"),
    ],
)
def test_what_works_on_files_needs_nothing_of_linux(home: Path, words: list[str], said: str) -> None:
    done = typed_on_mac(home, *words)
    assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words", [["run", "bad.py"], ["run", "bad.py", "--help"], ["agent"], ["prepare"], ["check"], ["check", "disk"]]
)
def test_what_needs_linux_says_so_in_one_sentence(home: Path, words: list[str]) -> None:
    done = typed_on_mac(home, *words)
    assert done.returncode == 2 and not done.stdout
    assert f"`holdfast {words[0]}` is for Linux only" in done.stderr and len(done.stderr.splitlines()) == 1
