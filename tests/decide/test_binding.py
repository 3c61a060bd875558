"""What workers have to themselves: which devices and CPUs they get, and that they really have no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.act.worker_environment import worker_environment
from holdfast.decide.device_binding import bindings, lack
from holdfast.decide.placement import place, users
from holdfast.model.cpu_lists import cores_of, cpu_list, cpus_of, domain_of
from holdfast.model.decisions import Bound
from holdfast.model.job_spec import JobSpec, NodeInfo, Placement, Resources, Role, shapes
from holdfast.observe.cpu_layout import domains, near_devices, taken_by_others
from holdfast.report.text_report import bound_in_words

GPUS = tuple(f"gpu{number}" for number in range(8))
TWO_DOMAINS = ("0+8,1+9,2+10,3+11", "4+12,5+13,6+14,7+15")


def _spec(*roles: tuple[int, Resources], binds: bool = True) -> JobSpec:
    return JobSpec(
        name="j",
        roles=tuple(
            Role(name=f"r{i}", count=count, command=("x",), resources=asked) for i, (count, asked) in enumerate(roles)
        ),
        binds=binds,
    )


def _placements(spec: JobSpec, *nodes: NodeInfo, avoid: tuple[str, ...] = ()) -> tuple[Placement, ...]:
    placements = place(spec, nodes, avoid)
    assert placements is not None
    return placements


# ---------------------------------------------------------------------------------------------------------- devices


def test_each_worker_has_devices_of_its_own() -> None:
    node = NodeInfo(name="n", slots=8, devices=GPUS)
    placements = _placements(
        _spec((2, Resources(devices=3)), (1, Resources(devices=0)), (1, Resources(devices=1))), node
    )
    assert [placement.visible for placement in placements] == [GPUS[:3], GPUS[3:6], (), GPUS[6:7]]
    assert [placement.device for placement in placements] == ["", "", "", "gpu6"]
    assert all(placement.bound for placement in placements)
    assert (users("gpu4", placements, (node,)), users("gpu7", placements, (node,))) == ((1,), ())


def test_devices_that_are_left_out_are_given_to_no_worker() -> None:
    node = NodeInfo(name="n", slots=8, devices=GPUS)
    placements = _placements(_spec((2, Resources(devices=3))), node, avoid=("gpu1", "gpu4"))
    assert [placement.visible for placement in placements] == [("gpu0", "gpu2", "gpu3"), ("gpu5", "gpu6", "gpu7")]
    assert place(_spec((2, Resources(devices=4))), (node,), ("gpu1",)) is None


def test_a_worker_goes_to_the_next_node_that_has_enough_left() -> None:
    nodes = (NodeInfo(name="a", slots=4, devices=GPUS[:3]), NodeInfo(name="b", slots=4, devices=GPUS[:4]))
    placements = _placements(_spec((3, Resources(devices=2)), (1, Resources(devices=1))), *nodes)
    assert [(placement.node, placement.visible, placement.local_rank) for placement in placements] == [
        ("a", GPUS[:2], 0), ("b", GPUS[:2], 0), ("b", GPUS[2:4], 1), ("a", GPUS[2:3], 1),
    ]  # fmt: skip


def test_a_role_that_asks_for_nothing_sees_all() -> None:
    node = NodeInfo(name="n", slots=2, devices=GPUS[:2])
    bound, free = _placements(_spec((1, Resources(devices=1)), (1, Resources())), node)
    assert (bound.bound, free.bound, free.visible) == (True, False, ())


def test_nothing_is_bound_where_the_user_says_so() -> None:
    node = NodeInfo(name="n", slots=2, devices=GPUS[:1])
    placements = _placements(_spec((2, Resources(devices=4, cpus=99)), binds=False), node)
    assert {(placement.bound, placement.cpus, placement.visible) for placement in placements} == {(False, "", ())}


def _worker_environment(
    placement: Placement, spec: JobSpec, base: dict[str, str], devices: tuple[str, ...] = ()
) -> dict[str, str]:
    return worker_environment(
        base, spec, placement, shapes([placement])[placement.node], job_id="i", run_id="i", attempt=1, home=Path("h"),
        directory=Path("d"), master_addr="a", master_port=1, agent_store=False, devices=devices,
    )  # fmt: skip


def test_devices_are_told_by_the_drivers_variables() -> None:
    spec = _spec((2, Resources(devices=2)))
    base = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    _, placement = _placements(spec, NodeInfo(name="n", slots=2, devices=GPUS[4:]))
    env = _worker_environment(placement, spec, base, GPUS[4:])
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"], env["RANK"]) == ("6,7", "0", "1")
    # The files of a container's devices keep the machine's numbers.
    assert _worker_environment(placement, spec, {}, GPUS[4:])["CUDA_VISIBLE_DEVICES"] == "2,3"
    npus = NodeInfo(name="n", slots=2, devices=("npu0", "npu1", "npu2", "npu3"))
    _, placement = _placements(spec, npus)
    assert _worker_environment(placement, spec, {}, npus.devices)["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"


def test_a_worker_that_asks_for_no_device_sees_none() -> None:
    spec = _spec((1, Resources(devices=0)))
    [placement] = _placements(spec, NodeInfo(name="n", slots=1, devices=GPUS))
    env = _worker_environment(placement, spec, {"ASCEND_RT_VISIBLE_DEVICES": "0"}, GPUS)
    assert (env["CUDA_VISIBLE_DEVICES"], env["ASCEND_RT_VISIBLE_DEVICES"]) == ("", "")


def test_threads_are_as_many_as_cpus_unless_the_user_has_set_them() -> None:
    spec = _spec((1, Resources(cpus=2.5)))
    [placement] = _placements(spec, NodeInfo(name="n", slots=1))
    assert _worker_environment(placement, spec, {})["OMP_NUM_THREADS"] == "3"
    assert _worker_environment(placement, spec, {"OMP_NUM_THREADS": "9"})["OMP_NUM_THREADS"] == "9"


# ------------------------------------------------------------------------------------------------------------- CPUs


def test_whole_cores_of_one_memory_domain_come_first() -> None:
    node = NodeInfo(name="n", slots=8, cpus=TWO_DOMAINS)
    assert [placement.cpus for placement in _placements(_spec((3, Resources(cpus=4))), node)] == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
    ]
    # Three of the four threads of two cores: the fourth is the last to be given away.
    assert [placement.cpus for placement in _placements(_spec((2, Resources(cpus=3))), node)] == ["0-1,8", "2-3,10"]


def test_cpus_are_near_the_devices() -> None:
    near = {gpu: number // 4 for number, gpu in enumerate(GPUS)}
    node = NodeInfo(name="n", slots=8, devices=GPUS, cpus=TWO_DOMAINS, near=near)
    placements = _placements(_spec((2, Resources(devices=4, cpus=2))), node)
    assert [placement.cpus for placement in placements] == ["0,8", "4,12"]


def test_a_part_of_a_cpu_is_none_of_ones_own() -> None:
    placements = _placements(_spec((3, Resources(cpus=0.5))), NodeInfo(name="n", slots=3, cpus=("0,1",)))
    assert [placement.cpus for placement in placements] == ["", "", ""]


def test_with_a_quota_cpus_are_counted_and_not_bound() -> None:
    node = NodeInfo(name="n", slots=4, cores=4)
    assert [placement.cpus for placement in _placements(_spec((2, Resources(cpus=2))), node)] == ["", ""]
    assert place(_spec((3, Resources(cpus=2))), (node,), ()) is None


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=4))
def test_no_cpu_has_two_workers_and_no_worker_too_few(asked: list[tuple[int, int]]) -> None:
    node = NodeInfo(name="n", slots=99, cpus=TWO_DOMAINS)
    spec = _spec(*((count, Resources(cpus=cpus)) for count, cpus in asked))
    placements = place(spec, (node,), ())
    wanted = [cpus for count, cpus in asked for _ in range(count)]
    assert (placements is None) == (sum(wanted) > 16)
    found = [cpus_of(placement.cpus) for placement in placements or ()]
    assert placements is None or [len(cpus) for cpus in found] == wanted
    assert max(Counter(cpu for cpus in found for cpu in cpus).values(), default=1) == 1


def test_what_is_asked_and_what_is_there_in_words() -> None:
    spec = _spec((2, Resources(cpus=4, devices=1)), (1, Resources(devices=2)), (1, Resources()))
    node = NodeInfo(name="n1", slots=4, devices=GPUS[:1], cpus=("0,1",))
    assert lack(spec, (node,)) == (
        "each of the 2 workers of r0 needs 4 CPUs and 1 device; the worker of r1 needs 2 devices; "
        "n1 has 2 CPUs and 1 device"
    )
    assert lack(_spec((1, Resources())), (node,)) == ""


def test_a_record_says_who_had_what() -> None:
    spec = _spec((1, Resources(devices=1, cpus=2)), (1, Resources(devices=0)), (1, Resources()))
    found = bindings(_placements(spec, NodeInfo(name="n", slots=3, devices=GPUS, cpus=("0,1,2",))))
    assert found == (
        Bound(rank=0, role="r0", node="n", cpus="0-1", devices=("gpu0",)),
        Bound(rank=1, role="r1", node="n", devices=()),
    )
    assert bound_in_words(found) == "rank 0 to CPUs 0-1 and gpu0; rank 1 to no device"


# ------------------------------------------------------------------------------------------------------- the machine


def test_lists_of_cpus() -> None:
    assert cpus_of("0-2,5\n") == {0, 1, 2, 5} and cpu_list([5, 0, 2, 1]) == "0-2,5" and cpus_of("") == set()
    assert cores_of("0+8,1") == [(0, 8), (1,)] and domain_of([(0, 8), (1,)]) == "0+8,1"


def _write_file(root: Path, place: str, text: str) -> None:
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).write_text(text)


def test_the_kernel_says_which_cpus_belong_together(tmp_path: Path) -> None:
    for number, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        _write_file(tmp_path, f"sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")
    for cpu in range(8):
        _write_file(
            tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}\n"
        )
    assert domains(range(8), tmp_path) == {0: "0+4,1+5", 1: "2+6,3+7"}
    assert domains({1, 2, 6}, tmp_path, taken={2}) == {0: "1", 1: "2+6"}
    assert domains(range(8), tmp_path, taken={0}) == {0: "1+5,0+4", 1: "2+6,3+7"}
    assert domains({0, 1}, tmp_path / "nothing") == {0: "0,1"}


def test_the_driver_says_where_its_gpus_are(tmp_path: Path) -> None:
    _write_file(tmp_path, "proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: x\nDevice Minor:  1\n")
    _write_file(tmp_path, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n")
    assert near_devices(tmp_path) == {"gpu1": 1}
    _write_file(tmp_path, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1\n")
    assert near_devices(tmp_path) == {}


def test_cpus_that_other_jobs_are_bound_to_are_known(tmp_path: Path) -> None:
    for pid, lines in enumerate(
        (
            "VmSize:\t5 kB\nCpus_allowed_list:\t0-1\n",
            "VmSize:\t5 kB\nCpus_allowed_list:\t0-7\n",
            "Cpus_allowed_list:\t3\n",
        )
    ):
        _write_file(tmp_path, f"proc/{pid + 1}/status", f"Name:\tx\n{lines}")
    assert taken_by_others(range(8), tmp_path) == {0, 1}


# ------------------------------------------------------------------------------------------------------- for real

SHOWS_BINDING = """\
import json, os, sys
said = {"cpus": sorted(os.sched_getaffinity(0)), "told": os.environ.get("HOLDFAST_CPUS"),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "omp": os.environ["OMP_NUM_THREADS"]}
open(os.environ["RANK"] + ".json", "w").write(json.dumps(said))
"""


def _run_bound(tmp_path: Path, resources: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "show.py").write_text(SHOWS_BINDING)
    (tmp_path / "job.yaml").write_text(
        f"name: x\nroles: {{w: {{count: 2, command: [{sys.executable}, show.py], resources: {resources}}}}}\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--no-checks", "--job", "job.yaml", "--report", "r.json", *words],
        cwd=tmp_path, env={**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), **env}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


def _binding_shown(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.real
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared out")
@pytest.mark.parametrize("words", [(), ("--warm",)])
def test_workers_have_cpus_and_devices_to_themselves(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = _run_bound(tmp_path, "{cpus: 1, devices: 2}", *words, CUDA_VISIBLE_DEVICES="1,3,5,7")
    assert done.returncode == 0, done.stderr
    first, second = _binding_shown(tmp_path)
    assert (first["gpus"], second["gpus"]) == ("1,3", "5,7")
    assert first["cpus"] != second["cpus"]
    assert [said["cpus"] for said in (first, second)] == [[int(str(said["told"]))] for said in (first, second)]
    [attempt] = json.loads((tmp_path / "r.json").read_text())["attempts"]
    assert [(one["rank"], one["devices"]) for one in attempt["bound"]] == [(0, ["gpu1", "gpu3"]), (1, ["gpu5", "gpu7"])]
    assert [one["cpus"] for one in attempt["bound"]] == [first["told"], second["told"]]


def test_a_machine_that_has_too_little_refuses_the_job(tmp_path: Path) -> None:
    done = _run_bound(tmp_path, "{devices: 2}", CUDA_VISIBLE_DEVICES="0,1,2")
    assert (done.returncode, list(tmp_path.glob("*.json"))) == (2, [])
    assert "each of the 2 workers of w needs 2 devices; this machine has 3 devices" in done.stderr
    assert "holdfast run --no-bind --job job.yaml" in done.stderr


@pytest.mark.real
def test_without_binding_workers_share_what_is_there(tmp_path: Path) -> None:
    done = _run_bound(tmp_path, "{devices: 2, cpus: 1, memory: 900T}", "--no-bind", CUDA_VISIBLE_DEVICES="0,1,2")
    assert done.returncode == 0, done.stderr
    mine = sorted(os.sched_getaffinity(0))
    assert [(said["gpus"], said["cpus"], said["told"]) for said in _binding_shown(tmp_path)] == [
        ("0,1,2", mine, None)
    ] * 2
