"""`--hosts` against a real sshd: what each host must have, and what a user is told where it has not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import Holdfast
from holdfast import __version__
from holdfast.errors import BadUsage
from holdfast.platforms.ssh.host_lists import ListedHost
from holdfast.platforms.ssh.ssh_command import ssh_words
from holdfast.platforms.ssh.ssh_starter import HostOrder, SshStarter, look_at
from real_sshd import Sshd, sshd

__all__ = ["sshd"]

pytestmark = pytest.mark.real


def order_sent(server: Sshd, *hosts: str, directory: Path, python: str) -> HostOrder:
    listed = [(rank, ListedHost(host=host)) for rank, host in enumerate(hosts)]
    words = ssh_words(server.command, "--ssh")
    return HostOrder(
        words, listed, lambda *_: b"", directory=str(directory), python=python, output=1, say=lambda text: None
    )


def test_hosts_that_have_all_are_not_spoken_of(sshd: Sshd, holdfast: Holdfast) -> None:
    place = holdfast.dir / "it's a place"
    place.mkdir()
    (place / "t.py").touch()
    order = order_sent(sshd, "node1", "node2", "node3", directory=place, python=holdfast.python)
    assert look_at(order, ("t.py",), __version__, 0) == ()


def test_every_host_in_trouble_is_told_at_once(sshd: Sshd, holdfast: Holdfast) -> None:
    order = order_sent(sshd, "node1", "gone", "asks", "unknown", directory=holdfast.dir, python=holdfast.python)
    with pytest.raises(BadUsage) as wrong:
        look_at(order, (), __version__, 2)
    assert "node1" not in wrong.value.message
    assert "gone: ssh cannot reach it: " in wrong.value.message
    assert "Connection refused" in wrong.value.message
    assert "asks: ssh may not log in without a password: " in wrong.value.message
    assert "unknown: ssh does not know this host's key yet: " in wrong.value.message
    assert "gone true" in wrong.value.hint


def test_a_host_that_the_job_can_do_without_is_told_and_no_more(sshd: Sshd, holdfast: Holdfast) -> None:
    order = order_sent(sshd, "node1", "gone", directory=holdfast.dir, python=holdfast.python)
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
        look_at(order_sent(sshd, "node1", directory=place, python=python), (path,), version, 0)


def test_a_python_without_holdfast_is_told_with_its_own_words(sshd: Sshd, holdfast: Holdfast) -> None:
    plain = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if plain is None or os.path.realpath(plain) == os.path.realpath(holdfast.python):
        plain = str(holdfast.dir / "python")
        Path(plain).write_text("#!/bin/sh\necho \"No module named 'holdfast'\" >&2\nexit 1\n")
        Path(plain).chmod(0o755)
    with pytest.raises(BadUsage, match=r"cannot import holdfast there: .*No module named 'holdfast'"):
        look_at(order_sent(sshd, "node1", directory=holdfast.dir, python=plain), (), __version__, 0)


class Keeper:
    """The starter with a command in ssh's place, and what it has said."""

    def __init__(self, holdfast: Holdfast, script: str) -> None:
        self.said: list[str] = []
        command = holdfast.dir / "ssh"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        listed = [(0, ListedHost(host="node1"))]
        order = HostOrder(
            (str(command),),
            listed,
            lambda *_: b"the order\n",
            directory="/",
            python="/python",
            output=2,
            say=self.said.append,
        )
        self.guard, self.word = os.pipe()
        self.starter = SshStarter(order)

    def keep(self) -> int:
        return self.starter("10.0.0.1", 7, self.guard)


def test_a_host_that_fails_again_and_again_is_left_out(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.platforms.ssh.ssh_starter.PAUSES_S", (0.01, 0.01))
    # As ssh does: its own words go to the file behind -E.
    keeper = Keeper(holdfast, 'while [ "$1" != -E ]; do shift; done; echo "no route" > "$2"; exit 255')
    assert keeper.keep() == 0
    assert [line.partition(";")[0] for line in keeper.said] == [
        "node1: the connection of ssh has ended: no route",
        "node1: the connection of ssh has ended: no route",
        "node1: ssh failed 3 times in a row: the host is left out",
    ]


def test_an_agent_that_ends_by_itself_is_not_started_again(holdfast: Holdfast) -> None:
    keeper = Keeper(holdfast, f"cat > {holdfast.dir}/given; exit 42")
    os.write(keeper.word, b"\0\0")  # the job is over: the agent's input ends
    assert keeper.keep() == 0
    assert keeper.said == []
    assert (holdfast.dir / "given").read_text() in ("", "the order\n")


def test_the_starter_ends_what_it_started_when_the_guard_is_gone(holdfast: Holdfast) -> None:
    keeper = Keeper(holdfast, "exec sleep 60")
    os.close(keeper.word)
    assert keeper.keep() == 0


def test_a_starter_that_is_killed_starts_no_second_agent(holdfast: Holdfast) -> None:
    keeper = Keeper(holdfast, "exit 42")
    assert keeper.keep() == 0
    os.close(keeper.word)
    assert keeper.keep() == 0
    assert keeper.said == ["the output of workers on other hosts is not shown any more: the ssh starter was killed"]


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
        (["--hosts", "a", "--nnodes", "2"], "--nnodes 2 with 1 host: expected as many hosts as nodes"),
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
