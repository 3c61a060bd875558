"""A job as its objects show it: states, verdicts, why pods wait, which pod has a rank; and wishes at the Job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.model.decisions import JobReport
from holdfast.model.exit_report import Blame, Culprit, ExitReport, Outcome, Rerun
from holdfast.platforms.kubernetes.objects.api_records import event, pod
from holdfast.platforms.kubernetes.objects.job_status import (
    ClusterJobState,
    job_seen,
    newest,
    pod_in_words,
    rank_at,
    termination_message,
    verdict,
)
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from holdfast.platforms.kubernetes.objects.saved_state import Header
from holdfast.platforms.kubernetes.objects.stop_annotation import REQUEST, StopAnnotation, stop_request_patch, wish_of

JOB_DOCUMENT = {
    "metadata": {"name": "train", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-11-22T21:00:00Z"}
}


def a_pod(name: str, part: str, status: dict[str, Any], node: int = 0, generation: int = 0) -> dict[str, Any]:
    labels = {"holdfast.io/job": "train", "holdfast.io/part": part}
    labels |= {"holdfast.io/node": str(node), "holdfast.io/generation": str(generation)} if part == "agent" else {}
    meta = {"name": name, "labels": labels, "creationTimestamp": f"2026-11-22T21:00:{generation:02}Z"}
    return {"metadata": meta, "spec": {"nodeName": "k1"}, "status": status}


def container_status(name: str, **state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "state": state}]}


def owner_pod(**state: Any) -> dict[str, Any]:
    phase = "Running" if "running" in state else "Failed" if "terminated" in state else "Pending"
    return a_pod("train-x", "owner", {"phase": phase, **container_status("owner", **state)})


def over(kind: str, message: str = "") -> dict[str, Any]:
    ended = {"type": kind, "status": "True", "message": message, "lastTransitionTime": "2026-11-22T21:05:00Z"}
    return {**JOB_DOCUMENT, "status": {"conditions": [ended]}}


def test_a_job_is_pending_until_its_owner_runs() -> None:
    assert job_seen(JOB_DOCUMENT, []).state is ClusterJobState.PENDING
    waiting = job_seen(JOB_DOCUMENT, [owner_pod(waiting={"reason": "ImagePullBackOff", "message": "no such image"})])
    assert (waiting.state, waiting.said) == (ClusterJobState.PENDING, "ImagePullBackOff: no such image")
    assert job_seen(JOB_DOCUMENT, [owner_pod(running={})]).state is ClusterJobState.RUNNING
    deleted = {"metadata": {**JOB_DOCUMENT["metadata"], "deletionTimestamp": "2026-11-22T21:01:00Z"}}
    assert job_seen(deleted, [owner_pod(running={})]).state is ClusterJobState.ENDING


def test_a_suspended_job_says_who_lets_it_begin() -> None:
    found = job_seen({**JOB_DOCUMENT, "spec": {"suspend": True}}, [])
    assert (found.state, found.said[:38]) == (ClusterJobState.PENDING, "the Job is suspended (spec.suspend): a")
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    found = job_seen({"metadata": {**JOB_DOCUMENT["metadata"], "labels": labels}, "spec": {"suspend": True}}, [])
    assert "Kueue's queue gpus lets it begin" in found.said
    assert job_seen({**JOB_DOCUMENT, "spec": {"suspend": False}}, []).said == ""


def test_the_verdict_is_the_owners_termination_message() -> None:
    message = json.dumps({"phrase": "OutOfMemory", "code": 172, "reason": "rank 3 used 64 GB"})
    found = job_seen(over("Failed", "policy"), [owner_pod(terminated={"exitCode": 78, "message": message})])
    assert (found.state, found.code, found.phrase, found.said) == (
        ClusterJobState.FAILED,
        172,
        "OutOfMemory",
        "rank 3 used 64 GB",
    )
    assert found.ended == found.created + 300


@pytest.mark.parametrize("message", ["", "a traceback\nlast line", "[1]", '{"code": "x"}', '{"phrase"'])
def test_another_message_is_shown_as_far_as_it_goes(message: str) -> None:
    code, phrase, _ = verdict(pod(owner_pod(terminated={"exitCode": 137, "reason": "OOMKilled", "message": message})))
    assert (code, phrase) == (137, "")


def test_a_job_that_succeeded_has_code_zero() -> None:
    found = job_seen(over("Complete"), [])
    assert (found.state, found.code) == (ClusterJobState.SUCCEEDED, 0)


def test_a_node_is_shown_by_its_last_pod() -> None:
    dead = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    pods = [
        a_pod("train-1-2", "agent", {"phase": "Running", **container_status("task", running={})}, 1, 2),
        a_pod("train-0", "agent", {"phase": "Running", **container_status("task", running={})}, 0),
        a_pod("train-1", "agent", dead, 1),
    ]
    found = job_seen(JOB_DOCUMENT, pods)
    assert [each.name for each in found.pods] == ["train-0", "train-1", "train-1-2"]
    assert [each.name for each in newest(found.pods)] == ["train-0", "train-1-2"]
    assert found.running == 2
    assert pod_in_words(found.pods[1]) == "failed (Evicted: The node was low on resource: memory.)"


def test_why_a_pod_waits_is_said_in_kubernetes_own_words() -> None:
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    found = pod(a_pod("train-0", "agent", {"phase": "Pending", "conditions": [unplaced]}))
    assert pod_in_words(found) == f"waits (Unschedulable: {words})"


def test_a_rank_is_found_in_its_pod() -> None:
    shapes = (
        PodShape(roles=("ps",), pods=1, workers=1, image="a"),
        PodShape(roles=("worker",), pods=2, workers=4, image="b"),
    )
    plan = PodPlan(name="x", namespace="n", job="x", holdfast_image="h", shapes=shapes)
    assert [rank_at(plan, rank) for rank in (0, 1, 4, 5, 8, 9)] == [(0, 1), (1, 4), (1, 4), (2, 4), (2, 4), None]


@pytest.mark.parametrize("letter", ["x", "é", "\N{SNOWMAN}", '"'])
def test_a_termination_message_fits_whatever_the_reason_is(letter: str) -> None:
    report = ExitReport(
        code=255,
        phrase="Unexplained",
        blame=Blame.WORKLOAD,
        rerun=Rerun.UNKNOWN,
        reason=letter * 9000,
        solution=letter * 9000,
        first=Culprit(role="worker", rank=3, node="k1"),
    )
    text = termination_message(JobReport(job_id="j", name="train", outcome=Outcome.FAILED, report=report))
    assert len(text) <= 4096
    found = json.loads(text)
    assert (found["code"], found["phrase"], found["rank"]) == (255, "Unexplained", 3)


def test_a_wish_is_an_annotation_and_what_is_none_is_passed_over() -> None:
    wish = StopAnnotation(id="1", reason="enough", code=231, phrase="NodeDrained", who="eve")
    assert wish_of(stop_request_patch(wish)) == wish
    for text in ("", "{", '{"id": 1}', "x" * 100_000):
        assert wish_of({"metadata": {"annotations": {REQUEST: text}}}) is None
    assert wish_of({}) is None


def test_an_owner_that_has_died_is_no_job_that_never_began() -> None:
    found = job_seen(
        JOB_DOCUMENT, [owner_pod(terminated={"exitCode": 2, "message": "holdfast: job file: no such key\n"})]
    )
    assert found.state is ClusterJobState.PENDING
    assert found.said == "its pod train-x ended with 2 (holdfast: job file: no such key)"


def test_a_job_says_why_its_owner_cannot_be_made_and_what_a_running_one_lacks() -> None:
    about = {"kind": "Job", "name": "train", "uid": "u"}
    words = 'pods "train-x" is forbidden: maximum memory usage per Container is 500Mi'
    refused = event({"reason": "FailedCreate", "message": words, "involvedObject": about})
    other = event({"reason": "FailedCreate", "message": "of another Job", "involvedObject": {**about, "uid": "v"}})
    assert job_seen(JOB_DOCUMENT, [], events=[refused, other]).said == f"the owner's pod cannot be made: {words}"

    header = Header(of="u", owner="o", job_id="j", name="train", waits="pod train-1 cannot be made yet: quota")
    assert job_seen(JOB_DOCUMENT, [owner_pod(running={})], header=header).said == header.waits
    no_room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    waits = a_pod("train-0", "agent", {"phase": "Pending", "conditions": [no_room]})
    assert job_seen(JOB_DOCUMENT, [owner_pod(running={}), waits]).said == "pod train-0 waits (Unschedulable: 0/3 nodes)"
    begins = a_pod("train-0", "agent", {"phase": "Pending"})
    assert job_seen(JOB_DOCUMENT, [owner_pod(running={}), begins]).said == ""
    message = json.dumps({"phrase": "SchedulerError", "reason": "no right"})
    before = owner_pod(terminated={"exitCode": 78, "message": message})
    before["metadata"] |= {"name": "train-w", "creationTimestamp": "2026-11-22T20:59:00Z"}
    assert "SchedulerError: no right" in job_seen(JOB_DOCUMENT, [owner_pod(running={}), before]).said
