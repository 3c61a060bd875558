"""An owner's first events: the job's submission, or the platform's new start of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.events import Event, JobSubmitted
from holdfast.record.local_time import local

if TYPE_CHECKING:
    from holdfast.decide.owner import Owner
    from holdfast.loop.order import Launch
    from holdfast.loop.records import Records
    from holdfast.model.faults import DeviceStanding
    from holdfast.model.jobs import NodeInfo
    from holdfast.record.places import JobPlace


def first_events(
    launch: Launch,
    place: JobPlace,
    records: Records,
    owner: Owner,
    now: float,
    nodes: tuple[NodeInfo, ...] = (),
    kept_out: Callable[[], tuple[DeviceStanding, ...]] = tuple,
) -> list[Event]:
    """Write down that the job begins, or goes on, and give the owner its first events.

    `nodes`: those that are present from the start; `kept_out()`: which of their devices get no work.
    """
    host = os.uname().nodename
    if place.resumed and (history := list(records.history())):
        from holdfast.loop.devices.notice import SOCKET_NAME  # as the next line
        from holdfast.loop.taking_over import resumption  # no start has a history

        (place.directory / SOCKET_NAME).unlink(missing_ok=True)  # the cause was the run before: nothing follows from it
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
