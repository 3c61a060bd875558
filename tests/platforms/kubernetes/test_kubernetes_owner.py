"""What the owner's pod does differently: its machine runs no worker, and its status is Kubernetes' to read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.cli.options.run_option_table import read_run_options
from holdfast.decide.placement import place
from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file_reader import load
from holdfast.launch.multi_node import MultiNodeJob
from holdfast.launch.torchrun_options import node_range
from holdfast.model.job_spec import NodeInfo
from holdfast.platforms.kubernetes.kubernetes_launch import over_pods
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_context import ORDER
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from holdfast.platforms.platform_registry import exit_status, platform_named
from holdfast.settings.resolved_settings import resolve

LARGE = """
name: x
secrets: {token: {file: TOKEN}}
roles: {worker: {count: 1, command: [a], resources: {memory: 9000TiB, cpus: 90000}}}
"""


def test_the_owners_machine_need_not_have_what_the_workers_ask_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    file = tmp_path / "job.yaml"
    file.write_text(LARGE.replace("TOKEN", str(tmp_path / "token")))
    with pytest.raises(BadUsage, match="this machine"):
        load(file)
    found = load(file, runs=False)
    assert found.spec.roles[0].resources.cpus == 90000
    assert found.secrets == {"token": "hunter2"}


def test_a_pod_hosts_the_owner_only_where_no_owner_is_named() -> None:
    owner = {"HOLDFAST_KUBERNETES_JOB": "x"}
    platform = platform_named("kubernetes")
    assert platform is not None
    assert platform.hosts_only(owner)
    assert not platform.hosts_only({**owner, "HOLDFAST_OWNER": "x.ns.svc:29400"})
    assert not platform.hosts_only({})


def test_every_verdict_has_one_status_on_kubernetes() -> None:
    there = {"HOLDFAST_KUBERNETES_JOB": "x"}
    assert [exit_status(code, there) for code in (0, 1, 172, 255)] == [0, 78, 78, 78]
    assert [exit_status(code, {}) for code in (0, 172)] == [0, 172]


def _over_pods(
    where: Path, monkeypatch: pytest.MonkeyPatch, *words: str, shapes: tuple[PodShape, ...], job: str
) -> MultiNodeJob:
    """The job as its owner's pod begins it."""
    plan = PodPlan(name="x", namespace="ns", job="x", shapes=shapes, holdfast_image="h")
    (where / "plan.json").write_bytes(msgspec.json.encode(plan))
    (where / "key").write_text("ab" * 32)
    (where / "job.yaml").write_text(job)
    known = {
        "HOLDFAST_KUBERNETES_JOB": "x", "HOLDFAST_CONFIG_DIR": str(where), object_names.KEY_FILE: str(where / "key"),
    }  # fmt: skip
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    options = read_run_options([*words, "--job", str(where / "job.yaml")])
    assert options is not None
    settings = resolve(options.settings(), {}, where, system_file=where / "none")
    try:
        return over_pods(options, settings, lambda _: load(where / "job.yaml", runs=False), node_range(options))
    finally:
        monkeypatch.delenv(ORDER, raising=False)


def _shape(pods: int, workers: int) -> PodShape:
    return PodShape(roles=("worker",), pods=pods, workers=workers, image="i")


SIX = "{name: x, roles: {worker: {count: 6, command: [a], resources: {devices: 2}}}}"


@pytest.mark.parametrize(
    ("words", "least", "replace_s", "refill_s", "per_node"),
    [
        (("--nnodes", "3"), 3, 600.0, 0.0, False),
        (("--nnodes", "2:3"), 2, 600.0, 30.0, True),
        (("--nnodes", "2:3", "--replace-wait", "90"), 2, 90.0, 90.0, True),
        (("--nnodes", "2:3", "--replace-wait", "0"), 2, 0.0, 0.0, True),
        (("--nnodes", "3", "--replace-wait", "90"), 3, 90.0, 0.0, False),
    ],
)
def test_a_range_of_pods_has_as_many_workers_as_its_pods_have(
    words: tuple[str, ...], least: int, replace_s: float, refill_s: float, per_node: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spec = _over_pods(tmp_path, monkeypatch, *words, shapes=(_shape(3, 2),), job=SIX).job.spec
    plan, (role,) = spec.nodes, spec.roles
    assert (plan.least, plan.most, plan.replace_s, plan.refill_s) == (least, 3, replace_s, refill_s)
    assert (role.per_node, role.count) == ((True, 2) if per_node else (False, 6))
    spec = replace(spec, binds=True)
    pods = [NodeInfo(name=name, slots=2, devices=("gpu0", "gpu1", "gpu2", "gpu3")) for name in "abc"]
    placements = place(spec, pods, ())
    assert placements is not None
    assert [(placement.node, placement.visible) for placement in placements] == [
        (pod.name, devices) for pod in pods for devices in (("gpu0", "gpu1"), ("gpu2", "gpu3"))
    ]
    smaller = place(spec, pods[1:], ())
    assert (smaller is None) is not per_node
    if smaller is not None:
        assert [(placement.rank, placement.node, placement.visible) for placement in smaller] == [
            (rank, placement.node, placement.visible) for rank, placement in enumerate(placements[2:])
        ]


def test_a_range_of_pods_that_are_not_alike_is_refused_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadUsage) as refused:
        _over_pods(tmp_path, monkeypatch, "--nnodes", "1:2", shapes=(_shape(1, 4), _shape(1, 2)), job=SIX)
    assert str(refused.value) == (
        "--nnodes 1:2: the pods of this job are not alike (1 pod of 4 workers (worker), 1 pod of 2 workers (worker)): "
        "expected one number of pods, because none can take another's place\n"
        "  try: holdfast submit --platform kubernetes --nodes 2 …"
    )
