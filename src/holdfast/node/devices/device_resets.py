"""Resets this machine's devices with the user's command. Each reset group has a `Tolerance`, which decides when to
reset.

The command waits until no other job uses a device of the group (locks) and no process has one open. /proc shows only
this user's processes; the vendor's tool, if there is one, shows all. If some processes stay hidden, a message warns
about them. Each command writes a log in the job's directory. After its time limit it is killed with all its children.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast import children
from holdfast.children import Child
from holdfast.decide.faults.fault_policy import GraceTimes
from holdfast.decide.faults.graceful_tolerance import (
    GroupBusy,
    GroupIdle,
    LevelChanged,
    Moment,
    Reset,
    ResetEnded,
    Tolerance,
    ToleranceAction,
    TolerancePhase,
)
from holdfast.model.faults import Remedy
from holdfast.node.devices.device_locks import LockWaiter
from holdfast.node.devices.nvml_watch import NAME as OUR_WATCH
from holdfast.node.devices.vendor_query import ASK_S, DeviceUsers, VendorQuery, last_line, sight
from holdfast.safe_files import created

if TYPE_CHECKING:
    from holdfast.node.devices.buffered_log import BufferedFaultLog
    from holdfast.reactor import Reactor, Ready

_NUMBERED = re.compile(r"([a-z]+)(\d+)")


class _ResetTry(msgspec.Struct):
    """One try of a reset: it waits for other jobs and for `users` (pidfd → pid), then runs its command.

    `order`: the requested reset. `asking`: the running query of the vendor's tool, which also shows processes that
    /proc hides. `asked`: whether that query has begun. `lost`: pids from the tool that this process cannot see.
    """

    group: Tolerance
    order: Reset
    log: Path
    jobs: LockWaiter | None = None
    users: dict[int, int] = {}
    asking: VendorQuery | None = None
    asked: bool = False
    lost: frozenset[int] = frozenset()
    child: Child | None = None


class ResetCommand(msgspec.Struct, frozen=True):
    """The user's command that resets devices."""

    #: The command's words, with the placeholders `{device}` and `{index}`. None: no reset is possible.
    words: str | None
    #: The number of neighbouring devices that can only be reset together.
    group: int
    #: The directory for the commands' output.
    logs: Path


class Resets:
    """Runs the resets of this machine's devices. If one of its descriptors is readable, the reactor calls `heard(fd,
    now)`.

    `command`: the reset command; if its `words` are None, no reset may be requested. `grace`: time limits. `users`:
    finds the processes that use devices. `say`: prints a message. `history`: stores the tries, so that they survive a
    crash.
    """

    def __init__(
        self,
        command: ResetCommand,
        grace: GraceTimes,
        reactor: Reactor,
        heard: Ready,
        users: DeviceUsers,
        say: Callable[[str], None],
        history: BufferedFaultLog,
    ) -> None:
        self.possible = command.words is not None
        self.grace = grace
        self._command = command
        self._reactor = reactor
        self._heard_at = heard
        self._users = users
        self._locks = users.locks
        self._say = say
        self._history = history
        self._groups: dict[tuple[str, ...], Tolerance] = {}
        self._tries: list[_ResetTry] = []
        #: Pidfd → reset command that was killed but is not reaped yet.
        self._overdue: dict[int, Child] = {}
        self._busy = False

    # -------------------------------------------------------------------------- methods that return the state of resets

    @property
    def running(self) -> bool:
        """Return whether a device is being reset or soon will be. No work may start on the devices then."""
        return any(group.phase is TolerancePhase.RESETTING for group in self._groups.values())

    @property
    def longest_s(self) -> float:
        """Return how long a reset with all its tries may take, in seconds."""
        group = next(iter(self._groups.values()), None)
        return float(self.grace.reset_s * (group.attempts if group is not None else 1))

    def group_of(self, device: str) -> Tolerance:
        """Return the `Tolerance` of the device's reset group."""
        devices = _group(device, self._command.group)
        if devices not in self._groups:
            group = self._groups[devices] = Tolerance(devices, self.grace, busy=self._busy, resettable=self.possible)
            group.attempt = self._history.tries(devices, self._reactor.now())
        return self._groups[devices]

    def mates(self, device: str) -> tuple[str, ...]:
        """Return the device's reset group: the devices that are reset together, including this one."""
        return _group(device, self._command.group)

    def settle(self) -> None:
        """Unlock the devices of finished resets. Call this after storing the results, because other jobs may use the
        devices at once.
        """
        for devices, group in self._groups.items():
            if group.phase is not TolerancePhase.RESETTING:
                self._locks.let_go(devices)

    def is_free(self, device: str) -> bool:
        """Return whether no process uses a device of this device's reset group now."""
        devices = _group(device, self._command.group)
        free = self._locks.claim(devices) and not any(
            name != OUR_WATCH for name in self._users.visible(devices).values()
        )
        self._locks.let_go(devices)
        return free

    def under_way(self, device: str) -> bool:
        """Return whether a reset of the device runs, or waits for processes to exit."""
        return self.group_of(device).phase in (
            TolerancePhase.WAITING,
            TolerancePhase.NOTIFIED,
            TolerancePhase.STOPPING,
            TolerancePhase.RESETTING,
        )

    def leaving(self) -> list[Tolerance]:
        """Return the reset groups whose workers were asked to exit and still run."""
        return [
            group
            for group in self._groups.values()
            if group.phase in (TolerancePhase.NOTIFIED, TolerancePhase.STOPPING)
        ]

    # --------------------------------------------------------------------------------------- methods that handle events

    def reload(self, grace: GraceTimes) -> None:
        """Use the time limits in `grace` from now on. Running limits do not change."""
        self.grace = grace
        for group in self._groups.values():
            group.grace = grace

    def level(self, device: str, remedy: Remedy | None, now: float) -> list[ToleranceAction]:
        """Handle a change of a device's level (the remedy that its faults require). Begin resets, and return all other
        actions.
        """
        group = self.group_of(device)
        return self._perform(group, group.handle(LevelChanged(device=device, remedy=remedy), now), now)

    def use(self, busy: bool, now: float) -> list[ToleranceAction]:
        """Record whether work runs on the devices (`busy`), or no process uses them any more."""
        self._busy = busy
        found: list[ToleranceAction] = []
        for group in list(self._groups.values()):
            if group.busy != busy:
                event = GroupBusy() if busy else GroupIdle()
                found += self._perform(group, group.handle(event, now), now)
        return found

    def next_wake(self) -> float | None:
        wakes = [group.next_wake() for group in self._groups.values()]
        wakes += [one.asking.until for one in self._tries if one.asking is not None]
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[ToleranceAction]:
        found: list[ToleranceAction] = []
        for group in list(self._groups.values()):
            wake = group.next_wake()
            if wake is not None and wake <= now:
                for one in [one for one in self._tries if one.group is group]:
                    self._give_up(one)
                actions = group.handle(Moment(), now)
                if group.phase is TolerancePhase.ISOLATED:
                    self._history.note_tries(group.devices, 0, now)
                found += self._perform(group, actions, now)
        for one in list(self._tries):
            if one.asking is not None and one.asking.until <= now:
                self._kill(one.asking.child)
                found += self._on_users(one, {}, f"it did not answer within {ASK_S:.0f} s", now)
        return found

    def ready(self, fd: int, now: float) -> list[ToleranceAction]:
        """Handle a readable descriptor: a process for which a reset waited has exited."""
        if fd in self._overdue:
            self._reactor.forget(fd)
            self._overdue.pop(fd).reap()
            return []
        for one in self._tries:
            if one.jobs is not None and fd == one.jobs.pidfd:
                self._reactor.forget(fd)
                one.jobs.ended()
                one.jobs = None
                return self._begin(one, now)
            if fd in one.users:
                self._forget(fd)
                del one.users[fd]
                return [] if one.users else self._begin(one, now)
            if one.asking is not None and fd == one.asking.pidfd:
                self._reactor.forget(fd)
                return self._on_users(one, *one.asking.answer(), now)
            if one.child is not None and fd == one.child.pidfd:
                return self._ended(one, one.child, now)
        return []

    def close(self) -> None:
        for one in list(self._tries):
            self._give_up(one)
        for fd, child in self._overdue.items():
            self._reactor.forget(fd)
            child.reap()
        self._overdue.clear()
        self._locks.close()

    # ------------------------------------------------------------------------------- methods that run the reset command

    def _perform(self, group: Tolerance, actions: Sequence[ToleranceAction], now: float) -> list[ToleranceAction]:
        left: list[ToleranceAction] = []
        for action in actions:
            if not isinstance(action, Reset):
                left.append(action)
                continue
            log = self._command.logs / f"reset-{action.devices[0]}-{int(now)}-{action.attempt}.log"
            one = _ResetTry(group=group, order=action, log=log)
            self._tries.append(one)
            self._history.note_tries(action.devices, action.attempt, now)
            tries = f"try {action.attempt} of {group.attempts}, at most {action.seconds:.0f} s"
            self._say(f"resetting {', '.join(action.devices)} ({tries})")
            left += self._begin(one, now)
        return left

    def _begin(self, one: _ResetTry, now: float) -> list[ToleranceAction]:
        if one.group.wanted < Remedy.RESET_WHEN_IDLE:
            self._say(f"{', '.join(one.order.devices)}: needs no reset any more")
            return self._over(one, "", now)
        why = self._start(one, now)
        return self._over(one, why, now) if why else []

    def _over(self, one: _ResetTry, why: str, now: float) -> list[ToleranceAction]:
        """End a try of a reset (`one`). `why`: the reason of its failure; "" for success."""
        self._tries.remove(one)
        if why:
            self._say(f"{', '.join(one.order.devices)}: the reset failed: {why}")
        ended = ResetEnded(attempt=one.order.attempt, ok=not why, why=why)
        self._history.count_reset(one.order.devices, not why)
        actions = one.group.handle(ended, now)
        if one.group.phase is not TolerancePhase.RESETTING:
            self._history.note_tries(one.order.devices, 0, now)
        return self._perform(one.group, actions, now)

    def _start(self, one: _ResetTry, now: float) -> str:
        """Run the command of a reset (`one`), or wait until no process uses the devices. Return why neither is
        possible, else "".
        """
        devices = ", ".join(one.order.devices)
        if not self._locks.claim(one.order.devices):
            pids = ", ".join(f"pid {pid}" for pid in self._locks.holders(one.order.devices))
            self._say(f"{devices}: used by another job{f' ({pids})' if pids else ''}; the reset waits for its end")
            one.jobs = self._locks.wait(one.order.devices, alone=True)
            self._reactor.watch(one.jobs.pidfd, self._heard_at)
            return ""
        users = dict(self._users.visible(one.order.devices))
        users.update((child.pid, "an older command") for child in self._overdue.values())
        self._wait_for(one, users)
        if one.users or self._ask(one, now):
            return ""
        command = words(self._command.words or "", one.order.devices)
        try:
            with created(one.log) as log:
                one.child = children.start(command, output=log.fileno(), errors=log.fileno())
        except OSError as error:
            return f"{shlex.join(command)}: {error.strerror}"
        self._reactor.watch(one.child.pidfd, self._heard_at)
        return ""

    def _wait_for(self, one: _ResetTry, users: Mapping[int, str]) -> None:
        devices = ", ".join(one.order.devices)
        for pid, name in users.items():
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue  # ignore a process that has just exited
            one.users[fd] = pid
            self._reactor.watch(fd, self._heard_at)
            try:
                if name == OUR_WATCH:
                    # End a process that watches NVML for a run. The run restarts it after the reset.
                    signal.pidfd_send_signal(fd, signal.SIGTERM)
                    continue
            except OSError:
                pass  # ignore a process that belongs to another user or has just exited
            self._say(f"{devices}: used by pid {pid} ({name}); the reset waits for its end")

    def _ask(self, one: _ResetTry, now: float) -> bool:
        """Ask the vendor's tool which other processes use the devices of a reset (`one`). Return whether the query was
        started.
        """
        if one.asked:
            return False
        one.asked = True
        devices = one.order.devices
        try:
            one.asking = VendorQuery(self._users.question(devices), one.log.with_suffix(".users"), now)
        except OSError:
            self._tell_hidden(one)
            return False
        self._reactor.watch(one.asking.pidfd, self._heard_at)
        return True

    def _on_users(self, one: _ResetTry, users: Mapping[int, str], trouble: str, now: float) -> list[ToleranceAction]:
        """Handle the answer of the vendor's tool for a reset (`one`). `users`: pid → command of each process that uses
        the devices. `trouble`: why the tool failed.
        """
        if trouble and one.asking is not None:
            self._say(f"{one.asking.tool} does not tell who uses the devices: {trouble}")
            self._tell_hidden(one)
        one.asking = None
        self._wait_for(one, users)
        lost = frozenset(users).difference(one.users.values())
        if lost and lost == one.lost and not one.users:
            pids = ", ".join(f"pid {pid}" for pid in sorted(lost))
            return self._over(one, f"used by {pids}, which cannot be seen from here, nor waited for", now)
        one.lost = lost
        # Query again after these processes have exited: new ones may have come, or a hidden one may have gone.
        one.asked = not users
        return [] if one.users else self._begin(one, now)

    def _tell_hidden(self, one: _ResetTry) -> None:
        if said := sight(one.order.devices, self._users.hidden()):
            self._say(said)

    def _ended(self, one: _ResetTry, child: Child, now: float) -> list[ToleranceAction]:
        self._reactor.forget(child.pidfd)
        status = child.reap()
        why = "" if status == 0 else f"`{self._command.words}` ended with status {status}{last_line(one.log)}"
        return self._over(one, why, now)

    def _give_up(self, one: _ResetTry) -> None:
        """End a try of a reset after its time limit, and kill its processes."""
        self._tries.remove(one)
        if one.jobs is not None:
            self._reactor.forget(one.jobs.pidfd)
            one.jobs.give_up()
        for fd in one.users:
            self._forget(fd)
        if one.child is not None:
            self._kill(one.child)
        if one.asking is not None:
            self._kill(one.asking.child)

    def _kill(self, child: Child) -> None:
        child.kill()
        self._overdue[child.pidfd] = child

    def _forget(self, fd: int) -> None:
        self._reactor.forget(fd)
        os.close(fd)


def words(command: str, devices: Sequence[str]) -> list[str]:
    """Return the command with the devices' names: `{device}` becomes `gpu0,gpu1`, `{index}` becomes `0,1`."""
    indices = [match[2] if (match := _NUMBERED.fullmatch(name)) else name for name in devices]
    fill = {"{device}": ",".join(devices), "{index}": ",".join(indices)}
    return [re.sub(r"\{(?:device|index)\}", lambda found: fill[found[0]], word) for word in shlex.split(command)]


def _group(device: str, size: int) -> tuple[str, ...]:
    """Return the device's reset group: in groups of four, `gpu5` belongs to gpu4 … gpu7."""
    match = _NUMBERED.fullmatch(device)
    if match is None or size == 1:
        return (device,)
    first = int(match[2]) // size * size
    return tuple(f"{match[1]}{number}" for number in range(first, first + size))
