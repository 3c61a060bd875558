"""Lets a new owner's pod take over the job of the previous one, from the ConfigMap NAME-state or from a volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble, Method
from holdfast.platforms.kubernetes.objects.pod_context import OWNER_TOKEN
from holdfast.platforms.kubernetes.objects.saved_state import Events, Header, events_of, header_of, patch, version_of
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.state_mirror import new_owner
from holdfast.reactor import Reactor
from holdfast.record.database import make_private_dir
from holdfast.record.job_directory import JobPlace, claim_again
from holdfast.record.job_views import events
from holdfast.record.journal import Journal
from holdfast.record.owner_lock import OwnerInfo
from holdfast.record.state_directory import job_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.clock import Clock
    from holdfast.model.events import Event

#: How long to wait for an API server that is away, in seconds. Without the server no pod can be created anyway.
PATIENCE_S = 300.0
#: How often to try to take over the saved state. A try fails if another owner writes it at the same time.
TRIES = 5


class ApiUnavailable(HoldfastError):
    """The API server does not answer. This process exits, and Kubernetes restarts this pod or starts another one."""

    exit_status = 1


class JobAlreadyEnded(Exception):
    """The job of this owner's pod has already ended, so there is nothing to take over.

    `header`: the header of the saved state, which has the job's final code.
    """

    def __init__(self, header: Header) -> None:
        super().__init__()
        self.header = header


def adopt(home: Path, clock: Clock, say: Callable[[str], None]) -> JobPlace | None:
    """Return the directory of the job that a previous pod's owner ran, with its history. Return None if the job is new.

    From now on the saved state belongs to this owner, and the previous owner's next write fails. Raises
    `JobAlreadyEnded`, `ApiUnavailable`.
    """
    environment = os.environ
    name, namespace = environment[object_names.JOB_NAME], environment.get(object_names.NAMESPACE, "default")
    os.environ[OWNER_TOKEN] = new_owner(environment.get(object_names.POD_UID, ""))
    asking = ApiHelper(Reactor(clock.now), environment)
    try:
        return _adopt(asking, name, namespace, home, clock, say)
    finally:
        asking.close()
        asking.reactor.close()


def _adopt(
    asking: ApiHelper, name: str, namespace: str, home: Path, clock: Clock, say: Callable[[str], None]
) -> JobPlace | None:
    """Take over the state in the ConfigMap with compare-and-swap, and store its events in `home`."""
    job = _asked(asking, Method.GET, f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    meta = (job.body.get("metadata") or {}) if isinstance(job.body, dict) else {}
    path = f"/api/v1/namespaces/{namespace}/configmaps/{object_names.state_config(name)}"
    shown = f"kubectl -n {namespace} get configmap {object_names.state_config(name)}"
    for _ in range(TRIES):
        config = _asked(asking, Method.GET, path)
        if not config.ok:
            say(f"no state of a pod before this one can be read: {config.said}")
            return None
        header = header_of(config.body)
        if header is None or header.of != str(meta.get("uid") or ""):
            return None
        if header.code is not None:
            raise JobAlreadyEnded(header)
        history = list(events_of(config.body))
        mine = replace(header, owner=os.environ[OWNER_TOKEN], pod=os.environ.get(object_names.POD, ""))
        kept = Events()
        for now, event in history:
            kept.add(now, event)
        taken = _asked(asking, Method.PATCH, path, patch(mine, kept, version_of(config.body)))
        if taken.trouble is ApiTrouble.CONFLICT:
            continue
        if not taken.ok:
            raise ApiUnavailable(f"the job's state cannot be taken over: {taken.said}", hint=shown)
        say(f"job {header.job_id}: this pod takes it over from {header.pod or 'the one before'}")
        return _place(home, header, history, clock)
    raise ApiUnavailable(f"{TRIES} owners in a row have taken the state of {name}", hint=shown)


def _asked(asking: ApiHelper, method: Method, path: str, body: object = None) -> Answered:
    """Send a request and block until the answer comes. Nothing else runs at this time. Raises `ApiUnavailable`."""
    answers: list[Answered] = []
    asking.ask(method, path, lambda answer, now: answers.append(answer), body=body, patience_s=PATIENCE_S)
    while not answers:
        asking.reactor.wait()
    if answers[0].trouble in (ApiTrouble.AWAY, ApiTrouble.SLOW):
        said = f"Kubernetes does not say whether this job runs: {answers[0].said}"
        raise ApiUnavailable(said, hint="kubectl get --raw /readyz")
    return answers[0]


def _place(home: Path, header: Header, history: list[tuple[float, Event]], clock: Clock) -> JobPlace:
    """Create the job's directory and journal. If a volume already has them, append the missing events."""
    make_private_dir(home / "jobs")
    directory = job_dir(home, header.job_id)
    directory.mkdir(mode=0o700, exist_ok=True)
    known = sum(1 for _ in events(home, header.job_id)) if (home / "holdfast.db").exists() else 0
    journal = Journal.open(home)
    try:
        first = history[0][1] if history else None
        spec = getattr(first, "spec", None)
        if not known and spec is not None:
            journal.create_job(header.job_id, spec, now=header.created, host=os.uname().nodename, pid=os.getpid())
        for now, event in history[known:]:
            journal.append(header.job_id, now, event)
    finally:
        journal.close()
    if history:
        clock.not_before(history[-1][0])
    before = OwnerInfo(job_id=header.job_id, name=header.name, host=header.pod, pid=0, created=header.created)
    return claim_again(home, before, run=0)
