"""OpenPAI's variables: what a worker learns of its job, itself and its peers."""

from __future__ import annotations

import os
import subprocess

import pytest

from holdfast.model.job_spec import Completion, JobSpec, Placement, Resources, Role
from holdfast.model.peer_addresses import gather, ports_needed, tasks_of
from holdfast.model.runtime_plan import Daemon, RuntimePlan, Ssh
from holdfast.runtime.openpai_variables import MOST_BYTES, PeerNames, file_text, named_in, peer_names, variables

TRUE = ("true",)


def seats_on(nodes: dict[str, list[str]], roles: tuple[str, ...]) -> tuple[Placement, ...]:
    """`nodes`: which roles' tasks each has, in order."""
    places = [(node, local, role) for node, of_node in nodes.items() for local, role in enumerate(of_node)]
    placements: list[Placement] = []
    for role in roles:
        mine = [(node, local) for node, local, name in places if name == role]
        for index, (node, local) in enumerate(mine):
            placements.append(Placement(rank=len(placements), role=role, role_rank=index, node=node, local_rank=local))
    return tuple(placements)


def names_of_peers(
    spec: JobSpec, placements: tuple[Placement, ...], reserved: dict[str, tuple[int, ...]], **hosts: str
) -> PeerNames:
    peers = gather(spec, placements, hosts, reserved)
    assert peers is not None
    return peer_names(peers)


#: Those of OpenPAI's own example: two roles of one task each, on two nodes.
PORTS = {
    "one": (29877, 22353, 29076, 31903, 33486, 35953, 39080, 30643),
    "two": (32153, 32154, 20966, 21891, 32584, 22819),
}


def example() -> tuple[JobSpec, tuple[Placement, ...]]:
    spec = JobSpec(
        name="testuser_7c61921e",
        user="testuser",
        roles=(
            Role(
                name="taskrole",
                count=1,
                command=TRUE,
                ports={"tcp": 3, "udp": 3, "ssh": 1, "http": 1},
                resources=Resources(devices=1, cpus=4, memory_bytes=8192 << 20),
            ),
            Role(
                name="taskrole1",
                count=1,
                command=TRUE,
                ports={"udp": 2, "mpi": 2, "ssh": 1, "http": 1},
                completion=Completion(min_failed=None, min_succeeded=1),
            ),
        ),
    )
    return spec, seats_on({"one": ["taskrole"], "two": ["taskrole1"]}, ("taskrole", "taskrole1"))


def test_openpais_own_example_gets_the_same_values() -> None:
    spec, placements = example()
    names = names_of_peers(spec, placements, PORTS, one="10.151.40.108", two="10.151.40.109")
    found = variables(spec, placements[0], names, user="root", attempt=1)
    assert {
        "PAI_PORT_LIST_taskrole_0_tcp": "29877,22353,29076",
        "PAI_PORT_LIST_taskrole_0_udp": "31903,33486,35953",
        "PAI_CONTAINER_HOST_PORT_LIST": "tcp:29877,22353,29076;udp:31903,33486,35953;ssh:39080;http:30643;",
        "PAI_taskrole1_0_mpi_PORT": "20966,21891",
        "PAI_CONTAINER_HOST_http_PORT_LIST": "30643",
        "PAI_CONTAINER_SSH_PORT": "39080",
        "PAI_CURRENT_CONTAINER_IP": "10.151.40.108",
        "PAI_CURRENT_CONTAINER_PORT": "30643",
        "PAI_HOST_IP_taskrole1_0": "10.151.40.109",
        "PAI_TASK_ROLE_taskrole1_HOST_LIST": "10.151.40.109:22819",
        "PAI_TASK_ROLE_INSTANCES": "taskrole:0,taskrole1:0",
        "PAI_USER_NAME": "testuser",
        "PAI_FRAMEWORK_NAME": "testuser~testuser_7c61921e",
        "PAI_TASK_ROLE_COUNT": "2",
        "PAI_TASK_ROLE_LIST": "taskrole,taskrole1",
        "PAI_TASK_ROLE_TASK_COUNT_taskrole": "1",
        "PAI_RESOURCE_taskrole": "1,4,8192,0",
        "PAI_MIN_FAILED_TASK_COUNT_taskrole": "1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_taskrole": "-1",
        "PAI_MIN_FAILED_TASK_COUNT_taskrole1": "-1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_taskrole1": "1",
        "PAI_JOB_TASK_COUNT": "2",
        "PAI_CURRENT_TASK_ROLE_NAME": "taskrole",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0",
        "PAI_TASK_INDEX": "0",
    }.items() <= found.items()


def test_the_hosts_of_a_role_are_listed_by_index_with_the_port_of_http() -> None:
    spec = JobSpec(
        name="cifar",
        roles=(
            Role(name="ps_server", count=2, command=TRUE, ports={"ssh": 1, "http": 1}),
            Role(name="worker", count=2, command=TRUE, ports={"http": 1}),
        ),
    )
    placements = seats_on({"a": ["ps_server", "worker"], "b": ["ps_server", "worker"]}, ("ps_server", "worker"))
    assert ports_needed(spec, placements) == {"a": 3, "b": 3}
    names = names_of_peers(spec, placements, {"a": (1, 2, 3), "b": (4, 5, 6)}, a="10.0.0.1", b="10.0.0.2")
    assert names.whole["PAI_TASK_ROLE_ps_server_HOST_LIST"] == "10.0.0.1:2,10.0.0.2:5"
    assert names.whole["PAI_TASK_ROLE_worker_HOST_LIST"] == "10.0.0.1:3,10.0.0.2:6"


def test_a_role_whose_name_is_anothers_with_one_letter_more_keeps_its_own() -> None:
    spec = JobSpec(
        name="j",
        roles=(Role(name="taskrole_1", count=1, command=TRUE), Role(name="taskrole1", count=1, command=TRUE)),
    )
    placements = seats_on({"a": ["taskrole_1"], "b": ["taskrole1"]}, ("taskrole_1", "taskrole1"))
    names = names_of_peers(spec, placements, {}, a="1.1.1.1", b="2.2.2.2").whole
    assert (names["PAI_HOST_IP_taskrole_1_0"], names["PAI_HOST_IP_taskrole1_0"]) == ("1.1.1.1", "2.2.2.2")


def test_tasks_that_alternate_between_nodes_have_ports_of_their_own_node() -> None:
    spec = JobSpec(name="j", roles=(Role(name="w", count=3, command=TRUE, ports={"p": 1}),))
    placements = tuple(
        Placement(rank=rank, role="w", role_rank=rank, node=node, local_rank=0)
        for rank, node in enumerate(["a", "b", "a"])
    )
    peers = gather(spec, placements, {}, {"a": (1, 2), "b": (9,)})
    assert peers is not None
    assert [task.ports["p"] for task in tasks_of(peers)] == [(1,), (9,), (2,)]
    assert peers.tasks == {"w": (0, 1, 1, 1, 0, 1)}


def test_a_node_that_has_reserved_too_few_ports_has_no_peers_yet() -> None:
    spec, placements = example()
    assert gather(spec, placements, {}, {**PORTS, "two": PORTS["two"][:-1]}) is None


def test_every_task_of_a_node_has_the_port_of_its_sshd() -> None:
    roles = (Role(name="w", count=2, command=TRUE, ports={"http": 1}),)
    spec = JobSpec(name="j", roles=roles, runtime=RuntimePlan(ssh=Ssh()))
    placements = seats_on({"a": ["w", "w"]}, ("w",))
    assert ports_needed(spec, placements) == {"a": 3}
    found = variables(spec, placements[1], names_of_peers(spec, placements, {"a": (1, 2, 3)}), user="u", attempt=1)
    assert (found["PAI_w_0_ssh_PORT"], found["PAI_w_1_ssh_PORT"], found["PAI_CONTAINER_SSH_PORT"]) == ("3", "3", "3")
    assert found["PAI_CURRENT_CONTAINER_PORT"] == "2"
    fixed = JobSpec(name="j", roles=roles, runtime=RuntimePlan(ssh=Ssh(port=2222)))
    assert ports_needed(fixed, placements) == {"a": 2}
    assert names_of_peers(fixed, placements, {"a": (1, 2)}).whole["PAI_w_0_ssh_PORT"] == "2222"


@pytest.mark.parametrize(
    ("job", "answer"),
    [
        (JobSpec(name="j", roles=(Role(name="w", count=1, command=("python", "t.py")),)), False),
        (JobSpec(name="j", roles=(Role(name="w", count=1, command=("sh", "-c", "echo $PAI_JOB_NAME")),)), True),
        (JobSpec(name="j", roles=(Role(name="w", count=1, command=TRUE, ports={"a": 1}),)), True),
        (JobSpec(name="j", pai=False, roles=(Role(name="w", count=1, command=TRUE, ports={"a": 1}),)), False),
        (JobSpec(name="j", pai=True, roles=(Role(name="w", count=1, command=TRUE),)), True),
        (
            JobSpec(
                name="j",
                roles=(Role(name="w", count=1, command=TRUE),),
                runtime=RuntimePlan(daemons=(Daemon(name="d", command=("x", "${PAI_HOST_IP_w_0}")),)),
            ),
            True,
        ),
    ],
)
def test_who_gets_the_variables(job: JobSpec, answer: bool) -> None:
    assert job.tells_peers is answer


def large(count: int) -> tuple[JobSpec, tuple[Placement, ...], PeerNames]:
    spec = JobSpec(name="j", roles=(Role(name="worker", count=count, command=TRUE, ports={"http": 1}),))
    placements = tuple(
        Placement(rank=rank, role="worker", role_rank=rank, node=f"n{rank // 8}", local_rank=rank % 8)
        for rank in range(count)
    )
    nodes = dict.fromkeys(placement.node for placement in placements)
    hosts = {node: f"10.{200 + number // 250}.110.{number % 250}" for number, node in enumerate(nodes)}
    reserved = {node: tuple(range(40000, 40008)) for node in nodes}
    return spec, placements, names_of_peers(spec, placements, reserved, **hosts)


@pytest.mark.real
def test_an_environment_among_ten_thousand_ranks_can_still_start_a_process() -> None:
    spec, placements, names = large(10_000)
    assert names.cut
    found = variables(spec, placements[9_999], names, user="u", attempt=1)
    assert sum(len(name) + len(value) + 2 for name, value in found.items()) < MOST_BYTES
    assert found["PAI_HOST_IP_worker_0"] == "10.200.110.0"
    assert found["PAI_HOST_IP_worker_9999"] == found["PAI_CONTAINER_HOST_IP"] == names.whole["PAI_HOST_IP_worker_9999"]
    assert found["PAI_TASK_ROLE_TASK_COUNT_worker"] == "10000"
    assert "PAI_HOST_IP_worker_1" not in found
    assert "PAI_HOST_IP_worker_1=10.200.110.0\n" in file_text(names)
    subprocess.run(["/bin/true"], env={**os.environ, **found}, check=True, timeout=60)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={**os.environ, **names.whole}, check=True, timeout=60)


def test_a_gang_of_some_hundred_has_all_of_them_in_its_environment() -> None:
    assert not large(800)[2].cut


def test_what_a_command_names_is_in_its_environment_however_large_the_gang_is() -> None:
    names = large(2000)[2]
    assert names.cut
    texts = ["tcp://$PAI_HOST_IP_worker_77:${PAI_PORT_LIST_worker_78_http}", "$PAI_HOST_IP_worker_9.log", "$PAI_NONE"]
    found = {"PAI_HOST_IP_worker_77", "PAI_PORT_LIST_worker_78_http", "PAI_HOST_IP_worker_9"}
    assert named_in(names, texts).keys() == found
