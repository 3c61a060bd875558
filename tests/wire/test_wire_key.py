"""The key of a job: where it lies, how it is made, which file is refused, and that it never shows."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.wire.connection_troubles import trouble
from holdfast.wire.job_key import Key, copy_command, job_key
from holdfast.wire.tls_channel import ChannelEnd, ChannelEndKind

RAW = bytes(range(32))
KEY_IN_HEX = RAW.hex().encode()


def key_file(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_key_is_made_at_its_first_use_and_found_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = job_key(None, {}, home)
    assert job_key(None, {}, home).secret() == first.secret()
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600
    assert list(home.iterdir()) == [home / "key"], "no temporary file is left"
    assert len((home / "key").read_bytes()) == 65


def test_of_many_processes_that_make_a_key_at_once_all_get_the_same(tmp_path: Path) -> None:
    code = "import sys, pathlib; from holdfast.wire.job_key import job_key; sys.stdin.read(); "
    code += "print(job_key(None, {}, pathlib.Path(sys.argv[1])).secret().hex())"
    command = [sys.executable, "-c", code, str(tmp_path / "home")]
    many = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for one in many:
        assert one.stdin is not None
        one.stdin.close()
    said = set()
    for one in many:
        assert one.stdout is not None
        said.add(one.stdout.read())
        one.stdout.close()
        assert one.wait(30) == 0
    assert len(said) == 1


@pytest.mark.parametrize("data", [RAW, KEY_IN_HEX, KEY_IN_HEX.upper() + b"\n", KEY_IN_HEX + b"\r\n"])
def test_a_key_file_has_32_bytes_or_64_hex_digits(tmp_path: Path, data: bytes) -> None:
    path = key_file(tmp_path / "k", data)
    assert job_key(str(path), {}, tmp_path).secret() == RAW
    assert job_key(None, {"HOLDFAST_JOB_KEY": str(path)}, tmp_path).secret() == RAW


def test_the_option_wins_over_the_variable(tmp_path: Path) -> None:
    path = key_file(tmp_path / "k", RAW)
    assert job_key(str(path), {"HOLDFAST_JOB_KEY": "/nowhere"}, tmp_path).secret() == RAW


@pytest.mark.parametrize("data", [b"", b"x", RAW[:31], RAW + b"\n", KEY_IN_HEX[:63] + b"g", KEY_IN_HEX * 2])
def test_what_is_no_key_is_refused_and_stays(tmp_path: Path, data: bytes) -> None:
    path = key_file(tmp_path / "key", data)
    with pytest.raises(BadUsage, match="key file has 32 raw bytes") as refused:
        job_key(None, {}, tmp_path)
    assert refused.value.hint
    assert path.read_bytes() == data


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o644])
def test_a_key_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path / "k", RAW, mode)
    with pytest.raises(BadUsage, match=f"mode {mode:04o}") as refused:
        job_key(str(path), {}, tmp_path)
    assert refused.value.hint == f"chmod 600 {path}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_that_another_user_owns_or_links_to_is_refused(tmp_path: Path) -> None:
    path = key_file(tmp_path / "k", RAW)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert job_key(str(link), {}, tmp_path).secret() == RAW
    os.chown(link, 12345, -1, follow_symlinks=False)
    with pytest.raises(BadUsage, match=r"symbolic link of another user \(uid 12345\)"):
        job_key(str(link), {}, tmp_path)
    os.chown(path, 12345, -1)
    with pytest.raises(BadUsage, match=r"belongs to another user \(uid 12345\)"):
        job_key(str(path), {}, tmp_path)


def test_what_is_no_file_is_refused_without_a_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "named pipe"), (".", "Is a directory"), ("none", "there is no key file")):
        with pytest.raises(BadUsage, match=said) as refused:
            job_key(str(tmp_path / name), {}, tmp_path)
        assert refused.value.hint


def test_a_state_directory_that_takes_no_key_says_so(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(BadUsage, match="no key can be made"):
        job_key(None, {}, tmp_path / "home")


def test_a_key_never_shows(tmp_path: Path) -> None:
    key = Key(RAW, tmp_path / "k")
    shown = f"{key} {key!r} {[key]} {vars(type(key)).keys()}"
    assert RAW.hex() not in shown and repr(RAW)[2:-1] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_another_key_is_told_with_the_command_that_copies_it(tmp_path: Path) -> None:
    end = ChannelEnd(why=ChannelEndKind.OTHER_KEY, words="it is a holdfast with another key")
    said = trouble(end, "node1", 29500, Key(RAW, tmp_path / "key"))
    assert "node1:29500 has another job key" in said.message
    assert said.hint.startswith(f"scp -p node1:{tmp_path}/key {tmp_path}/key")
    assert said.exit_status == 2
    assert copy_command("fe80::1", Path("/k")) == "scp -p [fe80::1]:/k /k"
    assert copy_command("n", Path("ssh, on standard input")).endswith(" ~/.local/state/holdfast/key")


@pytest.mark.parametrize("why", ChannelEndKind)
def test_every_trouble_has_a_sentence_and_a_command(why: ChannelEndKind) -> None:
    said = trouble(ChannelEnd(why=why, words="words"), "node1", 29500, Key(RAW))
    assert "node1" in str(said) and said.hint
    assert said.exit_status in (2, 251)


def test_without_scp_the_nodes_are_told_to_name_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert copy_command("n1", None).startswith("export HOLDFAST_JOB_KEY=/path/of/one/key  (a mounted secret")
    (tmp_path / "scp").write_text("#!/bin/sh\n")
    (tmp_path / "scp").chmod(0o755)
    assert copy_command("n1", Path("/k")) == "scp -p n1:/k /k"
