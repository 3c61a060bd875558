"""Finds the logs of pods and Jobs that holdfast did not start, by kubectl: `pod/NAME`, `job/NAME`, `SPACE/pod/NAME`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.errors import BadUsage
from holdfast.platforms.program_output import PrintedLog, program_output
from holdfast.untrusted import Malformed, json_leniently

MOST_PODS = 64


def foreign_job(word: str) -> Iterator[PrintedLog]:
    """Return the logs of a pod, or of the pods of a Job, and their states. Raise `BadUsage`."""
    *front, kind, name = word.split("/")
    space = [f"--namespace={front[0]}"] if front else []
    status, shown, trouble = program_output(["kubectl", "get", kind, name, *space, "-o", "json"])
    if status != 0:
        raise BadUsage(f"{kind}/{name}: kubectl does not find it: {trouble}", hint=f"kubectl get {kind}s")
    pods = [_json(shown)]
    if kind == "job":
        status, text, trouble = program_output(
            ["kubectl", "get", "pods", *space, "-l", f"job-name={name}", "-o", "json"]
        )
        pods = _json(text).get("items") or [] if status == 0 else []
        if not pods:
            # the pods of a failed job may be gone; what the job itself says is left
            yield PrintedLog(name=f"kubectl get job {name}", text=shown)
            return
    for pod in pods[:MOST_PODS]:
        named = str((pod.get("metadata") or {}).get("name") or name)
        yield from _of_pod(named, pod, space)
    yield PrintedLog(name=f"kubectl get {kind} {name}", text=shown)


def _of_pod(name: str, pod: dict[str, Any], space: Sequence[str]) -> Iterator[PrintedLog]:
    words = ["kubectl", "logs", name, *space, "--all-containers=true", "--tail=200000"]
    status, text, _ = program_output(words)
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    restarted = any(each.get("restartCount") and not (each.get("state") or {}).get("terminated") for each in containers)
    if restarted:
        # a container that was started again has its failure in the log of the run before
        before, old, _ = program_output([*words, "--previous"])
        status, text = (0, old) if before == 0 and old.strip() else (status, text)
    if status == 0 and text.strip():
        yield PrintedLog(name=f"kubectl logs {name}", text=text)
    yield PrintedLog(name=f"kubectl get pod {name}", text=json.dumps(pod))


def _json(text: str) -> dict[str, Any]:
    try:
        found = json_leniently(text)
    except Malformed:
        found = None
    if not isinstance(found, dict):
        raise BadUsage("kubectl printed no JSON object", hint="kubectl version")
    return found
