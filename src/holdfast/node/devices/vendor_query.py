"""Finds the processes that use a device. Only the vendor's tool knows the processes of all users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast import children
from holdfast.node.devices.device_locks import DeviceLocks
from holdfast.observe.devices.device_users import answered, question, unseen, users_of
from holdfast.safe_files import created, opened, read_file
from holdfast.untrusted import MOST_BYTES

LOG_BYTES = 4096
#: Seconds that the vendor's tool may take. It can hang if the device hangs.
ASK_S = 20.0


class DeviceUsers(msgspec.Struct, frozen=True):
    """The functions that find the processes that use a device."""

    #: The device locks of this machine. They show the processes that hold them.
    locks: DeviceLocks
    #: Returns pid → name of the processes that have the devices open, of those that this user can see.
    visible: Callable[[Sequence[str]], Mapping[int, str]] = users_of
    #: Returns the number of processes that this user cannot see.
    hidden: Callable[[], int] = unseen
    #: Returns the vendor's command that lists the processes of all users.
    question: Callable[[Sequence[str]], Sequence[str]] = question


class VendorQuery:
    """A running query of the vendor's tool. Raises OSError if there is no tool.

    `command`: the tool; empty if there is none. `file`: gets the tool's output. `pidfd`: readable when the tool has
    exited. `until`: the time limit.
    """

    def __init__(self, command: Sequence[str], file: Path, now: float) -> None:
        if not command:
            raise FileNotFoundError
        self.tool = command[0]
        self.until = now + ASK_S
        self._file = file
        with created(file) as out:
            self.child = children.start(command, output=out.fileno())
        self.pidfd = self.child.pidfd

    def answer(self) -> tuple[dict[int, str], str]:
        """Return (pid → command for each process that uses the devices, ""); or ({}, the reason) if they are unknown.

        Call this after the tool has exited.
        """
        status = self.child.reap()
        try:
            text = read_file(self._file, MOST_BYTES, cut=True).decode(errors="replace")
            self._file.unlink()
        except OSError as error:
            return {}, error.strerror or str(error)
        return ({}, f"it ended with status {status}") if status else (answered(text), "")


def sight(devices: Sequence[str], hidden: int) -> str:
    """Return a warning that `hidden` processes cannot be inspected (-1: an unknown number); "" if there are none."""
    if not hidden:
        return ""
    many = f"{hidden} process{'es' if hidden > 1 else ''} of other users cannot be looked into"
    return (
        f"{', '.join(devices)}: {many if hidden > 0 else 'processes of other users are hidden here'}: whether they use "
        "the device is not known, and only the driver can refuse the reset. Root sees them all"
    )


def last_line(log: Path) -> str:
    """Return `: ` and the last line of a command's log, or "" if the log is empty."""
    try:
        with opened(log) as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {said[:200]}" if said else ""
