"""Takes over a job that its platform has restarted: finds the job in the state directory, and replays its journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.decide.gang import Gang
from holdfast.decide.phases import Phase
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.model import events as ev
from holdfast.model.actions import FinishJob
from holdfast.model.evidence import StopRequest
from holdfast.model.job_spec import NodeInfo
from holdfast.platforms.platform_registry import must_be_known, title_of
from holdfast.record.job_directory import claim_again
from holdfast.record.job_lookup import runs_of
from holdfast.record.job_views import events
from holdfast.record.journal import Journal
from holdfast.record.lost_owner_report import last_sign
from holdfast.record.owner_lock import OwnerLock, read_owner
from holdfast.record.state_directory import job_dir

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.faults import DeviceStanding
    from holdfast.record.job_directory import JobPlace

    History = Sequence[tuple[float, ev.Event]]


def place_of_before(launch: LaunchSpec, run: int) -> tuple[JobPlace | None, str]:
    """Find the earlier run of this job in the state directory, and take over its directory.

    Return None and a message for the user if there is no such run; the message may be empty. `run`: how often the
    platform has restarted the job. A batch script may contain several jobs. The job that has the same name and command
    and has not ended is taken over.
    """
    spec = launch.spec
    assert spec.platform is not None, "only a platform starts a job again"
    found = runs_of(launch.home, spec.platform)
    if not found:
        name, here = launch.environment.get("HOLDFAST_HOME"), os.uname().nodename
        shown = f"HOLDFAST_HOME={name}" if name else str(launch.home)
        return None, (
            f"{title_of(spec.platform.platform)} has started job {spec.platform.id} again (restart {run}), and {shown} "
            f"on {here} knows no run of it before: the job begins anew, with attempt 1; for attempts, budgets and "
            "history to go on, set HOLDFAST_HOME to a directory that all nodes share"
        )
    for owner in reversed(found):
        if owner.name != spec.name or owner.run >= run:
            continue
        history = list(events(launch.home, owner.job_id))
        if not _goes_on(history, launch):
            continue
        try:
            return claim_again(launch.home, owner, run=run, log_dir=launch.log_dir), ""
        except OSError:
            continue  # another `holdfast run` of the same script took this job over first
    return None, ""


def _goes_on(history: History, launch: LaunchSpec) -> bool:
    """Return whether the job with these journaled events has not ended and has the same command as the launch."""
    first = history[0][1] if history else None
    if not isinstance(first, ev.JobSubmitted):
        return False
    commands = [role.command for role in first.spec.roles]
    if commands != [role.command for role in without_secrets(launch.spec).roles]:
        return False
    return replayed(history, launch.catalogue).phase is not Phase.DONE


def replayed(history: History, catalogue: Catalogue | None) -> Gang:
    """Return the gang in the state that follows from all journaled events of the history."""
    gang = Gang(catalogue)
    for now, event in history:
        gang.handle(event, now)
    return gang


def end_queued(home: Path, job_id: str, request: StopRequest) -> bool:
    """End a job that waits for its platform to restart it, and record the end in the journal.

    Return False if the job does not wait for a restart.
    """
    directory = job_dir(home, job_id)
    before = read_owner(directory)
    if before is None:
        return False
    try:
        lock = OwnerLock.take(directory, before)
    except OSError:
        return False
    journal = Journal.open(home)
    try:
        now = request.at or 0.0
        gang = replayed(list(journal.events(job_id)), None)
        if gang.phase is not Phase.QUEUED:
            return False
        journal.of_run(job_id, before.run)
        event = ev.StopRequested(request=request)
        journal.append(job_id, now, event)
        for action in gang.handle(event, now):
            if isinstance(action, FinishJob):
                journal.finish(action.report, now=now)
        return True
    finally:
        journal.close()
        lock.release()


def resumption(
    launch: LaunchSpec,
    place: JobPlace,
    before: GangView,
    history: History,
    *,
    nodes: tuple[NodeInfo, ...] = (),
    kept_out: tuple[DeviceStanding, ...] = (),
) -> list[ev.Event]:
    """Return the first events for the owner of a restarted job: how its previous run ended, and the restart itself.

    `place`: the job's directory. `history`: the journaled events of previous runs. `before`: the gang's state after
    these events. `nodes`: the nodes of the new run. `kept_out`: excluded devices and nodes.
    """
    platform = launch.spec.platform
    assert platform is not None, "only a platform starts a job again"
    end = must_be_known(platform.platform, "platform").end_of_run(platform, before)
    resumed = ev.JobResumed(
        platform=f"{title_of(platform.platform)} job {platform.id}",
        run=place.run,
        reason=end.reason,
        phrase=end.phrase,
        spec=launch.spec,
        nodes=nodes,
        kept_out=kept_out,
        seen_at=last_sign(place.home, place.lock.supervisor, history),
    )
    return [*end.said, resumed]
