"""`jobs`, `show`, `logs` and `stop` of a job on a real cluster, typed outside of it; and what submit makes there."""

from __future__ import annotations

import json
from pathlib import Path

from pods_at_work import Job
from real_kubernetes import Shared

ON = ("--platform", "kubernetes", "-n")
SUBMITTED = """
name: My_Job
roles: {worker: {count: 2, command: [sh, -c, "sleep 100"], resources: {memory: 64MiB}}}
kubernetes: {image: localhost/busybox:1, holdfast_image: localhost/busybox:1, pull_policy: Never}
"""


def typed(cluster: Shared, *words: str) -> tuple[int, str, str]:
    done = cluster.holdfast(*words)
    return done.wait(), done.out, done.err


def test_a_running_job_is_listed_shown_and_read_and_stops_with_the_reason_that_was_typed(
    kubernetes: Shared, tmp_path: Path
) -> None:
    job = Job(kubernetes, tmp_path / "out", workers=2)
    job.submit()
    job.until_at(1, 4)

    def row() -> list[str]:
        status, out, err = typed(kubernetes, "jobs", *ON, job.space)
        assert status == 0, err
        return out.splitlines()[1].split()[:4]

    # A kubelet tells of its containers a little later.
    kubernetes.wait(lambda: row() == ["train", "running", "2/2", "1"], "both pods are seen to run")

    status, out, err = typed(kubernetes, "show", "train", *ON, job.space)
    assert status == 0, err
    assert "job train RUNNING" in out and "pods       2 of 2 run, attempt 1" in out and "train-1 on k" in out
    assert "the gang waits for all of its 2 pods itself" in out
    assert json.loads(typed(kubernetes, "show", "train", "--json", *ON, job.space)[1])["running"] == 2

    status, out, err = typed(kubernetes, "logs", "train", *ON, job.space)
    assert status == 0 and "train-1: " in out, err
    kubernetes.wait(
        lambda: typed(kubernetes, "logs", "train", "--rank", "3", *ON, job.space)[1] == "rank 3 of 4 in attempt 1\n",
        "the log of one rank has that rank's lines alone",
    )
    assert "has the ranks 0 to 3" in typed(kubernetes, "logs", "train", "--rank", "9", *ON, job.space)[2]

    follower = kubernetes.holdfast("logs", "-f", "train", *ON, job.space)
    kubernetes.wait(lambda: "rank 3 of 4" in follower.out, "what was written comes")
    status, out, err = typed(kubernetes, "stop", "train", "--reason", "enough seen", *ON, job.space)
    assert status == 0 and "its workers get SIGTERM now" in out, err
    assert follower.wait() == 0
    assert "enough seen" in follower.out

    status, out, err = typed(kubernetes, "stop", "train", "--reason", "again", *ON, job.space)
    assert status == 0 and "over already" in out, err
    status, out, err = typed(kubernetes, "jobs", *ON, job.space)
    assert out.splitlines()[1].split()[:6] == ["train", "failed", "2", "1", "250", "StoppedByOperator"]
    [owner] = job.owners()  # the verdict ends the Job: no other pod tries
    ended = owner["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 78 and json.loads(ended["message"])["reason"].startswith("enough seen")
    status, out, err = typed(kubernetes, "show", "train", *ON, job.space)
    assert "STOPPED: " in out and "StoppedByOperator (exit code 250" in out and "job train STOPPED" in out, err
    assert json.loads(typed(kubernetes, "show", "train", "--json", *ON, job.space)[1])["report"]["code"] == 250


def test_a_job_is_made_whole_waits_for_its_owner_and_is_deleted_without_a_trace(
    kubernetes: Shared, tmp_path: Path
) -> None:
    space = kubernetes.namespace()
    file = tmp_path / "job.yaml"
    file.write_text(SUBMITTED)
    status, out, err = typed(kubernetes, "submit", "--dry-run=server", "-n", space, str(file))
    assert status == 0 and "kind: Job" in out and "podFailurePolicy" not in out, err
    assert kubernetes.items("jobs", space) == []
    status, out, err = typed(kubernetes, "submit", "-n", space, "--json", str(file))
    assert status == 0, err
    uid = kubernetes.get("job", "my-job", space)["metadata"]["uid"]
    assert json.loads(out)["platform"] == {"platform": "kubernetes", "id": "my-job", "number": uid, "cluster": space}
    label = "holdfast.io/job=my-job"
    made = "secrets,configmaps,services,serviceaccounts,roles,rolebindings"
    objects = kubernetes.items(made, space, label)
    assert len(objects) == 7
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in objects} == {uid}

    status, out, err = typed(kubernetes, "submit", "-n", space, str(file))
    assert status == 2 and "a job my-job runs in namespace" in err
    status, out, err = typed(kubernetes, "show", "My_Job", *ON, space)
    assert status == 0 and "job my-job (My_Job)" in out, err
    status, out, err = typed(kubernetes, "show", "my-jop", *ON, space)
    assert status == 2 and "did you mean my-job?" in err

    kubernetes.kubectl("-n", space, "delete", "job", "my-job")
    kubernetes.wait(lambda: kubernetes.items(f"jobs,pods,{made}", space, label) == [], "nothing is left")


def test_what_the_server_refuses_leaves_nothing_behind(kubernetes: Shared, tmp_path: Path) -> None:
    space = kubernetes.namespace()
    file = tmp_path / "job.yaml"
    file.write_text(SUBMITTED)
    hard = {"pods": "0", "configmaps": "1"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": space}}
    kubernetes.apply({**quota, "spec": {"hard": hard}})
    kubernetes.wait(
        lambda: "hard" in kubernetes.get("resourcequota", "small", space).get("status", {}), "the quota is counted"
    )
    status, _, err = typed(kubernetes, "submit", "-n", space, str(file))
    assert status == 2 and "a quota of the namespace is used up" in err and "exceeded quota: small" in err
    assert f"kubectl describe quota -n {space}" in err
    status, _, err = typed(kubernetes, "submit", "-n", "nowhere-1", str(file))
    assert status == 2 and "there is no namespace nowhere-1" in err and err.startswith("holdfast: ")
    assert "--namespace: the job was not submitted" in err
    file.write_text(SUBMITTED.replace("pull_policy", "priority_class: high, pull_policy"))
    other = kubernetes.namespace()
    status, _, err = typed(kubernetes, "submit", "-n", other, str(file))
    assert status == 2 and "`kubernetes.priority_class`: the job was not submitted" in err
    assert "no PriorityClass with name high" in err
    limited = kubernetes.namespace()
    file.write_text(SUBMITTED)
    limits = {"limits": [{"type": "Container", "max": {"memory": "500Mi"}}]}
    limit = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "few", "namespace": limited}}
    kubernetes.apply({**limit, "spec": limits})
    kubernetes.wait(lambda: bool(kubernetes.items("limitranges", limited)), "the limit is there")
    status, _, err = typed(kubernetes, "submit", "-n", limited, str(file))
    assert (
        status == 2 and "the owner's pod is refused: a LimitRange" in err and "usage per Container is 500Mi" in err
    ), err
    summed = kubernetes.namespace()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "sum", "namespace": summed}}
    kubernetes.apply({**quota, "spec": {"hard": {"pods": "2"}}})
    kubernetes.wait(
        lambda: "hard" in kubernetes.get("resourcequota", "sum", summed).get("status", {}), "the quota is counted"
    )
    status, _, err = typed(kubernetes, "submit", "-n", summed, str(file))
    assert status == 2 and "need pods=3 together, and quota sum allows 2" in err, err
    for where in (space, other, limited, summed):
        assert kubernetes.items("jobs,secrets,services,roles", where, "holdfast.io/job=my-job") == []


def test_a_user_without_rights_is_told_which_one(kubernetes: Shared, tmp_path: Path) -> None:
    space = kubernetes.namespace()
    file = tmp_path / "job.yaml"
    file.write_text(SUBMITTED)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "eve", "namespace": space}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "eve", "namespace": space},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "eve", "namespace": space}],
    }
    kubernetes.apply(account, binding)
    kubernetes.wait(lambda: bool(kubernetes.get("sa", "eve", space).get("secrets")), "the account has its token")
    [secret] = kubernetes.get("sa", "eve", space)["secrets"]
    token = kubernetes.kubectl(
        *("-n", space, "get", "secret", secret["name"], "-o", "go-template={{.data.token | base64decode}}")
    )
    config = json.loads(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "eve").write_text(json.dumps(config))
    done = kubernetes.holdfast("submit", "-n", space, str(file), env={"KUBECONFIG": str(tmp_path / "eve")})
    assert done.wait() == 2, done.err
    assert "you may not create roles" in done.err and "owner_service_account" in done.err
    file.write_text(SUBMITTED.replace("pull_policy", "owner_service_account: default, pull_policy"))
    status, _, err = typed(kubernetes, "submit", "-n", space, str(file))
    assert status == 2 and "service account default lacks rights that the owner needs" in err, err
    assert f"--as=system:serviceaccount:{space}:default" in err
    file.write_text(SUBMITTED.replace("pull_policy", "owner_service_account: eve, pull_policy"))
    done = kubernetes.holdfast("submit", "-n", space, str(file), env={"KUBECONFIG": str(tmp_path / "eve")})
    assert done.wait() == 0, done.err


#: Two ranks, each of which prints a second after the other one.
IN_TURN = """
import os, pathlib, time
rank, out = int(os.environ["RANK"]), pathlib.Path("/out")
for turn in range(3):
    before = f"{turn}-0" if rank else f"{turn - 1}-1"
    while (rank or turn) and not (out / before).exists():
        time.sleep(0.01)
    print(f"turn {turn} of rank {rank}", flush=True)
    time.sleep(1.1)
    (out / f"{turn}-{rank}").write_text("")
while not (out / "end").exists():
    time.sleep(0.05)
"""


def test_the_lines_of_pods_come_by_time_with_all_that_can_be_asked(kubernetes: Shared, tmp_path: Path) -> None:
    job = Job(kubernetes, tmp_path / "out", trainer=IN_TURN)
    job.submit()
    kubernetes.wait(lambda: (tmp_path / "out" / "2-1").exists(), "all turns are over")
    turns = [f"turn {turn} of rank {rank}" for turn in range(3) for rank in (0, 1)]

    def logs(*words: str) -> list[str]:
        status, out, err = typed(kubernetes, "logs", "train", *words, *ON, job.space)
        assert status == 0, err
        return out.splitlines()

    kubernetes.wait(lambda: len(logs("--grep", "^turn")) == 6, "all lines are there")
    lines = [json.loads(line) for line in logs("--grep", "^turn", "--json")]
    assert [line["line"] for line in lines] == turns
    assert [(line["pod"], line["rank"], line["role"]) for line in lines[:2]] == [
        ("train-0", 0, "worker"), ("train-1", 1, "worker"),
    ]  # fmt: skip
    stamps = logs("--grep", "^turn", "--timestamps", "--utc")
    assert [line.partition(" UTC ")[2] for line in stamps] == [
        f"train-{rank}: [worker-{rank}] turn {turn} of rank {rank}" for turn in range(3) for rank in (0, 1)
    ]
    third = stamps[2].partition(" train")[0]
    assert logs("--rank", "0", "--since", third) == ["turn 1 of rank 0", "turn 2 of rank 0"]
    assert logs("--grep", "^turn", "--until", third) == [line.partition(" UTC ")[2] for line in stamps[:2]]
    assert logs("--rank", "1", "--tail", "1") == ["turn 2 of rank 1"]
    refused = typed(kubernetes, "logs", "train", "--attempt", "1", "--rank", "1", *ON, job.space)[2]
    assert "a pod has one log" in refused
    assert f"holdfast logs train --platform kubernetes -n {job.space} --rank 1" in refused
    follower = kubernetes.holdfast("logs", "-f", "train", "--rank", "1", "--tail", "2", "-t", *ON, job.space)
    kubernetes.wait(lambda: "turn 2" in follower.out, "what was written comes")
    job.end()
    assert follower.wait() == 0, follower.err
    assert [line.partition("turn")[2] for line in follower.out.splitlines()] == [" 1 of rank 1", " 2 of rank 1"]


def test_the_log_of_a_pod_that_ends_at_once_is_followed_whole(kubernetes: Shared, tmp_path: Path) -> None:
    """A kubelet tells of a container a second after its start: the job may be over before that."""
    short = 'import os; print("all that rank", os.environ["RANK"], "says", flush=True)'
    for number in range(3):
        job = Job(kubernetes, tmp_path / f"out-{number}", trainer=short)
        job.submit()
        follower = kubernetes.holdfast("logs", "-f", "train", *ON, job.space)
        assert follower.wait() == 0, follower.err
        said = sorted(line for line in follower.out.splitlines() if "all that" in line)
        wanted = [f"train-{rank}: [worker-{rank}] all that rank {rank} says" for rank in (0, 1)]
        assert said == wanted, f"round {number}: {follower.out}{follower.err}"
        after = typed(kubernetes, "logs", "train", *ON, job.space)[1]
        assert after.count("all that rank") == 2, "the pods are there after the job, and their logs"
