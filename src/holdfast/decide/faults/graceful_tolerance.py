"""Graceful tolerance: resets a device that a job uses. A pure state machine: events come in, actions go out.

    IDLE ─ a fault asks for RESET_* ─▶ NOTIFIED ─ the workers have left ─▶ RESETTING ─ done ─▶ IDLE, workers restart
      └ RESTART_WORKERS ─▶ HEALING ─ it heals ─▶ IDLE                          │ failed, or too long
                              └ it does not ─▶ NOTIFIED ─ left ─▶ RETRIED      ▼ tried too often
                        still there `heal_s` after the restart ─▶ NOTIFIED … ISOLATED

Workers get `save_s` seconds to save and exit, then they are stopped. A reset runs only while no process uses a device
of the reset group. It may take `reset_s` seconds. After `attempts` failed resets the devices are isolated. A
RESTART_WORKERS fault gets `heal_s` seconds to heal before the workers are disturbed. If it is still there `heal_s`
seconds after the restart, it asks for a reset. If it comes back within `heal_s` seconds after that reset, the devices
are isolated. Devices that cannot be reset are isolated after the restart.
"""

from __future__ import annotations

import enum

from holdfast.decide.faults.fault_policy import GraceTimes
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Message, Noun

ATTEMPTS = 4


class TolerancePhase(enum.StrEnum):
    IDLE = "idle"
    #: The group waits, because its RESTART_WORKERS fault may end without a restart.
    HEALING = "healing"
    #: A RESET_WHEN_IDLE fault needs a reset, which waits until no process uses the group.
    WAITING = "waiting"
    #: The workers on the group are notified that they must save and exit.
    NOTIFIED = "notified"
    #: The workers did not exit in time and are being stopped.
    STOPPING = "stopping"
    RESETTING = "resetting"
    #: The workers were restarted, because a RESTART_WORKERS fault lasted. The restart may have ended the fault.
    RETRIED = "retried"
    #: The group was reset, because a restart did not end the fault. If the fault comes back soon, the devices are
    #: isolated.
    PROVING = "proving"
    ISOLATED = "isolated"


class LevelChanged(Message, frozen=True, kw_only=True):
    """The level of a device in the reset group has changed. `remedy` None: the device has no fault now."""

    device: str
    remedy: Remedy | None


class GroupIdle(Message, frozen=True, kw_only=True):
    """No process uses any device of the reset group any more."""


class GroupBusy(Message, frozen=True, kw_only=True):
    """A process uses a device of the reset group."""


class ResetEnded(Message, frozen=True, kw_only=True):
    """The reset plugin has ended. `attempt`: the number in the `Reset` action. The group ignores an event with another
    number.
    """

    attempt: int
    ok: bool
    why: str = ""


class Moment(Message, frozen=True, kw_only=True):
    """The time that `Tolerance.next_wake` returned has come."""


ToleranceEvent = LevelChanged | GroupIdle | GroupBusy | ResetEnded | Moment


class Notify(Message, frozen=True, kw_only=True):
    """Notify the workers on these devices: they have `seconds` to save and exit."""

    devices: tuple[str, ...]
    seconds: float
    reason: str


class StopGroup(Message, frozen=True, kw_only=True):
    """Stop every worker on these devices; then report `GroupIdle`."""

    devices: tuple[str, ...]
    reason: str


class Reset(Message, frozen=True, kw_only=True):
    """Reset these devices, which no process uses now. Answer with a `ResetEnded` of the same attempt."""

    devices: tuple[str, ...]
    attempt: int
    seconds: float


class ClearFaults(Message, frozen=True, kw_only=True):
    """The reset has succeeded: end the earlier faults of these devices, and let workers use them again."""

    devices: tuple[str, ...]


class RestartWorkers(Message, frozen=True, kw_only=True):
    """Start the workers again. The devices need no reset."""

    devices: tuple[str, ...]
    reason: str


class Isolate(Message, frozen=True, kw_only=True):
    """Isolate these devices, because no reset or restart has helped."""

    devices: tuple[str, ...]
    reason: str


ToleranceAction = Notify | StopGroup | Reset | ClearFaults | RestartWorkers | Isolate


class ToleranceSnapshot(Noun, frozen=True, kw_only=True):
    """The state of a `Tolerance` as a value, for the journal."""

    phase: TolerancePhase = TolerancePhase.IDLE
    deadline: float | None = None
    attempt: int = 0
    busy: bool = False
    levels: dict[str, Remedy] = {}
    escalated: bool = False


class Tolerance:
    """One reset group: the devices that can only be reset together. A reset stops all workers on the group.

    `attempts`: the number of resets in a row that may fail. `busy`: whether a process uses the group now. `resettable`:
    whether the devices can be reset at all.
    """

    def __init__(
        self,
        devices: tuple[str, ...],
        grace: GraceTimes,
        *,
        attempts: int = ATTEMPTS,
        busy: bool = False,
        resettable: bool = True,
    ) -> None:
        self.devices = devices
        self.resettable = resettable
        #: Whether the group needs a reset, because a restart did not end a RESTART_WORKERS fault.
        self.escalated = False
        self.grace = grace
        self.attempts = attempts
        self.phase = TolerancePhase.IDLE
        self.deadline: float | None = None
        self.attempt = 0
        self.busy = busy
        self.levels: dict[str, Remedy] = {}

    def next_wake(self) -> float | None:
        """Return when to send a `Moment` event, in seconds; None: no timer runs."""
        return self.deadline

    def snapshot(self) -> ToleranceSnapshot:
        return ToleranceSnapshot(
            phase=self.phase,
            deadline=self.deadline,
            attempt=self.attempt,
            busy=self.busy,
            levels=dict(self.levels),
            escalated=self.escalated,
        )

    def restore(self, snapshot: ToleranceSnapshot) -> None:
        self.phase, self.deadline, self.attempt = snapshot.phase, snapshot.deadline, snapshot.attempt
        self.busy, self.levels = snapshot.busy, dict(snapshot.levels)
        self.escalated = snapshot.escalated

    def handle(self, event: ToleranceEvent, now: float) -> list[ToleranceAction]:
        """Handle one event at `now` (seconds), and return the resulting actions."""
        match event:
            case LevelChanged(device=device, remedy=remedy):
                if device not in self.devices:
                    return []
                if remedy is None:
                    self.levels.pop(device, None)
                else:
                    self.levels[device] = remedy
                return self._level(now)
            case GroupBusy():
                self.busy = True
                if self.phase in (TolerancePhase.RETRIED, TolerancePhase.PROVING):
                    self._to(self.phase, now + self.grace.heal_s)
                return []
            case GroupIdle():
                self.busy = False
                return self._idle(now)
            case ResetEnded(attempt=attempt, ok=ok, why=why):
                if self.phase is not TolerancePhase.RESETTING or attempt != self.attempt:
                    return []
                return self._reset_done() if ok else self._reset_failed(why or "the reset failed", now)
            case Moment():
                return self._moment(now) if self.deadline is not None and now >= self.deadline else []

    @property
    def wanted(self) -> Remedy:
        """The group's most severe remedy that needs a reset or a restart. Other code handles remedies that exclude
        devices.
        """
        answerable = [level for level in self.levels.values() if Remedy.RESTART_WORKERS <= level <= Remedy.RESET_NOW]
        most = max(answerable, default=Remedy.NONE)
        return Remedy.RESET_NOW if self.escalated and most is Remedy.RESTART_WORKERS else most

    def _level(self, now: float) -> list[ToleranceAction]:
        wanted = self.wanted
        if self.phase in (
            TolerancePhase.NOTIFIED,
            TolerancePhase.STOPPING,
            TolerancePhase.RESETTING,
            TolerancePhase.ISOLATED,
        ):
            # Notified workers exit in any case, so the reset goes on even if the fault has ended meanwhile.
            if self.phase is TolerancePhase.ISOLATED and not self.levels:
                self._rest()
            return []
        if self.phase is TolerancePhase.PROVING:
            if wanted is Remedy.NONE:
                return []  # do nothing: the reset has ended the fault, or only a milder fault has ended
            return self._isolate(f"a reset did not help, the fault came back within {self.grace.heal_s} s of it")
        if wanted is Remedy.RESET_NOW:
            return self._notify(now, "a device must be reset at once")
        if wanted is Remedy.RESET_WHEN_IDLE:
            if not self.busy:
                return self._reset(now)
            self._to(TolerancePhase.WAITING)
        elif wanted is Remedy.RESTART_WORKERS:
            if self.phase not in (TolerancePhase.HEALING, TolerancePhase.RETRIED):
                self._to(TolerancePhase.HEALING, now + self.grace.heal_s)
        else:
            self._rest()
        return []

    def _rest(self) -> None:
        """Go back to IDLE. If no fault is left, forget the failed resets."""
        self._to(TolerancePhase.IDLE)
        self.escalated = False
        if not self.levels:
            self.attempt = 0

    def _notify(self, now: float, why: str) -> list[ToleranceAction]:
        if not self.busy:
            return self._left(now)
        self._to(TolerancePhase.NOTIFIED, now + self.grace.save_s)
        seconds = float(self.grace.save_s)
        return [Notify(devices=self.devices, seconds=seconds, reason=f"{why}: save and leave within {seconds:.0f} s")]

    def _idle(self, now: float) -> list[ToleranceAction]:
        if self.phase in (TolerancePhase.NOTIFIED, TolerancePhase.STOPPING):
            return self._left(now)
        if self.phase is TolerancePhase.WAITING:
            return self._reset(now)
        if self.phase in (TolerancePhase.HEALING, TolerancePhase.RETRIED):
            # the workers exited without a notice, so their next start is the restart
            self._to(TolerancePhase.RETRIED)
        elif self.phase is TolerancePhase.PROVING:
            self._to(TolerancePhase.PROVING)
        return []

    def _left(self, now: float) -> list[ToleranceAction]:
        """Reset the group or restart its workers, because no process uses the group any more."""
        if self.wanted >= Remedy.RESET_WHEN_IDLE:
            return self._reset(now)
        if self.wanted is Remedy.RESTART_WORKERS:
            self._to(TolerancePhase.RETRIED)
        else:
            self._rest()
        return [RestartWorkers(devices=self.devices, reason="the workers left for a fault that needs no reset")]

    def _reset(self, now: float, last: str = "") -> list[ToleranceAction]:
        """Reset the group; after too many failed resets isolate its devices. No other method emits `Reset`. `last`: why
        the last reset failed.
        """
        if self.attempt >= self.attempts:
            tried, last = self.attempt, last or "a process came back to a device that was reset"
            return self._isolate(f"{tried} resets did not help, the last: {last}")
        self.attempt += 1
        self._to(TolerancePhase.RESETTING, now + self.grace.reset_s)
        return [Reset(devices=self.devices, attempt=self.attempt, seconds=float(self.grace.reset_s))]

    def _isolate(self, why: str) -> list[ToleranceAction]:
        self._to(TolerancePhase.ISOLATED)
        return [Isolate(devices=self.devices, reason=why)]

    def _reset_done(self) -> list[ToleranceAction]:
        self._to(TolerancePhase.PROVING if self.escalated else TolerancePhase.IDLE)
        self.escalated = False
        self.attempt = 0
        self.levels.clear()
        return [ClearFaults(devices=self.devices)]

    def _reset_failed(self, why: str, now: float) -> list[ToleranceAction]:
        if self.busy:
            self._to(TolerancePhase.STOPPING)
            return [StopGroup(devices=self.devices, reason=f"{why}: a process came back to a device that is reset")]
        return self._reset(now, why)

    def _moment(self, now: float) -> list[ToleranceAction]:
        match self.phase:
            case TolerancePhase.HEALING:
                return self._notify(now, f"a fault did not heal within {self.grace.heal_s} s")
            case TolerancePhase.RETRIED:
                why = f"a fault is still there {self.grace.heal_s} s after the restart"
                if not self.resettable:
                    return self._isolate(why)
                self.escalated = True
                return self._notify(now, f"{why}, so the device must be reset")
            case TolerancePhase.PROVING:
                self._rest()
                return []
            case TolerancePhase.NOTIFIED:
                self._to(TolerancePhase.STOPPING)
                reason = f"the workers did not leave within {self.grace.save_s} s"
                return [StopGroup(devices=self.devices, reason=reason)]
            case TolerancePhase.RESETTING:
                return self._reset_failed(f"the reset took longer than {self.grace.reset_s} s", now)
            case TolerancePhase.IDLE | TolerancePhase.WAITING | TolerancePhase.STOPPING | TolerancePhase.ISOLATED:
                self.deadline = None
                return []

    def _to(self, phase: TolerancePhase, deadline: float | None = None) -> None:
        self.phase, self.deadline = phase, deadline
