"""`holdfast stop` for a job of a cluster whose owner does not answer, since the job ends at the same moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, list_reply, status

from holdfast.errors import HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.remote import cluster_stop

LABELS = {"app.kubernetes.io/managed-by": "holdfast"}
METADATA = {"name": "train", "namespace": "ns", "uid": "u", "labels": LABELS, "resourceVersion": "5"}
RUNNING = {"metadata": METADATA, "status": {"active": 1}}
DONE = {"metadata": METADATA, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
OWNER = {
    "metadata": {"name": "train-owner", "labels": {"holdfast.io/job": "train", "holdfast.io/part": "owner"}},
    "status": {"phase": "Running", "containerStatuses": [{"name": "owner", "state": {"running": {}}}]},
}


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize(
    ("later", "said"),
    [
        ((200, DONE), "job train in namespace ns is over already: it has succeeded; there is nothing to stop"),
        (status(404, "NotFound", "gone"), "job train in namespace ns has just been deleted; there is nothing to stop"),
        ((200, RUNNING), "its owner has not answered"),
        (status(500, "InternalError", "no leader"), "its owner has not answered"),
    ],
)
def test_a_job_that_ends_while_it_is_asked_needs_no_stop(later: ApiReply, said: str, tmp_path: Path) -> None:
    requests: list[Any] = []

    def answer(ask: Asked) -> ApiReply | None:
        if ask.method == "PATCH":
            requests.append(ask.body)
            return 200, RUNNING
        if ask.watches:
            return 200, []
        if ask.path.endswith("/pods"):
            return list_reply(5, OWNER)
        return later if requests else (200, RUNNING)

    with api(answer, tmp_path) as environment, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", environment["KUBECONFIG"])
        with BlockingClient.here() as client:
            try:
                words: dict[str, Any] = {"reason": "enough", "solution": "", "phrase": "", "code": None, "who": "ada"}
                printed = cluster_stop.stop(client, "ns", "train", **words)
            except HoldfastError as error:
                printed = str(error)
    assert said in printed and len(requests) == 1
