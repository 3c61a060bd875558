"""Publish a job's decisions and result in Kubernetes.

Each decision and the job's end become Events of the Job. The termination message of the owner's container has the
result. The state's ConfigMap has the whole report for `holdfast show`. A failed Job is kept from starting another
owner's pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model.codec import encode
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.client_messages import Answered, Method
from holdfast.platforms.kubernetes.objects.job_status import REPORT, termination_message
from holdfast.safe_files import write_given
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
    from holdfast.reactor import News

#: Maximum size of the stored report, in bytes. A ConfigMap holds 1 MiB, and the job's events may take the rest.
MOST_REPORT_BYTES = 250_000
PATIENCE_S = 10.0
#: Maximum length of an Event's message, in characters. The API server accepts 1024 bytes.
MOST_EVENT = 1000


class DecisionEvents:
    """Publishes the decisions of one job."""

    def __init__(self, asking: ApiHelper, namespace: str, name: str, say: Callable[[str], None]) -> None:
        """`asking`: sends requests to the API server. `namespace`, `name`: namespace and name of the owner's Job.

        `say`: prints a message of the owner.
        """
        self._asking = asking
        self._state = f"/api/v1/namespaces/{namespace}/configmaps/{object_names.state_config(name)}"
        self._job = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        self._say = say
        self._namespace = namespace
        self._name = name
        #: Uid of the Kubernetes Job that runs the owner's pod.
        self._uid = ""
        #: Whether the Job has a failure policy that handles the final exit codes.
        self._policy = False
        self._open = 0

    @property
    def writing(self) -> bool:
        return self._open > 0

    def job_is(self, job: Mapping[str, Any]) -> None:
        """Store uid and failure policy of the owner's Kubernetes Job. `job`: the record from the API server."""
        self._uid = str((job.get("metadata") or {}).get("uid") or "")
        self._policy = bool((job.get("spec") or {}).get("podFailurePolicy"))

    def recorded(self, record: AttemptRecord) -> None:
        """Publish an attempt's end with the decision about the next attempt."""
        why = record.report
        words = f"attempt {record.attempt}: {why.phrase}: {why.reason}; {record.decision.kind.value}: "
        self._event(f"attempt-{record.attempt}", why.phrase, words + record.decision.reason, why.code != 0)

    def finished(self, report: JobReport) -> None:
        """Publish the job's final report as an Event, as termination message, and in the state's ConfigMap."""
        end = report.report
        self._event("end", end.phrase, f"{report.outcome.value}: {end.reason}", end.code != 0)
        path = Path(object_names.TERMINATION_LOG)
        if path.exists():
            try:
                write_given(path, termination_message(report))
            except OSError as error:
                self._say(f"{path}: the result cannot be written there: {error.strerror}")
        whole = encode(report)
        if len(whole) <= MOST_REPORT_BYTES:
            self._patch(self._state, {"data": {REPORT: whole.decode()}})
        if report.report.code != 0 and not self._policy:
            # Without a failure policy the server would start another owner's pod, which could only repeat the result.
            self._patch(self._job, {"spec": {"backoffLimit": 0}})

    def _event(self, which: str, reason: str, message: str, warning: bool) -> None:
        """Create an Event about the Job. `which`: part of the Event's name that is unique within the job."""
        at = datetime.fromtimestamp(self._asking.reactor.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": "Job", "namespace": self._namespace, "name": self._name, "uid": self._uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._name}.{which}",
                "namespace": self._namespace,
                "labels": object_names.labels(self._name, object_names.OWNER),
            },
            "involvedObject": {"apiVersion": "batch/v1", **about},
            "reason": reason,
            "message": one_line(message)[:MOST_EVENT],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "holdfast"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

        def done(answer: Answered, now: float) -> News:
            self._open -= 1
            return None  # ignore failures, for example 409 if the owner's earlier pod wrote the Event

        self._open += 1
        path = f"/api/v1/namespaces/{self._namespace}/events"
        self._asking.ask(Method.POST, path, done, body=event, patience_s=PATIENCE_S)

    def _patch(self, path: str, body: Any) -> None:
        def done(answer: Answered, now: float) -> News:
            self._open -= 1
            if not answer.ok:
                self._say(f"the result cannot be written to {path.rpartition('/')[2]}: {answer.said}")
            return None

        self._open += 1
        self._asking.ask(Method.PATCH, path, done, body=body, patience_s=PATIENCE_S)
