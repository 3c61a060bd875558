"""What a report prints of a job in a cluster can be typed where it is read: the job has another name there."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import failed_job
from holdfast.cli.options.run_option_table import render
from holdfast.platforms.kubernetes.kubernetes_platform import KubernetesPlatform
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.remote_jobs import typed_outside

ID = "20261127-0738-eruy"
WHERE = "--platform kubernetes -n ns"
OWNERS_POD = {object_names.JOB_NAME: "train", object_names.NAMESPACE: "ns"}


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (f"holdfast logs {ID} --attempt 1 --rank 0", f"holdfast logs train {WHERE} --rank 0"),
        (f"holdfast show {ID} --verbose", f"holdfast show train {WHERE} --verbose"),
        (f"HOLDFAST_HOME=/var/lib/holdfast holdfast show {ID}", f"holdfast show train {WHERE}"),
        (f"holdfast stop {ID} --reason TEXT", f"holdfast stop train {WHERE} --reason TEXT"),
        ("holdfast exits Unexplained", "holdfast exits Unexplained"),
        ("kubectl -n ns describe pod train-0", "kubectl -n ns describe pod train-0"),
    ],
)
def test_a_command_of_the_report_names_the_job_of_the_cluster(command: str, typed: str) -> None:
    assert typed_outside(command, job=ID, name="train", where=WHERE) == typed
    platform = KubernetesPlatform()
    assert platform.outside(command, ID, OWNERS_POD) == typed
    assert platform.outside(command, ID, {}) == command
    assert platform.outside(command, ID, OWNERS_POD | {object_names.OWNER_ADDRESS: "10.0.0.1:1"}) == command


def test_the_report_in_the_owners_pod_can_be_typed_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    report = failed_job(ID)

    def printed() -> list[str]:
        text = render(report, logs=Path("/none"), width=200, colour=False, verbose=False, home="/var/lib/holdfast")
        return [line for line in text.splitlines()[1:] if "holdfast show" in line]

    [here] = printed()
    assert f"HOLDFAST_HOME=/var/lib/holdfast holdfast show {ID}" in here
    for name, value in OWNERS_POD.items():
        monkeypatch.setenv(name, value)
    [there] = printed()
    assert f"holdfast show train {WHERE}" in there and ID not in there and "HOLDFAST_HOME" not in there
