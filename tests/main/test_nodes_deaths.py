"""A job over several nodes whose own processes are killed: owner, agents, guards. No mocks: SIGKILL to each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from several_runs import Runs, runs

__all__ = ["runs"]  # fixtures

pytestmark = pytest.mark.real


@pytest.mark.key
def test_each_process_has_a_name(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    runs.process(0, "holdfast-owner")
    runs.process(0, "holdfast-agent")
    runs.process(1, "holdfast-agent")
    for run in runs.runs:
        assert Path(f"/proc/{run.pid}/comm").read_text().strip() == "holdfast-guard"


def test_an_owner_that_is_killed_ten_times_in_a_row_ends_no_attempt(runs: Runs) -> None:
    runs.start_all(3)
    before = runs.workers(1, 3)
    pid = runs.process(0, "holdfast-owner")
    for _ in range(10):
        runs.kill(pid)
        pid = runs.process(0, "holdfast-owner", other_than=pid)
        _wait_for_agents(runs, pid)
    assert all(Path(f"/proc/{worker['pid']}").exists() for worker in before), runs.all_said()
    runs.end()
    assert runs.codes() == [0, 0, 0]
    assert [attempt["attempt"] for attempt in runs.report(2)["attempts"]] == [1]


def _wait_for_agents(runs: Runs, owner: int) -> None:
    runs.wait(lambda: _connected(owner) >= 3, "the agents to dial the new owner")


def _connected(pid: int) -> int:
    """How many connections a process has."""
    found = psutil.Process(pid).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED for each in found)


def _typed_at_home(runs: Runs, *words: str) -> str:
    env = {**os.environ, "HOLDFAST_HOME": str(runs.place / "home0")}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], env=env, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_a_job_whose_owner_is_dead_for_a_moment_is_not_called_lost(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    guard = runs.runs[0].pid
    os.kill(guard, signal.SIGSTOP)
    try:
        runs.kill(runs.process(0, "holdfast-owner"))
        assert "running" in _typed_at_home(runs, "jobs")
    finally:
        os.kill(guard, signal.SIGCONT)
    runs.end()
    assert runs.codes() == [0, 0]


@pytest.mark.key
def test_an_owner_that_is_killed_while_a_rank_dies_still_names_it(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    guard = runs.runs[0].pid
    os.kill(guard, signal.SIGSTOP)
    runs.kill(runs.process(0, "holdfast-owner"))
    (runs.out / "fail-1-1").touch()
    runs.wait_for(1, "no such shard")
    os.kill(guard, signal.SIGCONT)
    runs.workers(2, 2)
    runs.end()
    assert runs.codes() == [0, 0]
    first = runs.report()["attempts"][0]["report"]
    assert (first["phrase"], first["first"]["rank"]) == ("UserException", 1)


@pytest.mark.key
def test_an_agent_that_is_killed_comes_back_and_the_restart_is_not_charged(runs: Runs) -> None:
    runs.start_all(2)
    workers = runs.workers(1, 2)
    runs.kill(runs.process(1, "holdfast-agent"))
    runs.workers(2, 2)
    assert not any(Path(f"/proc/{worker['pid']}").exists() for worker in workers)
    runs.end()
    assert runs.codes() == [0, 0]
    first = runs.report()["attempts"][0]
    assert not first["decision"]["charged"]


def test_an_agent_that_hangs_is_killed_with_its_workers_when_its_lease_is_over(runs: Runs) -> None:
    runs.start_all(2)
    workers = runs.workers(1, 2)
    os.kill(runs.process(1, "holdfast-agent"), signal.SIGSTOP)
    runs.wait(lambda: not Path(f"/proc/{workers[1]['pid']}").exists(), "the worker of the stopped agent to be killed")
    runs.wait_for(1, "did not act when it had to")
    runs.workers(2, 2)
    runs.end()
    assert runs.codes() == [0, 0]


def test_a_disk_that_takes_no_logs_for_longer_than_the_lease_costs_no_attempt(runs: Runs) -> None:
    """What writes to it stands still, as it would in a write; the trainer prints 200 KB meanwhile."""
    runs.start_all(2)
    workers = runs.workers(1, 2)
    logs = runs.process(1, "holdfast-logs", below="holdfast-agent")
    os.kill(logs, signal.SIGSTOP)
    (runs.out / "print-1").touch()
    runs.wait_for(1, "line 9999 of rank 1")
    time.sleep(10)  # the lease is 6 s
    os.kill(logs, signal.SIGCONT)
    runs.end()
    assert runs.codes() == [0, 0]
    assert [attempt["attempt"] for attempt in runs.report()["attempts"]] == [1]
    log = Path(workers[1]["HOLDFAST_PROGRESS"]).with_name("stdout.log").read_text()
    assert log.count("of rank 1\n") == 10001


def test_the_agent_beside_the_owner_may_be_killed_too(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    runs.kill(runs.process(0, "holdfast-agent"))
    runs.workers(2, 2)
    runs.end()
    assert runs.codes() == [0, 0]


@pytest.mark.key
def test_a_spare_takes_the_place_of_a_node_whose_guard_was_killed(runs: Runs) -> None:
    runs.start_all(3, "--spares", "1", nnodes="2")
    runs.wait_for(0, "1 spare")
    workers = runs.workers(1, 2)
    home = workers[1]["HOLDFAST_HOME"]
    taken = next(number for number in (1, 2) if home.endswith(f"home{number}"))
    runs.kill(runs.runs[taken].pid)
    again = runs.workers(2, 2)
    assert again[1]["HOLDFAST_HOME"] != home
    runs.end()
    assert [run.wait(60) for number, run in enumerate(runs.runs) if number != taken] == [0, 0]
    assert not runs.report()["attempts"][0]["decision"]["charged"]


def test_with_a_range_of_nodes_the_rest_goes_on_when_one_is_lost(runs: Runs) -> None:
    runs.start_all(3, "--last-call", "2", nnodes="2:3")
    runs.workers(1, 3)
    runs.kill(runs.runs[2].pid)
    again = runs.workers(2, 2)
    assert {worker["WORLD_SIZE"] for worker in again} == {"2"}
    runs.end()
    assert [run.wait(60) for run in runs.runs[:2]] == [0, 0]


def test_when_the_owner_s_whole_node_is_lost_the_others_end_their_workers_and_then_themselves(runs: Runs) -> None:
    runs.start_all(2, "--owner-wait", "2")
    workers = runs.workers(1, 2)
    home = next(number for number in (0, 1) if workers[1]["HOLDFAST_HOME"].endswith(f"home{number}"))
    assert home == 1
    owner, agent = runs.process(0, "holdfast-owner"), runs.process(0, "holdfast-agent")
    for pid in (runs.runs[0].pid, owner, agent):
        os.kill(pid, signal.SIGSTOP)  # as if its machine stood still
    try:
        assert runs.runs[1].wait(60) == 251
    finally:
        for pid in (runs.runs[0].pid, owner, agent):
            os.kill(pid, signal.SIGKILL)
    assert not Path(f"/proc/{workers[1]['pid']}").exists()
    assert runs.report(1)["phrase"] == "OwnerLost"
    assert runs.report(1)["blame"] == "platform"
    assert runs.said(1).count("no word from the owner at ") == 1
    assert "this node ends its workers; the owner is dialled for another 2 s" in runs.said(1)


def test_when_the_guard_of_the_owner_s_node_is_killed_the_job_ends_everywhere(runs: Runs) -> None:
    runs.start_all(2)
    workers = runs.workers(1, 2)
    runs.kill(runs.runs[0].pid)
    assert runs.runs[1].wait(60) != 0
    runs.wait(lambda: not any(Path(f"/proc/{worker['pid']}").exists() for worker in workers), "no worker is left")
    assert runs.report(1)["phrase"] == "KilledBySignal"


@pytest.mark.key
def test_a_job_that_ends_for_lack_of_nodes_says_so_everywhere(runs: Runs) -> None:
    why = "and no other came within 1 s"
    summary = runs.place / "summary.md"
    runs.start_all(2, "--replace-wait", "1", "--summary", str(summary), nnodes="2")
    runs.workers(1, 2)
    left = psutil.Process(runs.runs[1].pid).children(recursive=True)
    runs.runs[1].kill()
    for process in left:
        runs.kill(process.pid)
    assert runs.runs[0].wait(60) == 165
    last = runs.report()["attempts"][-1]["decision"]
    assert last["kind"] == "fail" and why in last["reason"] and "gone:" in last["reason"], last
    page = runs.place / "page.html"
    shown = [_typed_at_home(runs, "show"), _typed_at_home(runs, "show", "--verbose"), summary.read_text()]
    _typed_at_home(runs, "show", "--html", str(page))
    for text in (runs.said(0).rpartition("FAILED")[2], *shown, page.read_text()):
        words = " ".join(text.split())
        assert why in words and "restart 1 of" not in words, text
    assert "failed" in _typed_at_home(runs, "jobs")
