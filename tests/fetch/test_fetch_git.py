"""Code from a real git daemon: branches, tags, commits, submodules, what is not there; no credentials in sight."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fetched import PLAIN_ENVIRONMENT, fetch, nothing_counts
from holdfast.fetch.git_source import Checkout
from holdfast.fetch.prerequisite_uris import uri_of
from holdfast.model.runtime_plan import Prerequisite
from web_server import web_server

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("git") is None, reason="needs the git command")]
GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def git(where: Path, *words: str) -> str:
    env = {**PLAIN_ENVIRONMENT, **GIT_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=where, env=env, check=True, capture_output=True, text=True).stdout.strip()


class Remote(msgspec.Struct):
    url: str
    #: The commit before the last one of its branch.
    first: str
    last: str


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A daemon that serves `train.git`, with a branch, a tag, a large file in its past and a submodule."""
    top = tmp_path_factory.mktemp("git")
    part, work = top / "part", top / "work"
    for path in (part, work):
        path.mkdir()
        git(path, "init", "--quiet")
    (part / "p.txt").write_text("part")
    git(part, "add", ".")
    git(part, "commit", "--quiet", "-m", "part")
    (work / "train.py").write_text("one")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "one")
    first = git(work, "rev-parse", "HEAD")
    git(work, "tag", "v1")
    (work / "train.py").write_text("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    git(work, "-c", f"url.{part}.insteadOf=git://127.0.0.1:{port}/part.git",
        "submodule", "add", "--quiet", f"git://127.0.0.1:{port}/part.git", "sub")  # fmt: skip
    (work / "data.bin").write_bytes(os.urandom(400_000))
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "two")
    served = top / "served"
    served.mkdir()
    for name, path in (("train", work), ("part", part)):
        git(served, "clone", "--quiet", "--bare", str(path), f"{name}.git")
    daemon = subprocess.Popen(
        ["git", "daemon", "--reuseaddr", f"--base-path={served}", "--export-all", "--listen=127.0.0.1",
         f"--port={port}", "--verbose"], stderr=subprocess.PIPE, env=PLAIN_ENVIRONMENT, process_group=0,
    )  # fmt: skip
    assert daemon.stderr is not None
    with daemon:
        while b"Ready" not in daemon.stderr.readline():
            assert daemon.poll() is None, "the daemon did not start"
        yield Remote(f"git://127.0.0.1:{port}/train.git", first, git(work, "rev-parse", "HEAD"))
        os.killpg(daemon.pid, 15)


def test_the_repositorys_own_choice_comes_one_commit_deep_with_its_submodules(remote: Remote, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "code", remote.url)
    code = tmp_path / "code"
    assert ran.status == 0 and ran.done[0].mark == remote.last
    assert (code / "train.py").read_text() == "two" and (code / "sub" / "p.txt").read_text() == "part"
    assert git(code, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize("ref", ["v1", "FIRST", "SHORT", "main"])
def test_a_branch_a_tag_and_a_commit_are_had(remote: Remote, tmp_path: Path, ref: str) -> None:
    ref = {"FIRST": remote.first, "SHORT": remote.first[:10]}.get(ref, ref)
    ran = fetch(tmp_path / "code", f"{remote.url}@{ref}#submodules=no&depth=0")
    assert ran.status == 0, ran.text
    assert ran.done[0].mark == (remote.last if ref == "main" else remote.first)
    assert not (tmp_path / "code" / "sub" / "p.txt").exists()


def test_a_ref_and_a_repository_that_are_not_there_are_told_apart(remote: Remote, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "code", f"{remote.url}@v9")
    assert ran.phrase == "GitRefNotFound" and "v9" in ran.failed.trouble.words and ran.failed.tries == 1
    unknown = fetch(tmp_path / "code", f"{remote.url}@{'0' * 39}1")
    assert unknown.phrase == "GitRefNotFound"
    none = fetch(tmp_path / "code", remote.url.replace("train", "trian"))
    assert none.phrase == "DownloadNotFound" and nothing_counts(tmp_path / "code")


def test_a_repository_that_is_larger_than_allowed_does_not_come(remote: Remote, tmp_path: Path) -> None:
    ran = fetch(tmp_path / "code", f"{remote.url}#submodules=no", most_bytes=100_000)
    assert ran.phrase == "DownloadTooLarge" and nothing_counts(tmp_path / "code")


def test_a_server_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    ran = fetch(tmp_path / "code", "git+http://127.0.0.1:9/x.git", tries=2)
    assert ran.phrase == "DownloadUnreachable" and ran.failed.tries == 2
    assert fetch(tmp_path / "code", "git+http://nowhere.invalid/x.git", tries=1).phrase == "DnsFailed"


def test_credentials_that_are_missing_or_wrong_have_their_own_exits_and_stand_nowhere(tmp_path: Path) -> None:
    with web_server(b"") as web:
        host = web.url.partition("://")[2]
        missing = fetch(tmp_path / "code", f"git+http://{host}/login/x.git")
        refused = fetch(tmp_path / "code", f"git+http://ada:falsch@{host}/login/x.git@v1")
        fetch(tmp_path / "code", f"git+http://ada:geheim@{host}/login/x.git")
        logins = [headers.get("Authorization") for _, headers in web.asked]
    assert missing.phrase == "CredentialsMissing" and refused.phrase == "DownloadRefused", refused.text
    assert "falsch" not in refused.text and "ada" not in refused.text
    assert "Basic YWRhOmdlaGVpbQ==" in logins, "git itself has sent them"


def test_gits_command_line_and_configuration_hold_no_credentials(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    fake = tmp_path / "git"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {seen}\n')
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    fetch(tmp_path / "code", "git+https://ada:geheim@git.invalid/x.git@main", env=env)
    assert "https://git.invalid/x.git" in seen.read_text()
    assert "geheim" not in seen.read_text() and "ada" not in seen.read_text()


def test_what_git_says_loses_its_secrets() -> None:
    uri = uri_of(Prerequisite(name="x", uri="git+https://ada:geheim@git.lab/x.git"))
    trouble = Checkout(uri, 1.0, None, lambda _: None)._trouble(
        ["fatal: Authentication failed for 'https://ada:geheim@git.lab/x.git/'"], 128
    )
    assert trouble.phrase == "DownloadRefused" and "geheim" not in trouble.words and "ada" not in trouble.words


@pytest.mark.parametrize("user", ["u", "git", "x:p", "x:unable"])
def test_a_short_name_masks_no_other_word(user: str) -> None:
    uri = uri_of(Prerequisite(name="x", uri=f"git+https://{user}@git.lab/x.git"))
    url, last = f"https://{user}@git.lab/x.git/", user.rpartition(":")[2]
    told = f"fatal: unable to access '{url}': Could not resolve host: git.lab ({last})"
    words = Checkout(uri, 1.0, None, lambda _: None)._trouble([told], 128).words
    assert f"{user}@" not in words and "(***)" in words
    assert "Could not resolve host: " in words and "to access" in words
    if user != "x:unable":
        assert "unable to access" in words
