"""Copy the job's events to the ConfigMap NAME-state, so that the owner's next pod can take the job over.

One write is pending at a time. The next write has all events that came after it. An attempt starts only after its
number and all earlier events are written. The job goes on while the API server is away, because the agents know the
highest attempt number and report it to the next owner. A refused write is also retried: an API server refuses every
request in the first seconds after its start, and an administrator may restore a permission.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble, Method
from holdfast.platforms.kubernetes.objects.saved_state import Events, Header, header_of, patch, version_of
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper

if TYPE_CHECKING:
    from holdfast.model.decisions import JobReport
    from holdfast.reactor import DueCall, News

#: How long an attempt waits for its number to be written before it starts anyway, in seconds.
WAIT_S = 10.0
LIMIT_S = 5.0
#: First and longest pause before the next try while the API server is away or refuses, in seconds.
RETRY_S = 2.0
LONGEST_PAUSE_S = 60.0


class StateMirror:
    """Copies one owner's events to the ConfigMap."""

    def __init__(
        self,
        asking: ApiHelper,
        header: Header,
        namespace: str,
        name: str,
        say: Callable[[str], None],
        taken: Callable[[str, float], News],
    ) -> None:
        """Prepare to copy events. `begin` starts with a read of the ConfigMap.

        `asking`: sends requests to the API server.
        `header`: the header of the saved state, which names this owner.
        `namespace`, `name`: namespace and name of the job's objects.
        `say`: prints a message of the owner.
        `taken(by, now)`: called when another owner has taken over the job.
        """
        self._asking = asking
        self._header = header
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{object_names.state_config(name)}"
        self._shown = f"kubectl -n {namespace} get configmap {object_names.state_config(name)}"
        self._say = say
        self._taken = taken
        self._events = Events()
        #: The ConfigMap's resource version at the last read or write. If empty, the ConfigMap must be read first.
        self._version = ""
        #: Whether a request to the API server is pending.
        self._busy = False
        #: Whether events or the header have changed since the last write began.
        self._wanted = False
        #: True if nothing is written any more: the ConfigMap is gone, or another owner has taken over the job.
        self._lost = False
        #: Whether the API server has refused the last try. If so, attempts and the job's end do not wait for a write.
        self._refused = False
        self._pause_s = RETRY_S
        #: Whether the messages "writing fails" and "the history is cut" have been printed.
        self._told = self._told_cut = False
        self._again: DueCall | None = None
        self._waiting: list[tuple[ev.JournalSecured, DueCall]] = []

    def begin(self, history: Iterable[tuple[float, ev.Event]]) -> None:
        """Start to copy events. `history`: the job's events so far, with their times."""
        for now, event in history:
            self._events.add(now, event)
        self._wanted = True
        self._read()

    def noted(self, event: ev.Event, now: float) -> None:
        """Add an event that the journal has recorded."""
        self._events.add(now, event)
        self._wanted = True
        self._write()

    def secured(self, event: ev.JournalSecured, now: float) -> News:
        """Return `event`, or deliver it later, as soon as the ConfigMap has the attempt's number.

        The journal already has the number.
        """
        if event.trouble or not self.writing:
            return [event]
        moment = self._asking.reactor.at(now + WAIT_S, partial(self._late, event))
        self._waiting.append((event, moment))
        return None

    def at(self, attempt: int) -> None:
        """Record the number of the current attempt."""
        if attempt != self._header.attempt:
            self._header = replace(self._header, attempt=attempt)

    def waits(self, why: str) -> None:
        """Record why a pod cannot be created. Empty: all pods are created."""
        if why != self._header.waits:
            self._header = replace(self._header, waits=why)
            self._wanted = True
            self._write()

    def finished(self, report: JobReport) -> None:
        """Record that the job has ended, so that a further pod of the owner does nothing."""
        self._header = replace(self._header, code=report.report.code, phrase=report.report.phrase, waits="")
        self._wanted = True
        self._write()

    def give_up(self) -> None:
        """Write no more: the ConfigMap is being deleted with its Job."""
        self._lost = self._told = True

    @property
    def writing(self) -> bool:
        """Whether some events are missing from the ConfigMap and may soon be written."""
        return not (self._lost or self._refused) and (self._wanted or self._busy)

    # ---------------------------------------------------------------------------- reading and writing the ConfigMap

    def _read(self) -> None:
        self._busy = True
        self._asking.ask(Method.GET, self._path, self._was_read, limit_s=LIMIT_S)

    def _was_read(self, answer: Answered, now: float) -> News:
        self._busy = False
        if not answer.ok:
            return self._trouble(answer, now)
        found = header_of(answer.body)
        if found is not None and found.owner != self._header.owner and found.of == self._header.of:
            return self._is_taken(found, now)
        self._version = version_of(answer.body)
        self._write()
        return None

    def _write(self) -> None:
        """Write the state to the ConfigMap, unless a write is pending or nothing has changed."""
        if self._busy or self._lost or not self._wanted or not self._version or self._again is not None:
            return
        self._busy, self._wanted = True, False
        if self._events.cut and not self._told_cut:
            self._told_cut = True
            self._say(
                "the job's history is longer than a ConfigMap holds: a next pod of the owner knows its beginning only\n"
                "  try: a volume for HOLDFAST_HOME in the owner's pod"
            )
        header = replace(self._header, events=self._events.count, cut=self._events.cut)
        body = patch(header, self._events, self._version)
        self._asking.ask(Method.PATCH, self._path, self._was_written, body=body, limit_s=LIMIT_S)

    def _was_written(self, answer: Answered, now: float) -> News:
        """Handle the API server's answer to a write. After a conflict, read the state again."""
        self._busy = False
        if answer.trouble is ApiTrouble.CONFLICT:
            self._wanted, self._version = True, ""
            self._read()  # another owner has written, or our last write succeeded and its answer was lost
            return None
        if not answer.ok:
            self._wanted = True
            return self._trouble(answer, now)
        self._version = version_of(answer.body)
        self._refused, self._pause_s = False, RETRY_S
        if self._told:
            self._told = False
            self._say("the job's state is written again")
        if self._wanted:
            self._write()
            return None
        return self._release()

    def _trouble(self, answer: Answered, now: float) -> News:
        """Report a failure once. Then retry later, or give up if a retry cannot help."""
        self._refused = answer.trouble is ApiTrouble.REFUSED
        if not self._told:
            self._told = True
            self._say(
                f"the job's state is not written: {answer.said}; the job goes on, and a next pod of the owner "
                f"would know less of it\n  try: {self._shown}"
            )
        if answer.trouble in (ApiTrouble.GONE, ApiTrouble.INVALID, ApiTrouble.MISSING):
            self._lost = True
            return self._release()
        self._again = self._asking.reactor.at(now + self._pause_s, self._due)
        if not self._refused:
            return None
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return self._release()

    def _due(self, now: float) -> News:
        self._again = None
        if self._version:
            self._write()
        else:
            self._read()
        return None

    def _is_taken(self, by: Header, now: float) -> News:
        self._lost = True
        self._release()
        return self._taken(by.pod or by.owner, now)

    def _release(self) -> News:
        waiting, self._waiting = self._waiting, []
        for _, moment in waiting:
            moment.close()
        return [event for event, _ in waiting]

    def _late(self, event: ev.JournalSecured, now: float) -> News:
        self._waiting = [(kept, moment) for kept, moment in self._waiting if kept is not event]
        return [event]


def new_owner(pod_uid: str) -> str:
    """Return a unique token for an owner process."""
    return f"{pod_uid or os.uname().nodename}/{os.urandom(4).hex()}"
