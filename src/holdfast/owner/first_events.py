"""Makes an owner's first events: the job's submission, or its continuation after the platform started it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.model.events import Event, JobResumed, JobSubmitted
from holdfast.record.local_time import local
from holdfast.wire.fault_news import SOCKET_NAME

if TYPE_CHECKING:
    from holdfast.decide.owner import Owner
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.faults import DeviceStanding
    from holdfast.model.job_spec import NodeInfo
    from holdfast.owner.job_records import JobRecords
    from holdfast.record.job_directory import JobPlace


def first_events(
    launch: LaunchSpec,
    place: JobPlace,
    records: JobRecords,
    owner: Owner,
    now: float,
    nodes: tuple[NodeInfo, ...] = (),
    kept_out: Callable[[], tuple[DeviceStanding, ...]] = tuple,
) -> list[Event]:
    """Journal that the job begins or continues, and return the owner's first events.

    `nodes`: the nodes that are present from the start. `kept_out()`: their devices that get no work.
    """
    host = os.uname().nodename
    if place.resumed and (history := list(records.history())):
        from holdfast.platforms.job_takeover import resumption  # imported late, because a usual start has no history

        (place.directory / SOCKET_NAME).unlink(missing_ok=True)  # the earlier run made this socket; it leads nowhere
        owner.recover(history, now)
        view = owner.gang.view()
        records.begin_again(launch, now, host, view.attempt)
        return resumption(launch, place, view, history, nodes=nodes, kept_out=kept_out())
    records.begin(launch, now, host=host)
    submitted = JobSubmitted(
        job_id=place.job_id,
        spec=launch.spec,
        nodes=nodes,
        kept_out=kept_out(),
        seed=int.from_bytes(os.urandom(4)),
        utc_offset_s=local(now),
        run=place.run,
    )
    return [submitted]


def of_this_run(history: Sequence[tuple[float, Event]], run: int) -> Sequence[Event]:
    """Return the events since the platform restarted the job for this run; none if no owner of this run has started."""
    for index, (_, event) in enumerate(history):
        if isinstance(event, JobSubmitted | JobResumed) and event.run == run:
            return [event for _, event in history[index:]]
    return []
