"""A worker that meets a limit of its own process (ulimit, setrlimit), or a script that the kernel does not start."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from conftest import Holdfast, Ran

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here"),
]

BURNS = "while True: sum(range(1000))\n"
WRITES = "with open('ckpt.bin', 'wb') as file:\n    while True: file.write(b'x' * 65536)\n"
DIES_OF_SIGXFSZ = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
ALLOCATES = "held = bytearray(1 << 40)\n"
LIMITS_ITSELF = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 60))\n"


def under(holdfast: Holdfast, limit: str, code: str) -> Ran:
    """Run the code with a limit of the shell that starts holdfast."""
    script = holdfast.script(code)
    inner = ["--no-python", "bash", "-c", f"{limit}; exec {sys.executable} {script}"]
    return holdfast.run("--max-restarts", "2", *inner)


CASES = {
    "soft limit of CPU time": ("ulimit -S -t 1", BURNS, "SIGXCPU", "limit of CPU time, 1.0 s (ulimit -t)"),
    "hard limit of CPU time": ("ulimit -t 1", BURNS, "SIGKILL", "hard limit of CPU time, 1.0 s (ulimit -t)"),
    "size of a file": (
        "ulimit -f 100",
        DIES_OF_SIGXFSZ + WRITES,
        "SIGXFSZ",
        "limit of file size, 100.0 KiB (ulimit -f)",
    ),
    "size of a file, in Python": ("ulimit -f 100", WRITES, None, "limit of file size, 100.0 KiB (ulimit -f)"),
    "address space": ("ulimit -v 4000000", ALLOCATES, None, "limit of address space, 3.8 GiB (ulimit -v)"),
    "set by the program": (":", LIMITS_ITSELF + BURNS, "SIGXCPU", "the program or its command set this limit"),
}


@pytest.mark.key
@pytest.mark.parametrize(("limit", "code", "name", "words"), CASES.values(), ids=CASES)
def test_the_limit_is_named_and_not_met_again(
    holdfast: Holdfast, limit: str, code: str, name: str | None, words: str
) -> None:
    ran = under(holdfast, limit, code)
    assert ran.report["phrase"] == "ProcessLimitReached"
    assert ran.report["original"]["signal"] == name
    assert words in ran.report["reason"]
    assert len(ran.report["attempts"]) == 1


def test_a_limit_that_holdfast_was_started_with(holdfast: Holdfast) -> None:
    """The limit is above what holdfast itself writes; the advice is for the shell or Slurm, not for the program."""
    holdfast.script(DIES_OF_SIGXFSZ + WRITES)
    sitting = holdfast.script(
        f"""
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 20, 50 << 20))
        os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "holdfast", "run", "--no-checks", "job.py"])
        """,
        "limited.py",
    )
    process = holdfast.start("run", "--no-checks", "--no-python", sys.executable, sitting)
    holdfast.finish(process)
    reports = [path.read_text() for path in holdfast.home.glob("jobs/*/report.json")]
    [told] = [report for report in reports if '"name":"job"' in report.replace(" ", "")]
    assert "limit of file size, 50.0 MiB (ulimit -f); holdfast was started with this limit" in told
    assert "--propagate=NONE" in told


def test_a_limit_that_a_program_below_a_shell_meets(holdfast: Holdfast) -> None:
    script = holdfast.script(BURNS)
    ran = holdfast.run("--no-python", "bash", "-c", f"ulimit -S -t 1; {sys.executable} {script}; exit $?")
    assert ran.report["phrase"] == "ProcessLimitReached"
    assert "limit of CPU time" in ran.report["reason"]


def test_a_sigkill_below_the_limit_is_not_explained_by_it(holdfast: Holdfast) -> None:
    ran = under(holdfast, "ulimit -t 500", "import os; os.kill(os.getpid(), 9)\n")
    assert ran.report["phrase"] == "KilledBySignal"


SCRIPTS = {
    "CRLF": (b"#!/bin/bash\r\necho hi\r\n", "ends with a carriage return", r"sed -i 's/\r$//' ./job.sh"),
    "CRLF behind env": (b"#!/usr/bin/env bash\r\necho hi\r\n", "ends with a carriage return", "sed -i"),
    "no interpreter there": (b"#!/opt/no/python3 -u\n", "`#!/opt/no/python3 -u`, names an interpreter", "env python3"),
    "64 kB": (b"#!/bin/" + b"a" * 65536 + b"\n", "longer than the 255 bytes", "use a shorter path"),
    "none": (b"echo hi\n", "no `#!` line", "bash ./job.sh"),
    "byte order mark": (b"\xef\xbb\xbf#!/bin/bash\necho hi\n", "byte order mark", "remove it"),
    "empty": (b"#!\necho hi\n", "names no interpreter", "#!/bin/bash"),
    "a folder": (b"#!/tmp\necho hi\n", "names /tmp, which is no program", "name an interpreter"),
    "options behind env": (b"#!/usr/bin/env bash -eu\necho hi\n", "and its options -eu as one word", "env -S bash -eu"),
}


@pytest.mark.parametrize(("text", "words", "fix"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_wrong_interpreter_line_is_named(holdfast: Holdfast, text: bytes, words: str, fix: str) -> None:
    script = holdfast.dir / "job.sh"
    script.write_bytes(text)
    script.chmod(0o755)
    ran = holdfast.run("--no-python", "./job.sh")
    assert ran.report["phrase"] == ("CommandNotFound" if "names an interpreter" in words else "ExecFormatError")
    assert words in ran.report["reason"]
    assert fix in ran.report["solution"]
    assert len(ran.report["attempts"]) == 1


def test_a_script_without_its_execute_bit_is_no_matter_of_its_first_line(holdfast: Holdfast) -> None:
    Path(holdfast.dir, "job.sh").write_bytes(b"#!/bin/bash\r\n")
    ran = holdfast.run("--no-python", "./job.sh")
    assert ran.report["phrase"] == "PermissionDenied"
