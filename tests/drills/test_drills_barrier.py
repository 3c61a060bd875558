"""The start over nodes: no worker begins before all are prepared, and all of them know where their peers are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from drilling import Cluster, ClusterOf, phrases

pytestmark = [pytest.mark.real, pytest.mark.drill]


BLOCKER = """
import os, time
while os.uname().nodename == "node2" and not os.path.exists(os.environ["OUT"] + "/release"):
    time.sleep(0.02)
"""
BEGINS = """
import os
open(f"{os.environ['OUT']}/began-{os.environ['RANK']}", "w").close()
"""


def blocked(job: Cluster, *options: str) -> None:
    """Three nodes with a worker each; that of node2 is not made ready until the file `release` is there."""
    (job.out / "blocker.py").write_text(BLOCKER)
    script = job.out / "begins.py"
    script.write_text(BEGINS)
    env = {"OUT": str(job.out), "PYTHONPATH": str(job.out)}
    job.run_all("--nnodes", "3", "--warm", "--preload", "blocker", *options, script=[script], env=env)


def begun(job: Cluster) -> list[str]:
    return sorted(path.name for path in job.out.glob("began-*"))


def prepared(job: Cluster) -> set[int]:
    """The ranks of which the owner knows that they are prepared."""
    reports = [event["report"] for _, event in job.journal() if event["type"] == "agent_reported"]
    return {member["rank"] for report in reports for member in report["members"] if member["state"] == "prepared"}


def test_no_command_begins_before_the_last_peer_is_prepared(cluster: ClusterOf) -> None:
    job = cluster(3)
    blocked(job)
    job.wait(lambda: (job.net[1].home / "holdfast.db").exists() and prepared(job) == {0, 2}, "two nodes are prepared")
    assert begun(job) == []
    (job.out / "release").touch()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert begun(job) == ["began-0", "began-1", "began-2"]


def test_a_start_that_is_late_names_role_index_node_and_last_word(cluster: ClusterOf) -> None:
    job = cluster(3)
    blocked(job, "--prepare-timeout", "4", "--max-restarts", "0", "--role", "trainer")
    statuses = job.end()
    assert len(set(statuses.values())) == 1 and statuses[1] == 251
    assert begun(job) == [], "no worker began"
    report = job.report()
    assert phrases(report)[0] == "GangStartTimeout"
    reason = report["attempts"][0]["report"]["reason"]
    assert re.search(
        r"trainer 1 \(rank 1\) on node2 was being made ready, and the last news of node2 came \d+ s before", reason
    ), reason


OPENS = """
import json, os, socket
mine = int(os.environ["PAI_CONTAINER_HOST_http_PORT_LIST"])
listener = socket.create_server(("", mine))
told = {name: value for name, value in os.environ.items() if name.startswith("PAI_")}
rank, out = os.environ["RANK"], os.environ["OUT"]
open(f"{out}/told-{rank}", "w").write(json.dumps(told))
for peer in range(3):
    while True:
        try:
            address = told[f"PAI_HOST_IP_task_{peer}"], int(told[f"PAI_PORT_LIST_task_{peer}_http"])
            socket.create_connection(address, 5).close()
            break
        except ConnectionRefusedError:
            pass  # it has begun to run, and does not listen yet
open(f"{out}/met-{rank}", "w").close()
while not all(os.path.exists(f"{out}/met-{peer}") for peer in range(3)):
    pass
"""


def test_every_worker_reaches_every_other_at_its_host_and_reserved_port(cluster: ClusterOf, tmp_path: Path) -> None:
    job = cluster(3)
    script = job.out / "opens.py"
    script.write_text(OPENS)
    file = tmp_path / "job.yaml"
    file.write_text(f"name: j\nroles:\n  task: {{count: 3, command: [python3, {script}], ports: {{http: 1}}}}\n")
    for node in job.net:
        where = ("--job", file, "--nnodes", "3", "--port-range", "31000-31009")
        job.run(node.number, *where, script=["--name", "j"], env={"OUT": str(job.out)})
    assert job.end() == {1: 0, 2: 0, 3: 0}, job.told()
    told = [json.loads((job.out / f"told-{rank}").read_text()) for rank in range(3)]
    assert [one["PAI_CONTAINER_HOST_IP"] for one in told] == [node.address for node in job.net]
    assert all(31000 <= int(one["PAI_CONTAINER_HOST_PORT"]) <= 31009 for one in told)
    assert len({one["PAI_TASK_ROLE_task_HOST_LIST"] for one in told}) == 1
