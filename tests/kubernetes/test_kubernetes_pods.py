"""A job's pods on a real cluster: they begin, are lost in all ways, and get successors; workers restart in place."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from pods_at_work import APART, OUT, Job, on_breakable
from real_kubernetes import Shared

from holdfast.platforms.kubernetes.objects import object_names


def test_a_job_runs_over_two_pods_and_its_end_is_that_of_the_kubernetes_job(kubernetes: Shared, tmp_path: Path) -> None:
    job = Job(kubernetes, tmp_path / "out")
    job.submit()
    assert job.until_at(1) == {0: "train-0", 1: "train-1"}
    job.end()
    assert job.until_over().get("succeeded") == 1
    assert "SUCCEEDED" in job.said()


MEETS = f"""
import json, os, pathlib, socket
rank, out = os.environ["RANK"], pathlib.Path("{OUT}")
told = {{name: value for name, value in os.environ.items() if name.startswith("PAI_")}}
listener = socket.create_server(("", int(told["PAI_CONTAINER_HOST_http_PORT_LIST"])))
(out / f"told-{{rank}}").write_text(json.dumps(told))
for peer in (0, 1):
    while True:
        try:
            port = int(told[f"PAI_PORT_LIST_worker_{{peer}}_http"])
            socket.create_connection((told[f"PAI_HOST_IP_worker_{{peer}}"], port), 5).close()
            break
        except ConnectionRefusedError:
            pass  # it has begun, and does not listen yet
(out / f"met-{{rank}}").write_text("")
while not all((out / f"met-{{peer}}").exists() for peer in (0, 1)):
    pass
"""


def test_workers_reach_each_other_at_their_pods_addresses_and_reserved_ports(
    kubernetes: Shared, tmp_path: Path
) -> None:
    job = Job(kubernetes, tmp_path / "out", trainer=MEETS, ports={"http": 1}, retries=0)
    job.submit()
    assert job.until_over().get("succeeded") == 1, job.told()
    told = [json.loads((job.out / f"told-{rank}").read_text()) for rank in (0, 1)]
    addresses = [pod["status"]["podIP"] for _, pod in sorted(job.agents().items())]
    own = [one["PAI_CONTAINER_HOST_IP"] for one in told]
    assert len(set(own)) == 2 and set(addresses) <= set(own), "a pod of a job that is over may be gone already"


def test_a_killed_rank_restarts_in_its_pod_and_a_deleted_pod_gets_a_successor(
    kubernetes: Shared, tmp_path: Path
) -> None:
    job = Job(kubernetes, tmp_path / "out")
    job.submit()
    job.until_at(1)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.agents().items()}

    job.inside("train-1", "kill", "-9", (job.out / "1-1-train-1").read_text())
    assert job.until_at(2) == {0: "train-0", 1: "train-1"}
    assert {name: pod["metadata"]["uid"] for name, pod in job.agents().items()} == uids

    job.delete("train-1")
    assert job.until_at(3) == {0: "train-0", 1: "train-1-1"}
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert "it was deleted: by kubectl delete pod, by kubectl drain" in said
    assert "Evicted" in said and "platform budget, not yours" in said


def test_a_pod_whose_node_loses_power_is_replaced_by_holdfasts_own_lease(
    kubernetes_breaks: Shared, tmp_path: Path
) -> None:
    cluster = kubernetes_breaks
    job = Job(cluster, tmp_path / "out", on=on_breakable(cluster), owner_on=cluster.ordinary[0])
    job.submit()
    job.until_at(1)
    placed = {name: pod["spec"]["nodeName"] for name, pod in job.agents().items()}
    lost, node = next((name, node) for name, node in placed.items() if node in cluster.breakable)
    cluster.off(node)
    job.until_at(2)
    assert job.agents()[f"{lost}-1"]["spec"]["nodeName"] != node
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert "NodeFailed" in said and "Evicted" not in said, said


def test_a_missing_image_ends_the_job_with_its_name(kubernetes: Shared, tmp_path: Path) -> None:
    job = Job(kubernetes, tmp_path / "out", task={"image": "localhost/none:3"}, retries=0)
    job.submit()
    assert job.until_over().get("failed") == 1
    said = job.said()
    assert "ImagePullFailed" in said and 'Container image "localhost/none:3" is not present' in said


def test_a_node_that_cannot_be_prepared_ends_the_job_with_the_phrase_of_its_init_container(
    kubernetes: Shared, tmp_path: Path
) -> None:
    words = '{"phrase": "DataNotFound", "words": "s3://data/train: 404 no such key"}'
    fails = ["sh", "-c", f"echo '{words}' > /dev/termination-log; exit 7"]
    job = Job(kubernetes, tmp_path / "out", prepare={"command": fails}, retries=0)
    job.submit()
    assert job.until_over().get("failed") == 1
    said = job.said()
    assert "DataNotFound" in said and "s3://data/train: 404 no such key" in said


def test_the_next_pod_of_the_owner_takes_the_running_attempt_over(kubernetes: Shared, tmp_path: Path) -> None:
    job = Job(kubernetes, tmp_path / "out")
    job.submit()
    job.until_at(1)
    job.inside("train-1", "kill", "-9", (job.out / "1-1-train-1").read_text())
    begun = job.until_at(2)
    first = job.until_carried_by_another("")
    job.delete(first)
    second = job.until_carried_by_another(first)
    job.delete(second, "--force", "--grace-period=0")
    job.until_carried_by_another(second)
    assert job.at(2) == begun and not job.at(3)
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert "this pod takes it over from" in said and "SUCCEEDED after 2 attempts" in said


def test_an_owner_and_an_agent_that_are_lost_together_are_one_uncharged_eviction(
    kubernetes: Shared, tmp_path: Path
) -> None:
    """A node that is drained may have both. The successor has a name of its own."""
    job = Job(kubernetes, tmp_path / "out")
    job.submit()
    job.until_at(1)
    first = job.until_carried_by_another("")
    began = time.monotonic()
    job.cluster("kubectl", "-n", job.space, "delete", "pod", first, "train-1", "--wait=false")
    assert job.until_at(2) == {0: "train-0", 1: "train-1-1"}
    print(f"owner and agent lost together: {time.monotonic() - began:.1f} s to the next attempt")
    job.end()
    assert job.until_over().get("succeeded") == 1
    said = job.said()
    assert "SUCCEEDED after 2 attempts" in said and not job.at(3), said
    assert "Evicted" in said and "platform budget, not yours" in said, said
    assert "NodeFailed" not in said and "SchedulerError" not in said, said


def test_ranks_go_by_the_zones_of_the_nodes_where_the_owner_may_look_at_nodes(
    kubernetes: Shared, tmp_path: Path
) -> None:
    cluster = kubernetes
    zone = "topology.kubernetes.io/zone"
    job = Job(cluster, tmp_path / "out", on={"affinity": APART})
    cluster("kubectl", "create", "clusterrole", f"looks-{job.space}", "--verb=get", "--resource=nodes")
    bound = (f"--clusterrole=looks-{job.space}", f"--serviceaccount={job.space}:train")
    cluster("kubectl", "create", "clusterrolebinding", f"looks-{job.space}", *bound)
    for number, name in enumerate(cluster.ordinary):
        cluster("kubectl", "label", "node", name, f"{zone}=z{9 - number}", "--overwrite")
    job.submit()
    begun = job.until_at(1)
    pods = job.agents()
    first, second = (pods[begun[rank]]["spec"]["nodeName"] for rank in (0, 1))
    assert first > second, "the zone of a later node comes first"
    job.end()
    assert job.until_over().get("succeeded") == 1


def test_a_quota_and_a_lack_of_room_are_told_in_kubernetes_words_and_a_spare_is_done_without(
    kubernetes: Shared, tmp_path: Path
) -> None:
    job = Job(kubernetes, tmp_path / "out", spares=1, words=("--join-timeout", "20", "--last-call", "1"))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "three", "namespace": job.space}}
    kubernetes.apply({**quota, "spec": {"hard": {"pods": "3"}}})
    kubernetes.wait(
        lambda: "hard" in kubernetes.get("resourcequota", "three", job.space).get("status", {}), "the quota is counted"
    )
    job.submit()
    job.until_at(1)
    kubernetes.wait(lambda: "exceeded quota: three" in job.said(), "the quota is told of")
    # The three pods are asked for at once: the API server chooses the one that is too many.
    assert re.search(r"pod train-[012] cannot be made yet: pods", job.said())

    def typed(verb: str, *words: str) -> str:
        done = kubernetes.holdfast(verb, *words, "--platform", "kubernetes", "-n", job.space, "--json")
        done.wait()
        return done.out

    # The spare is missing: the gang has all that it needs, and may begin before the state is written again.
    kubernetes.wait(lambda: "exceeded quota: three" in typed("show", "train"), "`show` says why")
    assert "exceeded quota: three" in typed("jobs")
    job.end()
    assert job.until_over().get("succeeded") == 1


def test_a_job_that_is_deleted_stops_its_workers_and_leaves_nothing(kubernetes: Shared, tmp_path: Path) -> None:
    job = Job(kubernetes, tmp_path / "out")
    job.submit()
    job.until_at(1)
    [owner] = job.owners()
    reads = kubernetes.start("kubectl", "-n", job.space, "logs", "-f", owner["metadata"]["name"])
    kubernetes.wait(lambda: "2 of 2 nodes" in reads.out, "the owner's log is followed")
    kubernetes("kubectl", "-n", job.space, "delete", "job", "train", "--wait=false")
    kubernetes.wait(lambda: not job.owners() and not job.agents(), "no pod is left")
    reads.wait()
    assert "the Kubernetes job train was deleted" in reads.out and "StoppedByOperator" in reads.out, reads.out
    assert "the job goes on" not in reads.out, reads.out
    of_the_job = ("configmaps", job.space, object_names.selector("train"))
    kubernetes.wait(lambda: not kubernetes.items(*of_the_job), "no ConfigMap is left")


def test_a_pod_ends_with_the_jobs_own_code(kubernetes: Shared, tmp_path: Path) -> None:
    """254 would be ImagePullFailed in holdfast's own table."""
    job = Job(kubernetes, tmp_path / "out", trainer="import os; os._exit(3)", retries=0, restarts=0)
    job.submit()
    assert job.until_over().get("failed") == 1

    def codes() -> set[int | None]:
        of_tasks = [pod["status"].get("containerStatuses", [{}])[0].get("state", {}) for pod in job.agents().values()]
        return {each.get("terminated", {}).get("exitCode") for each in of_tasks}

    kubernetes.wait(lambda: None not in codes(), "both pods have ended")
    [owner] = job.owners()
    verdict = json.loads(owner["status"]["containerStatuses"][0]["state"]["terminated"]["message"])
    assert verdict["phrase"] == "Unexplained" and codes() == {verdict["code"]} == {255}, job.told()
    typed = f"holdfast show train --platform kubernetes -n {job.space} --verbose"
    assert typed in job.said(), "the command in the owner's log finds the job from outside"


def test_a_container_that_was_added_to_the_pods_ends_with_the_job_and_the_logs_stay(
    kubernetes: Shared, tmp_path: Path
) -> None:
    sidecar = {"name": "ships-logs", "image": "localhost/busybox:1", "command": ["sleep", "100000"]}
    # It ends after the first request to it, as a mesh's proxy does.
    proxy = {"name": "mesh", "image": "localhost/busybox:1", "command": ["nc", "-l", "-p", "15020"]}
    job = Job(kubernetes, tmp_path / "out", added=sidecar, beside_owner=proxy)
    job.submit()
    job.until_at(1)
    job.end()
    assert job.until_over().get("succeeded") == 1
    kubernetes.wait(
        lambda: all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in job.agents().values()),
        "no pod holds anything of its node",
    )
    assert sorted(job.agents()) == ["train-0", "train-1"]
    [owner] = job.owners()
    asked = kubernetes.start("kubectl", "-n", job.space, "logs", owner["metadata"]["name"], "-c", "mesh")
    assert asked.wait() == 0 and asked.out.startswith("POST /quitquitquit "), asked.out + asked.err
    log = kubernetes.holdfast("logs", "train", "--rank", "1", "--platform", "kubernetes", "-n", job.space)
    assert log.wait() == 0 and log.out == "rank 1 of 2 in attempt 1\n", log.out + log.err


def test_a_preempted_pod_is_named_so_not_charged_and_replaced(kubernetes: Shared, tmp_path: Path) -> None:
    cpus = str(len(os.sched_getaffinity(0)))
    half = {"resources": {"requests": {"cpu": f"{int(cpus) * 600}m"}}}
    job = Job(kubernetes, tmp_path / "out", task=half, restarts=1)
    job.submit()
    placed = job.until_at(1)
    node = job.agents()[placed[1]]["spec"]["nodeName"]
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    taker = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "taker", "namespace": job.space},
        "spec": {
            "priorityClassName": "high",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "task", "image": "localhost/busybox:1", "command": ["sleep", "600"], **half}],
        },
    }
    kubernetes.apply(high)
    try:
        kubernetes.apply(taker)
        job.until_at(2)
        job.end()
        assert job.until_over().get("succeeded") == 1
    finally:  # every test of this cluster would see them
        kubernetes("kubectl", "delete", "priorityclass", "high")
        kubernetes("kubectl", "delete", "pod", "taker", "-n", job.space, "--ignore-not-found")
    said = job.said()
    assert "Preempted" in said and f"Preempted by {job.space}/taker on node {node}" in said
    assert "platform budget, not yours" in said


def test_an_api_server_that_is_away_holds_no_restart_up_for_long_and_ends_nothing(
    kubernetes_alone: Shared, tmp_path: Path
) -> None:
    cluster = kubernetes_alone
    job = Job(cluster, tmp_path / "out")
    job.submit()
    job.until_at(1)
    # No command gets into a pod without the API server: the kill waits there for a file.
    waits = f"(until [ -e {OUT}/api-is-away ]; do sleep 0.1; done; kill -9 $0) > /dev/null 2>&1 &"
    job.inside("train-1", "sh", "-c", waits, (job.out / "1-1-train-1").read_text())
    cluster.api_kill()
    (job.out / "api-is-away").touch()
    cluster.wait(lambda: len(job.at(2)) == 2, "attempt 2 runs")
    cluster.api_start()
    cluster.wait(lambda: "the job's state is written again" in job.said(), "the owner has asked again, after its pause")
    job.end()
    assert job.until_over().get("succeeded") == 1
