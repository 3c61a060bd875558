"""Decides the consequences of device faults for the running job. The fault log determines the remedy for a fault; this
module turns the remedy into requests to the gang and into resets.

A stop for a fault gives the workers time to save a checkpoint, if they handle the signal. If a restart or a reset can
fix the fault, the `Tolerance` of the device's reset group handles it. A graver fault takes effect at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.catalogue.fault_codes import canonical, describe
from holdfast.decide.faults.fault_overlap import cleared_by_reset
from holdfast.decide.faults.graceful_tolerance import (
    ClearFaults,
    Isolate,
    Notify,
    RestartWorkers,
    StopGroup,
    ToleranceAction,
)
from holdfast.decide.faults.graceful_tolerance import TolerancePhase as Step
from holdfast.decide.faults.isolation import ChangeKind, LevelChange, LevelConsequence, answer_of, standings
from holdfast.decide.phases import Phase
from holdfast.explain.causes.device_fault_cause import phrase_of
from holdfast.model import events as ev
from holdfast.model.faults import ActiveFault, Assertion, DeviceStanding, FaultEvent, Remedy, Severity
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.model.phrases import Phrase
from holdfast.record.local_time import local

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.decide.faults.fault_policy import Policy
    from holdfast.node.devices.buffered_log import BufferedFaultLog
    from holdfast.node.devices.device_resets import Resets

RESET_FAILED = "RESET-FAILED"


class JobFaults:
    """Decides the consequences of the machine's faults for one job. `node`: the node, with the devices that the job may
    use.
    """

    def __init__(
        self,
        faults: BufferedFaultLog,
        resets: Resets,
        spec: JobSpec,
        node: NodeInfo,
        say: Callable[[str], None],
        spare: Callable[[str], bool] = lambda device: False,
        stand: Callable[[Iterable[DeviceStanding]], None] = lambda standings: None,
    ) -> None:
        """Set up the handling of faults for one job.

        `faults`: the fault log of the run. `resets`: runs device resets. `say`: prints a message to the user.
        `spare(device)`: returns whether the job has enough devices without this one. `stand`: gets the standings of all
        devices after a change of a level.
        """
        self._faults = faults
        self._resets = resets
        self._spec = spec
        self._node = node.name
        self._ours = frozenset({node.name, *node.devices})
        self._say = say
        self._spare = spare
        self._stand = stand
        #: Device → its newest fault event.
        self._latest: dict[str, FaultEvent] = {}
        #: Device → when to check whether its fault is still active. Before that the fault has no consequence.
        self._waiting: dict[str, float] = {}
        self._said_no_reset = False

    # ------------------------------------------------------------------------ methods that other parts of the node call

    def note(self, events: Sequence[FaultEvent], now: float) -> list[ev.Event]:
        """Write these events to the fault log, and return their consequences for this job. Print and count refused
        events.
        """
        return self._digest(self._faults.note(events, now), now)

    def refresh(self, now: float) -> list[ev.Event]:
        """Read the fault log after another process wrote to it (`holdfast faults report`, a release)."""
        return self._digest(self._faults.sync(now), now)

    def reload(self, policy: Policy, now: float) -> list[ev.Event]:
        """Apply the fault rules of `policy` from now on. A device's level (the remedy that its faults require) may
        change now.
        """
        self._resets.reload(policy.grace)
        return self._digest(self._faults.reload(policy, now), now)

    def entered(self, phase: Phase, now: float) -> list[ev.Event]:
        """Act on the gang's new phase: free the devices for resets during a pause, and take them before a start."""
        found: list[ev.Event] = []
        if phase is Phase.BACKOFF:
            found += self._act(self._resets.use(False, now), now)
        elif phase is Phase.PREPARING:
            found += self.begin(now)
            for group in self._resets.leaving():
                # The reset was requested during the checks, when there were no workers to stop.
                found += self._stop_for(group.devices, f"{', '.join(group.devices)} must be reset", now)
        return found

    def begin(self, now: float) -> list[ev.Event]:
        """Mark the devices as in use, because checks or workers start."""
        return self._act(self._resets.use(True, now), now)

    def awaiting_reset(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Return the unused devices that a reset could repair now."""
        if not self._resets.possible:
            return ()
        levels = ((device, self._faults.engine.level(device) or Remedy.NONE) for device in devices)
        wanted = [device for device, level in levels if Remedy.RESET_WHEN_IDLE <= level <= Remedy.RESET_NOW]
        return tuple(device for device in wanted if self._resets.is_free(device))

    def reset_first(self, devices: Iterable[str], now: float) -> list[ev.Event]:
        """Reset these devices before any process of the job starts."""
        found: list[ev.Event] = []
        for device in devices:
            found += self._act(self._resets.level(device, self._faults.engine.level(device), now), now)
        return found

    def overlapping(self, start: float, end: float, ranks: Mapping[str, tuple[int, ...]]) -> tuple[ActiveFault, ...]:
        """Return the faults between `start` and `end` on the devices in `ranks`, each with the ranks on its device."""
        found = self._faults.within(start, end, ranks)
        return tuple(fault for fault in found if fault.ranks)

    # ------------------------------------------------------------------------------- methods for time limits and resets

    @property
    def resetting(self) -> bool:
        """Return whether a device reset is running. No worker may start before its end."""
        return self._resets.running

    def knows(self, code: str) -> bool:
        """Return whether the present fault rules name this fault code (in its canonical form)."""
        return code in self._faults.engine.policy.levels

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        """Handle output or the exit of a reset process with the descriptor `fd`. Read the fault log first, because
        another job may have reset the device meanwhile.
        """
        found = self.refresh(now)
        return found + self._act(self._resets.ready(fd, now), now)

    def next_wake(self) -> float | None:
        wakes = [self._faults.next_wake(), self._resets.next_wake(), *self._waiting.values()]
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[ev.Event]:
        found = self.refresh(now)
        for device in [device for device, due in self._waiting.items() if due <= now]:
            del self._waiting[device]
            level = self._faults.engine.level(device)
            if level is not None:
                since = min((at for at, _ in self._faults.engine.active(device, level)), default=now)
                found += self._mean(LevelChange(device=device, node="", before=level, after=level, at=since), now)
        return found + self._act(self._resets.tick(now), now)

    def count_refused(self, refused: Mapping[str, int]) -> None:
        """Store how many lines of the fault sources were rejected, for `holdfast devices`."""
        if self._faults.log is not None:
            for reason, count in refused.items():
                self._faults.log.store.count_refused(reason, count)

    def close(self) -> None:
        self._resets.close()
        if lost := self._faults.close():
            self._say(
                f"{lost} fault{'s' if lost > 1 else ''} of this run could not be written down, and will be forgotten"
            )

    # --------------------------------------------------------------- methods that decide what a fault means for the job

    def _digest(self, changes: Iterable[LevelChange], now: float) -> list[ev.Event]:
        """Return the consequences for this job of these changes of devices' levels (required remedies). Then add an
        event, as evidence, for each new fault that changed no level.
        """
        heard, self._faults.events = self._faults.events, []
        for text in self._faults.news:
            self._say(text)
        self._faults.news.clear()
        for event in heard:
            if event.assertion is not Assertion.RECOVER:
                self._latest[event.device] = event
        found: list[ev.Event] = []
        changed: set[str] = set()
        for change in changes:
            if change.device in self._ours:
                self._say(self._told(change))
                if change.kind is ChangeKind.LEVEL:
                    changed.add(change.device)
                    found += self._mean(change, now)
            elif change.kind is ChangeKind.LEVEL and self._ours.intersection(self._resets.mates(change.device)):
                found += self._mean_for_mates(change, now)
        if changed:
            self._stand(standings(self._faults.engine, local))
        for event in heard:
            mine = event.device in self._ours and event.device not in changed
            if mine and event.assertion is not Assertion.RECOVER:
                level = self._faults.engine.level(event.device) or Remedy.NONE
                found.append(ev.FaultSeen(fault=self._of_the_gang(event), remedy=level))
        return found

    def _mean(self, change: LevelChange, now: float) -> list[ev.Event]:
        device, remedy = change.device, change.after
        self._waiting.pop(device, None)
        fault = self._fault(device, change)
        if remedy is None:
            if fault.assertion is Assertion.ONCE and self._resets.under_way(device):
                return []  # nothing to do: a momentary fault never ends, and its reset is already running
            return self._act(self._resets.level(device, None, now), now)
        answer = self._answer(change, now)
        why = f"{describe(fault.code)}: {answer.why}" if answer.why else self._told(change)
        if answer.wait_until is not None:
            # Check a moment after the wait, because a fault that lasts exactly that long has no consequence.
            self._waiting[device] = answer.wait_until + 0.001
        if remedy is Remedy.RESTART_WORKERS and self._may_pass(fault):
            return self._give_time(fault, why, now)
        if answer.reset and self._resets.possible:
            return self._reset(fault, remedy, why, now)
        without = answer.avoid or answer.reset or (answer.elsewhere and self._may_pass_on(fault))
        if answer.reset and not self._said_no_reset:
            self._said_no_reset = True
            self._say("there is no reset-command: a device that needs a reset is left out instead")
        found = self._act(self._resets.level(device, None if answer.reset else remedy, now), now)
        found.append(
            ev.FaultSeen(
                fault=fault,
                remedy=remedy,
                stop=answer.stop,
                avoid=(device,) if without else (),
                save_s=self._save_s if answer.save else 0.0,
                why=why,
            )
        )
        return found

    def _may_pass_on(self, fault: FaultEvent) -> bool:
        """Return whether the fault lasts, and the next attempt can do without the device."""
        return fault.assertion is Assertion.OCCUR and self._spare(fault.device)

    def _mean_for_mates(self, change: LevelChange, now: float) -> list[ev.Event]:
        """Handle a change of the level (required remedy) of a device that the job does not use. A reset of it also
        resets a device of the job.
        """
        if not self._resets.possible:
            return []
        # RESET_WHEN_IDLE waits for this job's end. If there is no fault any more, another job has reset the device.
        still = self._faults.engine.level(change.device) is Remedy.RESET_NOW
        remedy = Remedy.RESET_NOW if still else None
        if remedy is not None:
            self._say(self._told(change))
        return self._act(self._resets.level(change.device, remedy, now), now)

    def _may_pass(self, fault: FaultEvent) -> bool:
        """Return whether to wait before acting: the fault may end, or the program has caused it and will report the
        cause.
        """
        own = phrase_of(ActiveFault(event=fault, remedy=Remedy.RESTART_WORKERS)) == Phrase.ACCELERATOR_APPLICATION_FAULT
        return fault.assertion is Assertion.OCCUR or own

    def _give_time(self, fault: FaultEvent, why: str, now: float) -> list[ev.Event]:
        heal_s = self._resets.grace.heal_s
        found: list[ev.Event] = [ev.FaultSeen(fault=fault, remedy=Remedy.RESTART_WORKERS, why=why)]
        if fault.assertion is Assertion.OCCUR:
            self._say(f"{why}; it has {heal_s} s to heal by itself")
            found += self._act(self._resets.level(fault.device, Remedy.RESTART_WORKERS, now), now)
        return found

    def _reset(self, fault: FaultEvent, remedy: Remedy, why: str, now: float) -> list[ev.Event]:
        found = self._act(self._resets.level(fault.device, remedy, now), now)
        if self._resets.group_of(fault.device).phase is Step.WAITING:
            self._say(f"{why}; the job goes on, and the device is reset when it is idle")
        if not found:
            found.append(ev.FaultSeen(fault=fault, remedy=remedy, reset_s=self._resets.longest_s, why=why))
        return found

    def _act(self, actions: Sequence[ToleranceAction], now: float) -> list[ev.Event]:
        """Carry out the actions of a reset group's `Tolerance`, except the reset command. Return the events for the
        gang.
        """
        found: list[ev.Event] = []
        for action in actions:
            match action:
                case Notify() | StopGroup():
                    found += self._stop_for(action.devices, self._words(action.devices, action.reason), now)
                case ClearFaults():
                    self._say(f"{', '.join(action.devices)}: reset; what was reported there is over")
                    found += self.note(cleared_by_reset(self._faults.engine, action.devices, now), now)
                case Isolate() if self._resets.possible:
                    found += self.note(list(self._given_up(action, now)), now)
                case Isolate():
                    found += self._leave(action, now)
                case RestartWorkers():
                    pass  # nothing to do: the gang restarts the workers after the attempt's end
        self._resets.settle()
        return found

    def _stop_for(self, devices: Sequence[str], why: str, now: float) -> list[ev.Event]:
        """Stop the workers because of the gravest fault of these devices. The job keeps the devices."""
        levels = {device: self._faults.engine.level(device) or Remedy.NONE for device in devices}
        device = max(levels, key=lambda name: (levels[name], name in self._latest))
        fault = self._fault(device, None, now)
        remedy = max(levels[device], Remedy.RESTART_WORKERS, self._resets.group_of(device).wanted)
        longest_s = self._resets.longest_s if remedy >= Remedy.RESET_WHEN_IDLE else 0.0
        return [
            ev.FaultSeen(
                fault=fault,
                remedy=remedy,
                stop=True,
                save_s=self._save_s,
                reset_s=longest_s,
                why=why,
                group=tuple(devices),
            )
        ]

    def _given_up(self, action: Isolate, now: float) -> Iterable[FaultEvent]:
        """Exclude the devices that needed the failed reset until a reset succeeds. The other devices of the group stay
        usable.
        """
        for device in self._needed(action.devices):
            yield FaultEvent(
                device=device,
                code=RESET_FAILED,
                assertion=Assertion.OCCUR,
                at=now,
                severity=Severity.CRITICAL,
                text=action.reason,
                source="reset",
            )

    def _needed(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the devices whose faults required the reset, or the restart before it."""
        levels = {device: self._faults.engine.level(device) or Remedy.NONE for device in devices}
        for least in (Remedy.RESET_WHEN_IDLE, Remedy.RESTART_WORKERS):
            if found := [device for device, level in levels.items() if level >= least]:
                return found
        return devices

    def _leave(self, action: Isolate, now: float) -> list[ev.Event]:
        """Exclude the devices while their faults last, because there is no reset command. The job goes on without
        them.
        """
        found: list[ev.Event] = []
        for device in self._needed(action.devices):
            why = f"{self._words((device,), action.reason)}; there is no reset-command, so the job goes on without it"
            fault, remedy = self._fault(device, None, now), self._faults.engine.level(device) or Remedy.RESTART_WORKERS
            found.append(
                ev.FaultSeen(fault=fault, remedy=remedy, stop=True, avoid=(device,), save_s=self._save_s, why=why)
            )
        return found

    # --------------------------------------------------------------------------- methods that build messages and events

    def _told(self, change: LevelChange) -> str:
        return change.told(seed_names=self._faults.engine.policy.seed_names)

    @property
    def _save_s(self) -> float:
        return float(self._resets.grace.save_s)

    def _words(self, devices: Sequence[str], reason: str) -> str:
        known = [describe(self._latest[name].code) for name in devices if name in self._latest]
        return f"{', '.join(devices)}: {reason}" + (f" ({known[0]})" if known else "")

    def _answer(self, change: LevelChange, now: float) -> LevelConsequence:
        return answer_of(
            change.device,
            change.after,
            since=change.at,
            now=now,
            kind=self._spec.kind,
            on_subhealth=self._spec.on_subhealth,
        )

    def _fault(self, device: str, change: LevelChange | None, now: float = 0.0) -> FaultEvent:
        """Return the fault event that changed the device's level. If a deadline changed the level, return the device's
        latest event.
        """
        latest = self._latest.get(device)
        if latest is not None and (
            change is None or not change.code or canonical(latest.code) == canonical(change.code)
        ):
            return self._of_the_gang(latest)
        return FaultEvent(
            device=device,
            code=(change.code if change is not None else "") or "UNKNOWN",
            assertion=Assertion.OCCUR,
            at=change.at if change is not None else now,
            node=self._node,
            text=self._told(change) if change is not None else "",
            source="fault log",
        )

    def _of_the_gang(self, fault: FaultEvent) -> FaultEvent:
        """Replace this machine's name in a fault event by the node's name in the job. In a pod the names differ."""
        return replace(fault, node=self._node) if fault.node != self._node else fault
