"""A job over several nodes, with real processes: what workers see, and which code and report each node ends with."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from several_runs import Runs, runs

__all__ = ["runs"]  # fixtures

pytestmark = pytest.mark.real


def test_workers_of_three_nodes_are_one_gang_and_a_node_has_as_many_as_it_says(runs: Runs) -> None:
    runs.start("--nproc-per-node", "1")
    runs.wait_for(0, "logs in")
    runs.start("--nproc-per-node", "2")
    runs.start("--nproc-per-node", "2")
    workers = runs.workers(1, 5)
    runs.end()
    assert runs.codes() == [0, 0, 0]
    assert [worker["LOCAL_RANK"] for worker in workers] == ["0", "0", "1", "0", "1"]
    assert [worker["GROUP_RANK"] for worker in workers] == ["0", "1", "1", "2", "2"]
    assert [worker["LOCAL_WORLD_SIZE"] for worker in workers] == ["1", "2", "2", "2", "2"]
    for name, value in {"WORLD_SIZE": "5", "GROUP_WORLD_SIZE": "3", "ROLE_WORLD_SIZE": "5"}.items():
        assert {worker[name] for worker in workers} == {value}
    assert {worker["MASTER_ADDR"] for worker in workers} == {"127.0.0.1"}
    assert len({worker["MASTER_PORT"] for worker in workers}) == 1
    assert len({worker["TORCHELASTIC_RUN_ID"] for worker in workers}) == 1


def test_each_node_shows_its_own_workers_output_and_writes_the_same_report(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    runs.end()
    assert runs.codes() == [0, 0]
    assert ["[worker-0] trainer of rank 0" in runs.said(number) for number in (0, 1)] == [True, False]
    assert ["[worker-1] trainer of rank 1" in runs.said(number) for number in (0, 1)] == [False, True]
    assert runs.report(0) == runs.report(1)
    assert runs.report()["outcome"] == "succeeded"


def test_a_rank_that_dies_is_named_with_its_node_and_all_nodes_start_again(runs: Runs) -> None:
    runs.start_all(3)
    runs.workers(1, 3)
    (runs.out / "fail-1-2").touch()
    again = runs.workers(2, 3)
    runs.end()
    assert runs.codes() == [0, 0, 0]
    assert len({worker["MASTER_PORT"] for worker in again}) == 1
    first, _ = runs.report(1)["attempts"]
    assert first["report"]["phrase"] == "UserException"
    assert first["report"]["first"]["rank"] == 2
    assert first["decision"]["charged"]


def test_all_nodes_end_with_the_final_code_and_the_owner_s_report(runs: Runs) -> None:
    runs.start_all(2, "--max-restarts", "0")
    runs.workers(1, 2)
    (runs.out / "fail-1-1").touch()
    code, other = runs.codes()
    assert code == other == runs.report(1)["code"] != 0
    assert runs.report(0) == runs.report(1)
    assert "the whole report is on" in runs.said(1)


def test_a_node_that_joins_late_is_waited_for(runs: Runs) -> None:
    runs.start(nnodes="2")
    runs.wait_for(0, "1 of 2 nodes")
    runs.start(nnodes="2")
    runs.workers(1, 2)
    runs.end()
    assert runs.codes() == [0, 0]


def test_a_signal_to_one_node_ends_the_job_and_the_report_names_the_node(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    runs.runs[1].send_signal(signal.SIGTERM)
    code, other = runs.codes()
    assert code == other != 0
    assert runs.report()["outcome"] == "stopped"
    assert "holdfast got SIGTERM" in runs.report()["reason"]
    assert "@127.0.0.1" in runs.report()["reason"], "the second run on a machine has its address in its name"


def test_a_signal_to_the_owner_s_node_ends_the_job_on_all(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    runs.runs[0].send_signal(signal.SIGINT)
    code, other = runs.codes()
    assert code == other != 0
    assert runs.report(1)["outcome"] == "stopped"


def test_with_json_each_node_prints_the_report_and_nothing_else_on_its_standard_output(runs: Runs) -> None:
    runs.start_all(2, "--json")
    runs.workers(1, 2)
    runs.end()
    assert runs.codes() == [0, 0]
    for number in (0, 1):
        assert "holdfast.report/1" in runs.said(number)


def test_a_node_with_another_key_is_refused_and_the_owner_goes_on(runs: Runs) -> None:
    runs.start(nnodes="2")
    runs.wait_for(0, "1 of 2 nodes")
    other = runs.start(key=runs.new_key("other"), nnodes="2")
    assert runs.runs[other].wait(60) == 2
    assert "key" in runs.said(other)
    runs.start(nnodes="2")
    runs.workers(1, 2)
    runs.end()
    assert [run.wait(60) for run in (runs.runs[0], runs.runs[2])] == [0, 0]


@pytest.mark.parametrize(
    ("options", "own_key", "words"),
    [((), True, "it has another job key"), (("--rdzv-id", "other"), False, "another job")],
    ids=["another key", "another job"],
)
def test_a_node_that_was_turned_away_is_in_the_owners_report(
    runs: Runs, options: tuple[str, ...], own_key: bool, words: str
) -> None:
    runs.start("--join-timeout", "12", nnodes="2")
    runs.wait_for(0, "1 of 2 nodes")
    other = runs.start(*options, key=runs.new_key("other") if own_key else None, nnodes="2")
    assert runs.runs[other].wait(60) == 2
    assert runs.runs[0].wait(60) == 251
    report = runs.report()
    assert report["phrase"] == "GangStartTimeout"
    assert "turned away: a node at 127.0.0.1: " in report["reason"] and words in report["reason"], report["reason"]
    assert report["solution"].startswith("Try: "), report["solution"]


@pytest.mark.parametrize(
    ("options", "nnodes", "words"),
    [(("--rdzv-id", "other"), "2", "another job"), ((), "3", "--nnodes 2")],
    ids=["another job", "another number of nodes"],
)
def test_a_node_of_something_else_is_refused(runs: Runs, options: tuple[str, ...], nnodes: str, words: str) -> None:
    runs.start(nnodes="2")
    runs.wait_for(0, "1 of 2 nodes")
    other = runs.start(*options, nnodes=nnodes)
    assert runs.runs[other].wait(60) == 2
    assert words in runs.said(other)
    assert runs.runs[0].poll() is None


def test_an_endpoint_where_no_owner_answers_is_said_soon_and_ends_with_251(runs: Runs) -> None:
    number = runs.start("--join-timeout", "4", "--rdzv-conf", "is_host=0", nnodes="2")
    runs.wait_for(number, "no owner answers")
    assert runs.codes() == [251]
    assert f"nc -vz 127.0.0.1 {runs.port}" in runs.said(number)
    assert runs.report(number)["phrase"] == "GangStartTimeout"


def test_a_gang_that_does_not_come_up_in_time_ends_with_251_and_says_who_came(runs: Runs) -> None:
    runs.start("--join-timeout", "8", nnodes="2")
    assert runs.codes() == [251]
    assert runs.report()["phrase"] == "GangStartTimeout"
    assert "1 of 2 nodes joined" in runs.report()["reason"]


def test_a_node_that_is_asked_three_times_to_end_leaves_by_itself(runs: Runs) -> None:
    runs.start_all(2, "--grace", "60")
    runs.workers(1, 2)
    os.kill(runs.process(0, "holdfast-owner"), signal.SIGSTOP)
    for number in range(3):
        runs.runs[1].send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert number == 2 or runs.runs[1].poll() is None
    assert runs.runs[1].wait(30) == 128 + signal.SIGTERM, runs.said(1)


SUMS_WITH_TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), flush=True)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and dist.get_rank() == 1:
    raise ValueError("no such shard: 17")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_an_unmodified_torch_script_runs_on_two_nodes_and_again_after_a_failure(runs: Runs) -> None:
    runs.trainer.write_text(SUMS_WITH_TORCH)
    runs.start_all(2)
    assert runs.codes() == [0, 0]
    assert runs.said(0).count("sum 2") + runs.said(1).count("sum 2") == 4
    first, _ = runs.report()["attempts"]
    assert (first["report"]["phrase"], first["report"]["first"]["rank"]) == ("UserException", 1)


def test_nodes_that_share_a_home_share_no_file(runs: Runs) -> None:
    runs.one_home = True
    runs.start_all(3)
    workers = runs.workers(1, 3)
    runs.end()
    assert runs.codes() == [0, 0, 0]
    logs = [Path(worker["HOLDFAST_PROGRESS"]).with_name("stdout.log") for worker in workers]
    assert [log.read_text() for log in logs] == [f"trainer of rank {rank}\n" for rank in range(3)]
    (job,) = (runs.place / "home" / "jobs").iterdir()
    assert len(list((job / "nodes").iterdir())) == 3
    assert "1 worker on each of 3 nodes" in runs.said(0)


def test_the_job_is_stopped_through_an_owner_that_has_come_back(runs: Runs) -> None:
    runs.start_all(2)
    runs.workers(1, 2)
    owner = runs.process(0, "holdfast-owner")
    runs.kill(owner)
    runs.process(0, "holdfast-owner", other_than=owner)
    job = runs.worker(1, 0)["HOLDFAST_JOB"]
    runs.wait(lambda: runs.ask(0, "stop", job, "--reason", "no longer wanted") == 0, "holdfast stop to work")
    assert len(set(runs.codes())) == 1
    assert "no longer wanted" in runs.report(1)["reason"]
