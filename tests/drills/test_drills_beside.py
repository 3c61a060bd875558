"""What runs beside the workers of a job over nodes: each node its own, and one that fails ends the attempt on all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drilling import Cluster, ClusterOf

pytestmark = [pytest.mark.real, pytest.mark.drill]

NO_OPENSSH = shutil.which("ssh") is None or shutil.which("sshd", path="/usr/bin:/usr/sbin") is None


def job_file(job: Cluster, worker: str, **plugins: Any) -> tuple[str, Path]:
    for hook in plugins.get("hooks", []):
        hook["command"] = ["bash", "-c", hook["command"]]
    path = job.out / "job.yaml"
    role = {"count": 2, "command": ["bash", "-c", worker]}
    path.write_text(json.dumps({"name": "beside", "roles": {"worker": role}, "plugins": plugins}))
    return "--job", path


def logs(job: Cluster, name: str) -> list[str]:
    found = [path for node in job.net for path in node.home.glob(f"jobs/*/attempt-1/{name}*.log")]
    return [path.read_text().strip() for path in sorted(set(found))]


def test_each_node_runs_its_own_hooks_and_no_worker_starts_before_those_of_all(cluster: ClusterOf) -> None:
    job = cluster(2)
    slow = "if [ $GROUP_RANK = 1 ]; then sleep 1; fi; hostname; touch $MARKS/$GROUP_RANK"
    hooks = [{"when": "taskStarts", "name": "a", "command": slow}]
    hooks += [{"when": "taskSucceeds", "name": "b", "command": "echo $HOLDFAST_OUTCOME on $(hostname)"}]
    worker = "test $(ls $MARKS | wc -l) = 2 && test -e $MARKS/0 -a -e $MARKS/1"
    (job.out / "marks").mkdir()
    job.run_all("--nnodes", "2", script=job_file(job, worker, hooks=hooks), env={"MARKS": str(job.out / "marks")})
    assert job.end() == {1: 0, 2: 0}
    assert logs(job, "hook-a@") == ["node1", "node2"]
    assert sorted(logs(job, "hook-b@")) == ["succeeded on node1", "succeeded on node2"]


def test_a_hook_that_fails_on_one_node_ends_the_attempt_and_is_named_with_its_node(cluster: ClusterOf) -> None:
    job = cluster(2)
    hooks = [{"when": "taskStarts", "name": "disk", "command": "echo no scratch; exit $((GROUP_RANK * 4))"}]
    job.run_all("--nnodes", "2", "--max-restarts", "0", script=job_file(job, "true", hooks=hooks))
    assert job.end() == {1: 221, 2: 221}
    report = job.report(1)
    assert (report["phrase"], report["original"]["exit_code"]) == ("HookFailed", 4)
    assert (
        report["reason"]
        == f"hook disk (taskStarts) on node2 ({job.net[2].address}) ended with exit status 4: no scratch"
    )


def test_a_hook_that_fails_after_an_attempt_on_one_node_fails_the_job(cluster: ClusterOf) -> None:
    job = cluster(2)
    hooks = [{"when": "taskSucceeds", "name": "up", "command": "exit $((GROUP_RANK * 5))"}]
    job.run_all("--nnodes", "2", "--max-restarts", "0", script=job_file(job, "true", hooks=hooks))
    assert job.end() == {1: 221, 2: 221}
    assert job.report(2)["reason"] == f"hook up (taskSucceeds) on node2 ({job.net[2].address}) ended with exit status 5"


@pytest.mark.skipif(NO_OPENSSH, reason="there is no OpenSSH here (apt-get install openssh-server)")
def test_a_worker_enters_a_worker_of_another_node(cluster: ClusterOf) -> None:
    job = cluster(2)
    enters = (
        'ssh -F $HOLDFAST_SSH_CONFIG worker-1 "echo rank \\$RANK on \\$(hostname)" > $MARKS/said; touch $MARKS/over'
    )
    worker = f"if [ $RANK = 0 ]; then {enters}; fi; while [ ! -e $MARKS/over ]; do sleep 0.1; done"
    job.run_all("--nnodes", "2", script=job_file(job, worker, ssh=True), env={"MARKS": str(job.out)})
    assert job.end() == {1: 0, 2: 0}
    assert (job.out / "said").read_text() == "rank 1 on node2\n"
