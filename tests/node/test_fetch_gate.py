"""A job's prerequisites in a real run: behind the checks, before the workers; each failure with its exit and budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import free_port
from fetched import PLAIN_ENVIRONMENT
from web_server import Web, web_server

pytestmark = pytest.mark.real
WEIGHTS = b"weights" * 1000


@pytest.fixture
def weights_web() -> Iterator[Web]:
    with web_server(WEIGHTS) as server:
        yield server


class FetchingJob:
    """A job file, and the runs of it."""

    def __init__(self, top: Path, **thing: object) -> None:
        self.file = top / "job.yaml"
        self.env = {**PLAIN_ENVIRONMENT, "HOLDFAST_HOME": str(top / "home"), "XDG_CACHE_HOME": str(top / "cache")}
        wanted = {
            "name": "job",
            "checks": [],
            "prerequisites": {"model": thing},
            "roles": {"worker": {"count": 1, "command": ["sh", "-c", "cat $HOLDFAST_DATA_MODEL | wc -c"]}},
        }
        self.file.write_text(json.dumps(wanted))

    def words(self) -> list[str]:
        return [sys.executable, "-m", "holdfast", "run", "--job", str(self.file), "--json"]

    def run(self) -> tuple[int, dict[str, Any], str]:
        ended = subprocess.run(self.words(), env=self.env, capture_output=True, text=True, timeout=100, check=False)
        return ended.returncode, json.loads(ended.stdout), ended.stderr


@pytest.mark.key
def test_a_worker_finds_what_was_fetched_and_the_report_has_it(tmp_path: Path, weights_web: Web) -> None:
    job = FetchingJob(tmp_path, uri=f"{weights_web.url}/file/m")
    status, report, said = job.run()
    assert status == 0 and "7000" in said and len(weights_web.asked) == 1
    assert [line["name"] for line in report["checks"]["checks"]] == ["prerequisite model"]
    again, _, said = job.run()
    assert again == 0 and "whole from an earlier fetch" in said and len(weights_web.asked) == 1


@pytest.mark.key
def test_what_is_not_there_is_the_users_and_ends_the_job_at_once(tmp_path: Path, weights_web: Web) -> None:
    status, report, said = FetchingJob(tmp_path, uri=f"{weights_web.url}/status/404/m?token=geheim").run()
    assert status == 229 and report["phrase"] == "DownloadNotFound" and report["blame"] == "workload"
    assert len(report["attempts"]) == 1 and len(weights_web.asked) == 1
    assert "prerequisite model could not be had" in report["reason"] and "geheim" not in said + json.dumps(report)


def test_a_busy_server_costs_the_user_nothing_and_the_next_attempt_has_it(tmp_path: Path, weights_web: Web) -> None:
    status, report, said = FetchingJob(tmp_path, uri=f"{weights_web.url}/busy/1/m", tries=1).run()
    assert status == 0, said
    first, last = report["attempts"]
    assert first["report"]["phrase"] == "ObjectStoreThrottled" and first["decision"]["charged"] is False
    assert last["decision"]["kind"] == "succeed"


def test_a_full_disk_is_the_nodes(tmp_path: Path, weights_web: Web) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        weights_web.content = os.urandom(100_000)
        status, report, _ = FetchingJob(tmp_path, uri=f"{weights_web.url}/file/m", into=str(disk / "m")).run()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert status == 186 and report["phrase"] == "DiskFull" and report["blame"] == "storage"
    assert report["rerun"] == "elsewhere"


def test_a_mistake_in_a_name_is_told_with_its_place(tmp_path: Path) -> None:
    _, report, _ = FetchingJob(tmp_path, uri="https://h/$PAI_JOBNAME/m").run()
    assert report["phrase"] == "ConfigInvalid" and "PAI_JOBNAME" in report["reason"]


def test_a_stop_ends_the_fetch_and_its_part_stays(tmp_path: Path, weights_web: Web) -> None:
    job = FetchingJob(tmp_path, uri=f"{weights_web.url}/stalls/m", into=str(tmp_path / "m"))
    process = subprocess.Popen(job.words(), env=job.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stdout is not None
    with process:
        while "fetching" not in process.stderr.readline():
            assert process.poll() is None
        web_waits(weights_web)
        process.send_signal(signal.SIGINT)
        report = json.loads(process.stdout.read())
    assert report["phrase"] == "StoppedByOperator" and not (tmp_path / "m").exists()
    left = subprocess.run(["pgrep", "-f", "holdfast[.]fetch"], capture_output=True, text=True, check=False)
    mine = [pid for pid in left.stdout.split() if str(tmp_path) in _environment_of(pid)]
    assert mine == []


def web_waits(web: Web) -> None:
    """Until the fetch has asked."""
    while not web.asked:
        web.released.wait(0.02)


def _environment_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def test_two_nodes_of_a_machine_fetch_once(tmp_path: Path, weights_web: Web) -> None:
    weights_web.content = os.urandom(3_000_000)
    job = FetchingJob(tmp_path, uri=f"{weights_web.url}/file/m")
    wanted = json.loads(job.file.read_text())
    wanted["roles"]["worker"]["count"] = 2
    job.file.write_text(json.dumps(wanted))
    many = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "fetch"]
    nodes = [
        subprocess.Popen([*job.words(), *many], env=job.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [node.communicate(timeout=100)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert len(weights_web.asked) == 1 and "whole from an earlier fetch" in "".join(said)


def test_a_fetch_has_its_own_time_limit(tmp_path: Path, weights_web: Web) -> None:
    job = FetchingJob(tmp_path, uri=f"{weights_web.url}/stalls/m")
    words = [*job.words(), "--fetch-timeout", "2", "--max-restarts", "0"]
    ended = subprocess.run(words, env=job.env, capture_output=True, text=True, timeout=100, check=False)
    report = json.loads(ended.stdout)
    assert ended.returncode == 189 and report["phrase"] == "DownloadTimedOut", report


def test_a_node_with_a_full_disk_is_left_out_and_a_spare_takes_its_place(tmp_path: Path, weights_web: Web) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    weights_web.content = os.urandom(100_000)
    job = FetchingJob(tmp_path, uri=f"{weights_web.url}/file/m")
    many = ["--nnodes", "1", "--spares", "1", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "disk"]
    try:
        nodes = [
            subprocess.Popen(
                [*job.words(), *many, "--node-rank", str(rank)],
                env={**job.env, "HOLDFAST_FETCH_DIR": str(place)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, place in enumerate((disk, tmp_path / "roomy"))
        ]
        said = [node.communicate(timeout=100) for node in nodes]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    report = json.loads(said[0][0])
    assert [node.returncode for node in nodes] == [0, 0], said
    assert len(report["attempts"]) == 1 and (tmp_path / "roomy" / "model").exists()
    assert "100000 bytes" in said[0][1] + said[1][1]
