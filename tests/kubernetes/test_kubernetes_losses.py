"""Ways in which Kubernetes takes a worker or its pod: each is named with Kubernetes' own words."""

from __future__ import annotations

import re
from pathlib import Path

from pods_at_work import OUT, TRAINER, Job, on_breakable
from real_kubernetes import Shared

GREEDY = f"""
import os, pathlib
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    pathlib.Path("{OUT}/1-1-" + os.environ["HOLDFAST_POD"]).write_text("")
    taken = bytearray(b"x") * (2 << 30)
{TRAINER}
"""


def test_a_worker_beyond_its_pods_memory_is_a_memory_kill_and_not_a_bare_sigkill(
    kubernetes: Shared, tmp_path: Path
) -> None:
    limited = {"resources": {"limits": {"memory": "256Mi"}, "requests": {"memory": "64Mi"}}}
    job = Job(kubernetes, tmp_path / "out", trainer=GREEDY, task=limited)
    job.submit()
    assert job.until_over().get("succeeded") is None
    said = job.said()
    assert "HostOutOfMemoryKilled" in said and "limit 256.0 MiB" in said, said


def test_a_drained_node_evicts_its_pods_and_the_job_goes_on_elsewhere_uncharged(
    kubernetes_breaks: Shared, tmp_path: Path
) -> None:
    cluster = kubernetes_breaks
    job = Job(cluster, tmp_path / "out", on=on_breakable(cluster), owner_on=cluster.ordinary[0], restarts=1)
    job.submit()
    placed = job.until_at(1)
    pods = job.agents()
    node = next(node for pod in placed.values() if (node := pods[pod]["spec"]["nodeName"]) in cluster.breakable)
    gone = [pod for pod in placed.values() if pods[pod]["spec"]["nodeName"] == node]
    drain = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=holdfast.io/part=agent")
    cluster("kubectl", "drain", node, *drain, "--timeout=60s")
    moved = job.until_at(2)
    assert not set(gone) & set(moved.values())
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert "Evicted" in said and "platform budget, not yours" in said, said


def test_a_job_goes_on_smaller_while_no_other_pod_fits_and_grows_at_the_next_restart(
    kubernetes_breaks: Shared, tmp_path: Path
) -> None:
    cluster = kubernetes_breaks
    job = Job(
        cluster, tmp_path / "out", nodes=3, least=2, on=on_breakable(cluster), owner_on=cluster.ordinary[0], restarts=1
    )
    job.submit()
    placed = job.until_at(1)
    pods = job.agents()
    lost = next(pod for pod in placed.values() if pods[pod]["spec"]["nodeName"] in cluster.breakable)
    node = pods[lost]["spec"]["nodeName"]
    cluster("kubectl", "cordon", node)
    job.delete(lost)
    smaller = job.until_at(2, ranks=2)
    assert {*smaller.values()} == {*placed.values()} - {lost}
    said = job.said()
    assert f"0/{len(cluster.names)} nodes are available: " in said, said
    assert "the platform has no further node now; the job goes on with 2 of 3 nodes" in said, said

    cluster("kubectl", "uncordon", node)
    joined = re.compile(rf"\(pod {lost}-1\) (\([0-9.]+\) )?has joined: 3 of 3 nodes")
    cluster.wait(lambda: bool(joined.search(job.said())), "the third node is here again")
    number, pod = next(iter(smaller.items()))
    job.inside(pod, "/bin/kill", "-SEGV", (job.out / f"2-{number}-{pod}").read_text())
    assert {*job.until_at(3).values()} == {*smaller.values(), f"{lost}-1"}
    job.end()
    assert job.until_over().get("succeeded") == 1
    printed = cluster.logs(next(iter(smaller.values())), job.space)
    for size, attempt in ((3, 1), (2, 2), (3, 3)):
        assert f" of {size} in attempt {attempt}\n" in printed, printed


def test_pods_that_fit_nowhere_end_the_job_with_the_schedulers_own_words(kubernetes: Shared, tmp_path: Path) -> None:
    huge = {"resources": {"requests": {"cpu": "4000"}}}
    job = Job(kubernetes, tmp_path / "out", task=huge, retries=0, words=("--join-timeout", "15"))
    job.submit()
    assert job.until_over().get("failed") == 1
    said = job.said()
    lives, _, report = said.partition("FAILED")
    for text in (lives, report):
        assert f"0/{len(kubernetes.names)} nodes are available: " in text and "Insufficient cpu" in text, said
    assert "ResourcesInsufficient" in report and "GangStartTimeout" not in report, said
