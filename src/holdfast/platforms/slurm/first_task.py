"""Starts a job that the user started as `srun holdfast run`. The first task hosts the owner, and the others read its
address from a file.

The file is in the shared state directory. Its name contains the step number, so that a file from an earlier step is
never used by mistake.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.model.noun_base import Noun
from holdfast.reactor import Reactor
from holdfast.safe_files import read_file, replace_file
from holdfast.untrusted import Malformed, json_as

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_MOST_BYTES = 64 * 1024


class FirstTaskAddress(Noun, frozen=True, kw_only=True):
    """The contents of the address file, which the first task writes."""

    addresses: tuple[str, ...]
    port: int


def notice_path(home: Path, job: str, step: int, env: Mapping[str, str]) -> Path:
    """Return the path of the file to which the first task of this step writes its address."""
    launcher = env.get("SLURM_LAUNCH_NODE_IPADDR", ""), env.get("SLURM_STEP_LAUNCHER_PORT", "")
    of_srun = "-".join(part for part in launcher if part.replace(".", "").replace(":", "").isalnum())
    return home / "slurm" / f"{job}.{step}{'-' if of_srun else ''}{of_srun}.json"


class FirstTask:
    """A `Starter` for tasks that Slurm has already started. It only writes the owner's address to a file.

    `path`: the file, which the other tasks read. `addresses`: the addresses of the owner's machine.
    """

    news_fd = -1

    def __init__(self, path: Path, addresses: tuple[str, ...]) -> None:
        self._path = path
        self._addresses = addresses

    def __call__(self, address: str, port: int, guard_fd: int) -> int:
        """Write the address file, and delete it after the job's end. Raises OSError if the file cannot be written."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.encode(FirstTaskAddress(addresses=self._addresses, port=port)))
        try:
            while any(os.read(guard_fd, 128)):
                pass  # ignore signals, because the owner acts on them
        finally:
            self._path.unlink(missing_ok=True)
        return 0


def await_notice(path: Path, limit_s: float) -> FirstTaskAddress | None:
    """Wait for the first task's address file and read it. Return None if no file appears within `limit_s` seconds."""
    found: list[FirstTaskAddress] = []
    reactor = Reactor(Clock().now)
    until = reactor.now() + limit_s
    tries = 0
    while not found and reactor.now() < until:
        found.extend(_read(path))
        if not found:
            reactor.at(min(until, reactor.now() + _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]), _nothing)
            reactor.wait()
            tries += 1
    reactor.close()
    return found[0] if found else None


def _nothing(now: float) -> None:
    """Do nothing. The timer only has to wake the reactor."""


def _read(path: Path) -> tuple[FirstTaskAddress, ...]:
    try:
        # A network file system may remember for half a minute that a file is missing. Changing the directory corrects
        # this.
        os.utime(path.parent)
        return (json_as(read_file(path, _MOST_BYTES), FirstTaskAddress, most_bytes=_MOST_BYTES),)
    except (OSError, Malformed):
        return ()
