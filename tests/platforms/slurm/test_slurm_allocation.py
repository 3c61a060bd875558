"""What Slurm's variables say of a job: its nodes, this one, and how the command was started."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.platforms.slurm.text.allocation import Allocation, allocation
from holdfast.platforms.slurm.text.hostlist import MOST_HOSTS, counts_in, hosts_in

BATCH = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURMD_NODENAME": "n1",
    "SLURM_TASKS_PER_NODE": "4(x3)",
    "SLURM_JOB_NAME": "train",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURM_TOPOLOGY_ADDR": "n1",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
}
STEP_VARIABLES = {
    **BATCH,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n3",
}


def of(env: dict[str, str], **more: str) -> Allocation:
    found = allocation({**env, **more})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[001-003,7],m5", ["n001", "n002", "n003", "n7", "m5"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("gpu-[1,3]-ib.cluster", ["gpu-1-ib.cluster", "gpu-3-ib.cluster"]),
        ("b,a", ["b", "a"]),
        ("", []),
    ],
)
def test_a_list_of_hosts_is_written_out_in_its_order(text: str, hosts: list[str]) -> None:
    assert list(hosts_in(text)) == hosts


@pytest.mark.parametrize("text", ["n[1-3", "n1-3]", "n[[1-2]-3]", "n[3-1]", "n[a-b]", "n[1-]", f"n[0-{MOST_HOSTS}]"])
def test_a_list_that_slurm_does_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hosts_in(text)


def test_numbers_of_nodes_are_written_out() -> None:
    assert counts_in("2(x3),1") == (2, 2, 2, 1)
    with pytest.raises(ValueError, match="expected NUMBER"):
        counts_in("many")


def test_outside_of_slurm_there_is_no_allocation() -> None:
    assert allocation({}) is None
    assert allocation({"SLURM_JOB_ID": "12"}) is None


def test_a_worker_of_holdfast_has_no_allocation_of_its_own() -> None:
    """What a worker starts belongs to the worker's node."""
    assert allocation({**STEP_VARIABLES, "HOLDFAST_ATTEMPT": "1"}) is None


def test_a_batch_script_is_no_step() -> None:
    found = of(BATCH)
    assert (found.job, found.node, found.nodes, found.step) == ("12", "n1", ("n1", "n2", "n3"), None)
    assert (found.gpus, found.cpus, found.restarts, found.own_nodes) == (2, 8, 0, found.nodes)
    assert of(BATCH, SLURM_STEP_ID="4294967290").step is None, "the shell of salloc in a step of its own"


@pytest.mark.parametrize(
    ("more", "each"),
    [
        ({}, 0),
        ({"SLURM_GPUS": "6"}, 2),
        ({"SLURM_GPUS": "a100:6"}, 2),
        ({"SLURM_GPUS": "4"}, 0),
        ({"SLURM_GPUS": "a100:4,h100:2"}, 0),
        ({"SLURM_GPUS": "6", "SLURM_GPUS_PER_NODE": "2"}, 0),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "6", "SLURM_TASKS_PER_NODE": "2(x3)"}, 2),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2,1(x2)"}, 0),
    ],
    ids=str,
)
def test_gpus_that_are_not_counted_by_the_node_are_known_where_all_nodes_have_as_many(
    more: dict[str, str], each: int
) -> None:
    assert of(BATCH, **more).even_gpus == each


@pytest.mark.parametrize(
    ("more", "all_"),
    [
        ({}, 0),
        ({"SLURM_GPUS": "6"}, 0),
        ({"SLURM_GPUS": "a100:4"}, 4),
        ({"SLURM_GPUS": "5", "SLURM_GPUS_PER_NODE": "2"}, 0),
        ({"SLURM_GPUS": "a100:3,h100:2"}, 0),
    ],
    ids=str,
)
def test_gpus_that_slurm_has_spread_unevenly_are_known(more: dict[str, str], all_: int) -> None:
    assert of(BATCH, **more).uneven_gpus == all_


def test_a_task_of_a_step_knows_its_place() -> None:
    found = of(STEP_VARIABLES)
    assert found.step is not None
    assert (found.step.rank, found.step.tasks, found.step.terminal) == (1, 2, False)
    assert found.own_nodes == ("n2", "n3")
    assert of(STEP_VARIABLES, SLURM_PTY_PORT="4711").step.terminal  # type: ignore[union-attr]  # it is a step


def test_a_list_that_cannot_be_read_names_its_variable() -> None:
    with pytest.raises(ValueError, match=r"SLURM_JOB_NODELIST=n\[1: a `\[` without its `\]`"):
        allocation({**BATCH, "SLURM_JOB_NODELIST": "n[1"})


@pytest.mark.parametrize(
    ("more", "tasks"),
    [
        ({}, 0),
        ({"SLURM_NTASKS": "12"}, 4),
        ({"SLURM_NTASKS_PER_NODE": "4"}, 4),
        ({"SLURM_NTASKS": "9", "SLURM_TASKS_PER_NODE": "4(x2),1"}, 0),
    ],
)
def test_tasks_count_where_a_user_has_asked_for_them(more: dict[str, str], tasks: int) -> None:
    """Without --ntasks Slurm fills SLURM_TASKS_PER_NODE from the cores."""
    assert of(BATCH, **more).tasks_per_node == tasks


@pytest.mark.parametrize(
    ("address", "pattern", "labels"),
    [
        ("n1", "node", ()),
        ("s0.s4.n1", "switch.switch.node", ("s0", "s4")),
        ("b3.n1", "block.node", ("b3",)),
        ("gpu.site.org", "node", ()),
    ],
)
def test_the_topology_names_what_is_above_a_node(address: str, pattern: str, labels: tuple[str, ...]) -> None:
    assert of(BATCH, SLURM_TOPOLOGY_ADDR=address, SLURM_TOPOLOGY_ADDR_PATTERN=pattern).labels == labels


def test_an_array_is_named_as_squeue_names_it() -> None:
    more: dict[str, Any] = {"SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}
    found = of(BATCH, **more)
    assert (found.shown, found.job, found.restarts) == ("10_3", "12", 2)
    assert of(BATCH).shown == "12"


def test_a_heterogeneous_job_says_how_many_components_it_has() -> None:
    assert (of(BATCH).components, of(BATCH, SLURM_HET_SIZE="2").components) == (1, 2)
