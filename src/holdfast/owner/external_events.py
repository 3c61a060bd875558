"""Handles events from outside the job: signals, and the platform's reports about signals.

Some platforms send a signal to every process of a job. Workers then die before the platform reports why, and sometimes
before holdfast gets the signal. Only the platform's report explains such a death. So the owner delays the attempt's
evidence until the report arrives.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.explain.text.secret_filter import without_secrets
from holdfast.model import actions as do
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.faults import Remedy
from holdfast.platforms.platform_registry import title_of

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.owner.job_outputs import JobOutputs
    from holdfast.platforms.job_watch import JobWatch
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace

#: Seconds that the platform has, at the job's end, to store why the job ended.
LAST_WORD_S = 3.0
#: The longest delay of the evidence after a worker died of a signal, in seconds. By then holdfast has received the
#: signal too. The limit matters if the platform's records do not mention the signal.
ARRIVES_S = 0.5


class ExternalEvents:
    """Connects the owner with the job's platform (such as Slurm) and with the job's outputs."""

    def __init__(
        self,
        reactor: Reactor,
        platform: JobWatch | None,
        place: JobPlace,
        say: Callable[[str], None],
        outputs: JobOutputs | None = None,
    ) -> None:
        """Connect the owner with the platform and the outputs.

        `platform`: None if the job runs on no platform; a signal then needs no explanation. `place`: the job's
        directory. `say`: prints a message. `outputs`: None if the user chose none.
        """
        self._platform = platform
        self._outputs = outputs
        self._place = place
        self._say = say
        #: The request to the platform for another run of the job; None: there is none.
        self.asked: do.Requeue | None = None
        self._reactor = reactor
        self._avoided: frozenset[str] = frozenset()
        self._held: list[ev.Event] = []
        self._until = 0.0

    def begin(
        self,
        view: Callable[[], GangView],
        now: float,
        earlier: Sequence[AttemptRecord] | None,
        heard_at: Callable[[str], float | None],
    ) -> News:
        """Start the platform and the outputs, when the owner starts.

        `earlier`: the attempts of a job that this owner continues; None: the job is new. `heard_at(node)`: returns when
        the node's agent last reported, or None.
        """
        if self._outputs is not None:
            self._outputs.begin(earlier)
        self.moved(view)
        return self._platform.begin(now, self._place, heard_at) if self._platform is not None else None

    def holds(self, event: ev.Event, now: float) -> bool:
        """Return whether this evidence must be delayed. If so, store it.

        Delay it if a signal may explain the workers' deaths, or if the platform is about to report a fact about the
        attempt.
        """
        platform = self._platform
        if platform is None or not isinstance(event, ev.EvidenceCollected) or event in self._held:
            return False
        explained = event.evidence.stop is not None
        if event.evidence.lost:
            platform.broken_off(event.attempt)
        ends = (worker.exit for worker in event.evidence.workers if worker.exit is not None and not explained)
        felled = [end.ended_at or now for end in ends if end.ended_by == signal.SIGTERM and not end.after_stop]
        if not (platform.holding or felled or (platform.asking and not explained)):
            return False
        self._held.append(event)
        if felled and not platform.asking:
            # Ask the platform whether it has ended the job. It records such an end before it sends signals.
            platform.felled(min(felled))
            self._until = now + ARRIVES_S
            self._reactor.at(self._until, lambda now: None)
        return True

    def released(self, now: float) -> Iterable[ev.Event]:
        """Yield the stored evidence events that need no further delay."""
        platform = self._platform
        if not self._held or now < self._until or (platform is not None and (platform.asking or platform.holding)):
            return
        while self._held:
            yield self._held[0]
            del self._held[0]

    def follows(self, event: ev.Event, attempt: int, now: float) -> Iterable[ev.Event]:
        """Return the further events that follow from an event which the owner has handled.

        Ask the platform about a signal or a lost node. If a device's fault needs a user's attention, ask it to keep
        other jobs off the device. Pass the event to the job's outputs.
        """
        if isinstance(event, ev.FaultSeen) and event.remedy is Remedy.HOLD and self._platform is not None:
            self._platform.hold_device(event.fault, attempt)
        if self._outputs is not None:
            self._outputs.handled(event)
        if self._platform is not None:
            self._platform.noted(without_secrets(event), now)
        if isinstance(event, ev.NodeJoined) and self._platform is not None:
            self._platform.joined(event.node.name, now)
        if isinstance(event, ev.NodeSilent | ev.NodeLeft) and self._platform is not None:
            return self._platform.lost(event.node, attempt, now) or ()
        if not isinstance(event, ev.NodeSignalled):
            return ()
        if self._platform is not None:
            return self._platform.signalled(event.number, event.node, now) or ()
        return (ev.StopRequested(request=_plain(event.number, event.node, now)),)

    @property
    def handed_over(self) -> bool:
        """Whether the platform gives the job to another owner. This process must then exit, although the job goes
        on.
        """
        return self._platform is not None and self._platform.handed_over

    def secured(self, action: do.Secure, trouble: str) -> Iterable[ev.Event]:
        """Return the events that follow when the journal has stored an attempt's number on disk, or has failed to
        (`trouble`: why).

        If the platform stores the job's state too, the events come later, from the platform.
        """
        event = ev.JournalSecured(attempt=action.attempt, trouble=trouble, cause=action.cause)
        if self._platform is None:
            return (event,)
        return self._platform.secured(event, self._reactor.now()) or ()

    def labels(self, node: str) -> tuple[str, ...]:
        """Return the topology labels that the platform reports for a node before the node is admitted."""
        return self._platform.labels(node) if self._platform is not None else ()

    def moved(self, view: Callable[[], GangView]) -> None:
        """Pass a new phase of the gang to the outputs and the platform, and also the takeover of a job by this
        owner.
        """
        if self._outputs is not None:
            self._outputs.moved(view)
        if self._platform is not None:
            now = view()
            self._platform.seated({placement.node for placement in now.placements}, now.attempt)
            if fresh := now.avoid - self._avoided:
                self._avoided |= fresh
                self._platform.avoid(sorted(fresh))

    def recorded(self, record: AttemptRecord) -> None:
        """Pass the record of an ended attempt to the outputs and the platform."""
        if self._outputs is not None:
            self._outputs.recorded(record)
        if self._platform is not None:
            self._platform.recorded(record)

    def finish(self, report: JobReport | None, take: Callable[[News], None]) -> None:
        """Pass the job's report to the outputs and the platform. Wait a limited time until both have finished.

        `report`: None: the job goes on in another run. `take`: handles events meanwhile.
        """
        if self._outputs is not None:
            self._outputs.finish(report, take)
        if self._platform is None:
            return
        if report is not None:
            self._platform.finished(report)
        until = self._reactor.now() + LAST_WORD_S
        self._reactor.at(until, lambda now: None)
        while self._platform.writing and self._reactor.now() < until:
            self._reactor.wait(take)

    def requeue(self, action: do.Requeue, attempt: int) -> None:
        """Ask the platform to start the job again in another run. `attempt`: the last attempt of this run."""
        if self._platform is None:
            refused = ev.RequeueRefused(run=action.run, reason="nothing here starts a job again")
            self._reactor.at(self._reactor.now(), lambda now: (refused,))
            return
        # Store the reason before asking the platform, because the platform may end this process at once.
        self._place.lock.note_queued(action.reason)
        self._platform.requeue(action.reason, action.without, lambda why, now: self._requeued(action, attempt, why))

    def _requeued(self, action: do.Requeue, attempt: int, why: str) -> Iterable[ev.Event]:
        if why:
            self._place.lock.note_queued("")
            return (ev.RequeueRefused(run=action.run, reason=why),)
        self.asked = action
        platform = self._place.lock.supervisor.platform
        job = f"job {platform.id}" if platform is not None else "the job"
        title = title_of(platform.platform) if platform is not None else "its platform"
        self._say(f"requeued: attempt {attempt + 1} continues when {title} starts {job} again: {action.reason}")
        return ()

    def close(self) -> None:
        """Close the platform's watch and the outputs, because the job is over."""
        if self._outputs is not None:
            self._outputs.close()
        if self._platform is not None:
            self._platform.close()


def _plain(number: int, node: str, now: float) -> StopRequest:
    """Return the stop request for a signal that no platform can explain."""
    return StopRequest(
        reason=f"{node}: holdfast got {signal.Signals(number).name}",
        solution="Nothing to repair: start the job again when you want it to go on.",
        source=StopSource.SIGNAL,
        at=now,
        signal=number,
    )
