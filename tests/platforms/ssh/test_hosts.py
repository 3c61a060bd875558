"""Lists of hosts, and what each of them is given to run: words in, words out."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.platforms.ssh.host_lists import MOST_HOSTS, ListedHost, hostfile, hosts_of
from holdfast.platforms.ssh.ssh_command import (
    HostLook,
    environment_for,
    environment_there,
    host_check_command,
    ssh_words,
    trouble,
)
from holdfast.platforms.ssh.ssh_platform import place_here
from holdfast.wire.addresses import interfaces


def listed_hosts(tmp_path: Path, text: str) -> list[tuple[str, int | None]]:
    path = tmp_path / "hosts"
    path.write_text(text)
    return [(each.host, each.slots) for each in hostfile(path, "--hostfile")]


def test_a_list_on_the_command_line_has_hosts_and_workers() -> None:
    assert hosts_of(("node1", "node2:4", "[fd00::2]:8", "fd00::3", "me@node4"), "--hosts") == (
        ListedHost(host="node1"),
        ListedHost(host="node2", slots=4),
        ListedHost(host="fd00::2", slots=8),
        ListedHost(host="fd00::3"),
        ListedHost(host="me@node4"),
    )


def test_a_file_has_the_forms_of_open_mpi_and_of_deepspeed(tmp_path: Path) -> None:
    text = """
    # four machines
    node1 slots=8
    node2 slots = 4 max_slots=8   # the small one
    node3:2
    10.0.0.4
    """
    assert listed_hosts(tmp_path, text) == [("node1", 8), ("node2", 4), ("node3", 2), ("10.0.0.4", None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb slots=x\n", "hosts, line 2: b slots=x: slots `x`: expected a number from 1 to 100000"),
        ("a gpus=4\n", "hosts, line 1: a gpus=4: `gpus=4`: expected HOST, HOST:SLOTS or `HOST slots=N`"),
        ("a slots=2 slots=3\n", "line 1: a slots=2 slots=3: two numbers of slots, 2 and 3"),
        ("-oProxyCommand=x\n", "line 1: -oProxyCommand=x: expected HOST, HOST:SLOTS"),
        ("a;b\n", "line 1: a;b: expected HOST"),
        ("[fd00::2\n", r"line 1: \[fd00::2: expected HOST.*IPv6 as \[fd00::2\]"),
        ("a:0\n", "line 1: a:0: slots `0`: expected a number"),
        ("# none\n\n", "it lists no host: expected HOST"),
        ("a\nb\nA:2\n", r"line 3: the host A is there twice \(first: line 1\)"),
        ("\n".join("a b" for _ in range(14)), "and 4 further lines"),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadUsage, match=message) as wrong:
        listed_hosts(tmp_path, text)
    assert str(tmp_path / "hosts") in wrong.value.message
    assert wrong.value.hint


def test_every_wrong_line_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadUsage) as wrong:
        listed_hosts(tmp_path, "a b\nc\nd e\n")
    assert "line 1" in wrong.value.message and "line 3" in wrong.value.message


def test_a_host_named_twice_on_the_command_line_is_refused() -> None:
    with pytest.raises(BadUsage, match=r"--hosts, entry 2: the host node1 is there twice \(first: entry 1\)"):
        hosts_of(("node1", "node1:4"), "--hosts")


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    for text in (b"\xff\xfe", None):
        path = tmp_path / ("bad" if text else "missing")
        if text:
            path.write_bytes(text)
        with pytest.raises(BadUsage, match=str(path)):
            hostfile(path, "--hostfile")


def test_a_pipe_is_refused_for_it_is_read_more_than_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadUsage, match="it is a named pipe, and can be read once only: expected a file"):
        hostfile(tmp_path / "pipe", "--hostfile")


def test_a_list_has_a_limit() -> None:
    with pytest.raises(BadUsage, match=f"expected at most {MOST_HOSTS}"):
        hosts_of([f"n{number}" for number in range(MOST_HOSTS + 1)], "--hosts")


# ---------------------------------------------------------------------------------------------- what ssh is given


def test_paths_with_blanks_and_quotes_reach_the_other_shell_as_they_are() -> None:
    words = host_check_command(("ssh", "-p", "7"), "node2", "/a b/it's", "/py thon", ("t$x.py",))
    assert words[:3] == ("ssh", "-p", "7")
    assert words[-2] == "node2" and words[-3] == "--"
    there = shlex.split(words[-1])
    assert there[:3] == ["exec", "sh", "-c"]
    assert there[-3:] == ["/a b/it's", "/py thon", "t$x.py"]
    assert "\n" not in words[-1]


def test_what_belongs_to_this_machine_stays_here() -> None:
    env = {"HOST": "a", "HOSTNAME": "a", "SSH_AUTH_SOCK": "s", "DISPLAY": ":0", "TMUX": "t", "NCCL_DEBUG": "INFO"}
    assert environment_for({**env, "HOLDFAST_JOB_KEY": "/k", "HOME": "/h"}) == {"NCCL_DEBUG": "INFO", "HOME": "/h"}
    assert environment_there({"HOME": "/h", "A": "1"}, {"HOME": "/g", "B": "2"}) == {"HOME": "/g", "A": "1"}


def test_a_command_for_ssh_is_split_into_words() -> None:
    assert ssh_words("ssh -p 2222 -i 'my key'", "--ssh") == ("ssh", "-p", "2222", "-i", "my key")
    for wrong in ("ssh 'x", " "):
        with pytest.raises(BadUsage, match="--ssh"):
            ssh_words(wrong, "--ssh")


def test_a_host_that_has_all_is_no_trouble() -> None:
    assert trouble_of(0, "motd\n1.0\n") is None


def trouble_of(status: int, out: str = "", err: str = "") -> tuple[str, str] | None:
    look = HostLook(host="node2", status=status, out=out, err=err)
    return trouble(look, directory="/d", python="/p", version="1.0", ssh="ssh")


@pytest.mark.parametrize(
    ("status", "out", "err", "words", "typed"),
    [
        (0, "0.9\n", "", "node2: /p has holdfast 0.9 there, and 1.0 here", "pip install holdfast-run==1.0"),
        (97, "", "", "node2: there is no directory /d there", "ssh -o BatchMode=yes node2 ls -ld /d"),
        (98, "", "", "node2: there is no program /p there", "ls -l /p"),
        (96, "train.py\n", "", "node2: there is no train.py in /d there", "ls -l train.py"),
        (99, "", "ModuleNotFoundError: No module named 'holdfast'", "/p cannot import holdfast there: Mod", "pip show"),
        (255, "", "Warning: x\nme@node2: Permission denied (publickey).\n", "without a password: me@node2", "copy-id"),
        (255, "", "Host key verification failed.\r\n", "does not know this host's key yet", "ssh node2 true"),
        (255, "", "ssh: connect to host node2 port 22: No route to host", "cannot reach it: ssh: connect", "true"),
        (-9, "", "", "ssh did not end in time", "true"),
        (3, "", "\x1b[31mno\x1b[0m", "ssh ended with status 3: no", "true"),
    ],
)
def test_each_trouble_is_one_sentence_with_sshs_words_and_a_command(
    status: int, out: str, err: str, words: str, typed: str
) -> None:
    found = trouble_of(status, out, err)
    assert found is not None
    assert words in found[0]
    assert typed in found[1]


# ---------------------------------------------------------------------------------------------- which of them is here


def test_this_machine_is_found_in_the_list_by_name_or_address() -> None:
    here = os.uname().nodename
    own = [interface.address for interface in interfaces() if interface.name != "lo"]

    def place(*hosts: str) -> int | None:
        return place_here([ListedHost(host=host) for host in hosts])

    assert place("elsewhere.invalid", "localhost") == 1
    assert place("elsewhere.invalid", here) == 1
    assert [place("10.255.255.1", address) for address in own] == [1] * len(own)
    assert place("elsewhere.invalid", "127.0.0.2") is None
    assert place(f"nobody-else@{here}") is None
