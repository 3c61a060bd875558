"""`--hosts` against a real sshd: what each host must have, and what a user is told where it has not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast import __version__
from holdfast.cluster.hosts import Listed
from holdfast.cluster.ssh import Sent, look_at
from holdfast.cluster.ssh_words import ssh_words
from holdfast.errors import BadUsage
from real_sshd import Sshd, sshd

__all__ = ["sshd"]

pytestmark = pytest.mark.real


def sent(server: Sshd, *hosts: str, directory: Path, python: str) -> Sent:
    listed = [(rank, Listed(host=host)) for rank, host in enumerate(hosts)]
    words = ssh_words(server.command, "--ssh")
    return Sent(words, listed, lambda *_: b"", directory=str(directory), python=python, output=1, say=lambda text: None)


def test_hosts_that_have_all_are_not_spoken_of(sshd: Sshd, holdfast: Holdfast) -> None:
    place = holdfast.dir / "it's a place"
    place.mkdir()
    (place / "t.py").touch()
    order = sent(sshd, "node1", "node2", "node3", directory=place, python=holdfast.python)
    assert look_at(order, ("t.py",), __version__, 0) == ()


def test_every_host_in_trouble_is_told_at_once(sshd: Sshd, holdfast: Holdfast) -> None:
    order = sent(sshd, "node1", "gone", "asks", "unknown", directory=holdfast.dir, python=holdfast.python)
    with pytest.raises(BadUsage) as wrong:
        look_at(order, (), __version__, 2)
    assert "node1" not in wrong.value.message
    assert "gone: ssh cannot reach it: " in wrong.value.message
    assert "Connection refused" in wrong.value.message
    assert "asks: ssh may not log in without a password: " in wrong.value.message
    assert "unknown: ssh does not know this host's key yet: " in wrong.value.message
    assert "gone true" in wrong.value.hint


def test_a_host_that_the_job_can_do_without_is_told_and_no_more(sshd: Sshd, holdfast: Holdfast) -> None:
    order = sent(sshd, "node1", "gone", directory=holdfast.dir, python=holdfast.python)
    [line] = look_at(order, (), __version__, 1)
    assert line.startswith("gone: ssh cannot reach it: ")
    assert line.endswith(": the job can begin without it")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("directory", "node1: there is no directory "),
        ("python", "node1: there is no program /nowhere/python there"),
        ("script", "node1: there is no missing.py in "),
        ("version", "there, and 99.0 here: expected the same on all hosts"),
    ],
)
def test_what_a_host_lacks_is_named(sshd: Sshd, holdfast: Holdfast, what: str, message: str) -> None:
    place, python, path, version = holdfast.dir, holdfast.python, "t.py", __version__
    (place / "t.py").touch()
    match what:
        case "directory":
            place = place / "nowhere"
        case "python":
            python = "/nowhere/python"
        case "script":
            path = "missing.py"
        case _:
            version = "99.0"
    with pytest.raises(BadUsage, match=message):
        look_at(sent(sshd, "node1", directory=place, python=python), (path,), version, 0)


def test_a_python_without_holdfast_is_told_with_its_own_words(sshd: Sshd, holdfast: Holdfast) -> None:
    plain = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if plain is None or os.path.realpath(plain) == os.path.realpath(holdfast.python):
        plain = str(holdfast.dir / "python")
        Path(plain).write_text("#!/bin/sh\necho \"No module named 'holdfast'\" >&2\nexit 1\n")
        Path(plain).chmod(0o755)
    with pytest.raises(BadUsage, match=r"cannot import holdfast there: .*No module named 'holdfast'"):
        look_at(sent(sshd, "node1", directory=holdfast.dir, python=plain), (), __version__, 0)


# ---------------------------------------------------------------------------------------------- as a user types it


def test_a_host_that_cannot_be_reached_ends_the_run_before_anything_starts(sshd: Sshd, holdfast: Holdfast) -> None:
    ran = holdfast.run("--ssh", sshd.command, "--hosts", "localhost,gone", holdfast.script("pass"))
    assert ran.status == 2
    assert ran.err.count("gone: ssh cannot reach it: ") == 1
    assert "try: " in ran.err
    assert not (holdfast.home / "jobs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "a,a"], "entry 2: the host a is there twice"),
        (["--hosts", "a"], "the list names one host, a: expected two or more"),
        (["--hosts", "a,b", "--nnodes", "3"], "--nnodes 3 with 2 hosts: expected as many hosts as nodes"),
        (["--hosts", "a,b", "--spares", "2"], "one node and --spares 2 with 2 hosts"),
        (["--hosts", "a,b", "--hostfile", "f"], "--hosts and --hostfile: expected one list of hosts"),
        (["--hosts", "a,b", "--local-addr", "127.0.0.1"], "is a loopback address, and the other hosts cannot reach it"),
        (["--hosts", "a,b", "--ssh", "/nowhere/ssh"], "/nowhere/ssh cannot be run"),
    ],
)
def test_a_list_that_cannot_be_is_one_message(holdfast: Holdfast, words: list[str], message: str) -> None:
    ran = holdfast.run(*words, holdfast.script("pass"))
    assert ran.status == 2
    assert message in ran.err
    assert ran.err.count("holdfast: ") == 1


def test_a_malformed_hosts_file_is_told_with_its_lines(holdfast: Holdfast) -> None:
    (holdfast.dir / "hosts.txt").write_text("node1 slots=2\nnode2 slots=two\nnode3 !\n")
    ran = holdfast.run("--hostfile", "hosts.txt", holdfast.script("pass"))
    assert ran.status == 2
    assert "hosts.txt, line 2: node2 slots=two: slots `two`: expected a number" in ran.err
    assert "hosts.txt, line 3: " in ran.err
