"""Another process's command line, on one line of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conftest import Holdfast
from holdfast.model.shown_command import MOST_CHARS, shown
from holdfast.observe.checks.proc_files import command


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"python\0train.py\0--lr\x000.1\0", "python train.py --lr 0.1"),
        (b"python\0-c\0print(1)\nprint(2)\0", r"python -c $'print(1)\nprint(2)'"),
        (b"sh\0-c\0it's \x1b[31m\r\0", r"sh -c $'it\'s \x1b[31m\r'"),
        ("python\0a b\0\u202eevil\0".encode(), r"python 'a b' $'\u202eevil'"),
        (b"nginx: worker process\0", "'nginx: worker process'"),
        (b"\xff\xfe\0", "'\ufffd\ufffd'"),
        (b"", ""),
    ],
)
def test_a_command_line_is_one_line_and_quoted(raw: bytes, line: str) -> None:
    assert shown(raw) == line


def test_a_long_command_line_is_cut() -> None:
    assert len(shown(b"x" * 500)) == MOST_CHARS
    assert shown(b"x" * 500).endswith("…")


@pytest.mark.real
def test_the_holder_of_a_port_does_not_break_our_lines(holdfast: Holdfast) -> None:
    holder = (
        "import socket, sys\ns = socket.socket()\ns.bind(('', 0))\ns.listen()\nprint(s.getsockname()[1], flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder + "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        try:
            assert "\n" not in command(other.pid)
            ran = holdfast("run", "--checks", "ports", "--master-port", str(port), holdfast.script("pass"))
        finally:
            other.kill()
    assert ran.report["phrase"] == "CheckFailed"
    (line,) = [line for line in ran.err.splitlines() if f"by pid {other.pid} (" in line][:1]
    assert line.startswith("holdfast: ")
    assert r"$'import socket, sys\n" in line  # a long path of the interpreter leaves room for little more
