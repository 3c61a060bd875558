"""What `show` prints of a job in a cluster can be typed where it is read: the job has another name there."""

from __future__ import annotations

import pytest

from builders import failed_job
from holdfast.cli.job_access.cluster_jobs import _outside
from holdfast.platforms.kubernetes.objects.job_status import ClusterJob, ClusterJobState
from holdfast.platforms.kubernetes.remote.cluster_jobs import ClusterJobView

JOB = ClusterJob(name="train", namespace="ns", uid="u", state=ClusterJobState.FAILED, created=0.0)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("holdfast logs ID --attempt 1 --rank 0", "holdfast logs train --platform kubernetes -n ns --rank 0"),
        ("holdfast show ID --verbose", "holdfast show train --platform kubernetes -n ns --verbose"),
        ("holdfast exits Unexplained", "holdfast exits Unexplained"),
        ("kubectl -n ns describe pod train-0", "kubectl -n ns describe pod train-0"),
    ],
)
def test_a_command_of_the_report_names_the_job_of_the_cluster(command: str, typed: str) -> None:
    report = failed_job("20261127-0738-eruy")
    found = ClusterJobView(job=JOB, report=report)
    assert _outside(found, command.replace("ID", report.job_id)) == typed
    assert _outside(ClusterJobView(job=JOB), command) == command
