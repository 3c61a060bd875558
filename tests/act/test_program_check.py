"""A program that cannot run is found before any worker of the attempt runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast.act.program_check import check_program
from pair_of_nodes import Pair, pair

__all__ = ["pair"]  # a fixture

FILES = {
    "script": "#!/bin/sh\nexit 0\n",
    "no-mode": "#!/bin/sh\n",
    "no-line": "exit 0\n",
    "nothing": "",
    "no-interpreter": "#!/no/such/python -u\n",
    "windows-line": "#!/bin/sh\r\nexit 0\r\n",
    "blank-before-it": "#! /bin/sh -e\nexit 0\n",
    "folder-as-interpreter": "#!/tmp\n",
    "other-machine": "\x7fELF\x02\x01\x01\x00\x00",
}
MISSING = ("absent", "folder", "script/below-a-file", "folder/absent")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
        (tmp_path / name).chmod(0o644 if name == "no-mode" else 0o755)
    (tmp_path / "folder").mkdir()
    return tmp_path


def executed(program: str, env: dict[str, str]) -> int | None:
    """The errno with which the kernel refuses the program; None if it runs."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.execvpe(program, [program], env)
        except OSError as error:
            os.write(write, str(error.errno).encode())
        finally:
            os._exit(1)
    os.close(write)
    said = os.read(read, 16)
    os.close(read)
    os.waitpid(pid, 0)
    return int(said) if said else None


def checked(program: str, env: dict[str, str]) -> int | None:
    try:
        check_program(program, env)
    except OSError as error:
        return error.errno
    return None


def test_the_check_finds_what_the_kernel_refuses(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(programs)
    two = {"PATH": f"/no/such/folder:{programs / 'folder'}:{programs}"}
    for name in (*FILES, *MISSING):
        for program, env in ((f"{programs}/{name}", {}), (f"./{name}", {}), (name, two), (name, {"PATH": ""})):
            if "other-machine" not in program:  # an emulator may run it
                assert checked(program, env) == executed(program, env), (program, env)
    assert checked("./other-machine", {}) is None
    assert checked(sys.executable, {}) is None


def test_a_file_that_may_be_executed_and_not_read_is_left_to_the_kernel(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(programs)
    programs.chmod(0o755)
    (programs / "no-line").chmod(0o111)
    if (pid := os.fork()) == 0:
        if os.getuid() == 0:
            os.setuid(65534)  # root may read it
        os._exit(checked("./no-line", {}) or 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.real
@pytest.mark.parametrize("options", [[], ["--warm"]], ids=["cold", "warm"])
@pytest.mark.parametrize(
    ("command", "phrase", "words"),
    [
        ("/no/such/program", "CommandNotFound", "exec /no/such/program: No such file or directory (status 127)"),
        ("not-in-path", "CommandNotFound", "exec not-in-path: No such file or directory (status 127)"),
        ("./no-interpreter", "CommandNotFound", "`#!/no/such/python -u`, names an interpreter that does"),
        ("./no-mode", "PermissionDenied", "exec ./no-mode: Permission denied (status 126)"),
        ("./no-line", "ExecFormatError", "exec ./no-line: Exec format error (status 126)"),
    ],
)
def test_no_role_runs_before_the_program_of_each_is_found(
    holdfast: Holdfast, programs: Path, command: str, phrase: str, words: str, options: list[str]
) -> None:
    script = holdfast.script("import pathlib; pathlib.Path('ran').touch()")
    job = holdfast.dir / "job.yaml"
    job.write_text(
        "name: two\nroles:\n"
        f"  first: {{count: 2, command: [{sys.executable}, {script}]}}\n"
        f"  second: {{count: 1, command: [{command}]}}\n"
    )
    ran = holdfast.run(*options, "--job", job)
    assert (ran.report["phrase"], ran.report["first"]["role"]) == (phrase, "second")
    assert words in ran.report["reason"]
    assert not (holdfast.dir / "ran").exists()


@pytest.mark.real
def test_no_node_runs_before_the_program_of_each_is_found(pair: Pair) -> None:
    here = pair.holdfast.dir
    (here / "only-on-a").mkdir()
    program = here / "only-on-a" / "train"
    program.write_text(f"#!/bin/sh\ntouch {here}/ran\n")
    program.chmod(0o755)
    words = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{pair.port}", "--job-key", str(pair.key)]
    for home, hosts, path in ((pair.a, 1, f"{program.parent}:"), (pair.b, 0, "")):
        pair.runs.append(
            pair.holdfast.start(
                *("run", "--no-checks", "--rdzv-conf", f"is_host={hosts}", *words, "--no-python", "train"),
                HOLDFAST_HOME=str(home),
                PATH=path + os.environ["PATH"],
            )
        )
    for ran in pair.finish():
        assert ran.status == 220, ran.err
        assert "exec train: No such file or directory (status 127)" in ran.err.replace("\n    ", " ")
    assert not (here / "ran").exists()
