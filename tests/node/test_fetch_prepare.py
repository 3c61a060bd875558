"""`holdfast prepare --job` fetches into the exchange directory, and leaves a failure as JSON for its container."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tree import small_tree

from fetched import PLAIN_ENVIRONMENT
from web_server import Web, web_server

pytestmark = pytest.mark.real


@pytest.fixture
def big_weights_web() -> Iterator[Web]:
    with web_server(b"weights" * 300_000) as server:
        yield server


class Prepare:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.into = top / "pai"
        small_tree(top / "tree")

    def words(self, **thing: object) -> list[str]:
        job = {
            "name": "job",
            "secrets": {"login": {"env": "TOKEN"}},
            "prerequisites": {"model": thing},
            "roles": {"worker": {"count": 1, "command": ["true"]}},
        }
        (self.top / "job.yaml").write_text(json.dumps(job))
        tree = ["--tree", str(self.top / "tree"), "--into", str(self.into)]
        result = ["--result", str(self.top / "result")]
        return [sys.executable, "-m", "holdfast", "prepare", *tree, *result, "--job", str(self.top / "job.yaml")]

    def run(self, **thing: object) -> subprocess.CompletedProcess[str]:
        env = {**PLAIN_ENVIRONMENT, "TOKEN": "geheim"}
        return subprocess.run(self.words(**thing), env=env, capture_output=True, text=True, timeout=100, check=False)


def test_what_a_job_needs_lies_beside_run_and_a_repeated_call_fetches_nothing(
    tmp_path: Path, big_weights_web: Web
) -> None:
    prepare = Prepare(tmp_path)
    assert prepare.run(uri=f"{big_weights_web.url}/file/m", into="data/m").returncode == 0
    assert (prepare.into / "data" / "m").read_bytes() == big_weights_web.content and (prepare.into / "run").exists()
    again = prepare.run(uri=f"{big_weights_web.url}/file/m", into="data/m")
    assert again.returncode == 0 and "whole from an earlier fetch" in again.stderr and len(big_weights_web.asked) == 1
    assert not (tmp_path / "result").exists()


def test_a_failure_is_a_status_a_file_and_the_last_line(tmp_path: Path, big_weights_web: Web) -> None:
    prepare = Prepare(tmp_path)
    ended = prepare.run(uri=f"{big_weights_web.url}/status/404/m?token=geheim")
    left = json.loads((tmp_path / "result").read_text())
    assert ended.returncode == left["code"] == 229 and left["phrase"] == "DownloadNotFound" and left["name"] == "model"
    assert json.loads(ended.stdout.splitlines()[-1]) == left and len((tmp_path / "result").read_bytes()) <= 4096
    assert "404" in left["words"] and left["solution"] and "geheim" not in ended.stdout + ended.stderr


def test_a_mistake_is_left_the_same_way(tmp_path: Path) -> None:
    ended = Prepare(tmp_path).run(uri="gopher://h/x")
    left = json.loads((tmp_path / "result").read_text())
    assert ended.returncode == left["code"] == 2 and left["phrase"] == "ConfigInvalid"


def test_a_secret_of_the_job_is_filled_in_and_shown_nowhere(tmp_path: Path, big_weights_web: Web) -> None:
    prepare = Prepare(tmp_path)
    ended = prepare.run(uri=big_weights_web.url.replace("://", "://ada:<% $secrets.login %>@") + "/login/m")
    assert ended.returncode == 0, ended.stderr
    assert "geheim" not in ended.stdout + ended.stderr + (prepare.into / "job.yaml").read_text()


def test_a_terminal_has_a_bar(tmp_path: Path, big_weights_web: Web) -> None:
    big_weights_web.content = os.urandom(20_000_000)
    ours, theirs = pty.openpty()
    words = Prepare(tmp_path).words(uri=f"{big_weights_web.url}/file/m", sha256="")
    with subprocess.Popen(
        words, env=PLAIN_ENVIRONMENT | {"TOKEN": ""}, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while block := os.read(ours, 65536):
                seen += block
        except OSError:
            pass  # Linux says so at the end of a terminal
        os.close(ours)
    assert process.returncode == 0 and b"\rmodel  [" in seen and b" of 20.0 MB" in seen
