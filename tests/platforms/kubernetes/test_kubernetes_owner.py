"""What the owner's pod does differently: its machine runs no worker, and its status is Kubernetes' to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file_reader import load
from holdfast.platforms.platform_registry import exit_status, platform_named

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
