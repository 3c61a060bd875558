"""Publishes which devices of a node a user's fault log holds (state HELD), for the node's check, which runs as root.

The states of devices belong to one user, but draining a node affects all. So nothing is published unless an
administrator lets the node's check create a folder (`holdfast check --slurm --believe USERS`). In it each user has one
file per node. The folder has the sticky bit, so only a file's owner can replace it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.model.faults import DeviceStanding, Standing, is_verdict_of_a_check
from holdfast.model.noun_base import Noun
from holdfast.safe_files import open_file
from holdfast.untrusted import Malformed, json_as

FOLDER = Path("/run/holdfast/held")
MOST_BYTES = 64 << 10
MOST_NOTES = 64
MOST_DEVICES = 64
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class HeldNote(Noun, frozen=True, kw_only=True):
    """The devices that one user's fault log holds on one node."""

    node: str
    #: The devices in the state HELD, at most MOST_DEVICES. Those that a check holds are left out.
    devices: tuple[DeviceStanding, ...] = ()


def held(standings: Iterable[DeviceStanding], node: str) -> tuple[DeviceStanding, ...]:
    """Return the held devices on this node that a person must examine. Those that a check holds are left out."""
    return tuple(
        each
        for each in standings
        if each.standing is Standing.HELD and each.node in ("", node) and not is_verdict_of_a_check(each.codes)
    )


def publish(node: str, standings: Iterable[DeviceStanding], folder: Path = FOLDER) -> None:
    """Write a file with this node's held devices for the node's check.

    Ignore errors, because no device's state depends on the file.
    """
    path = folder / f"{_plain(node)}.{os.geteuid()}.json"
    devices = held(standings, node)[:MOST_DEVICES]
    try:
        if not folder.is_dir():
            return
        if not devices:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(f".{os.getpid()}.new")
        fd = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        try:
            os.write(fd, msgspec.json.encode(HeldNote(node=node, devices=devices)))
            os.fchmod(fd, 0o644)
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
        finally:
            os.close(fd)
    except OSError:
        # Write nothing: the disk is full, or the file belongs to another user. The node's check works without it.
        return


def make_folder(folder: Path = FOLDER) -> None:
    """Create the folder as root. From now on users' runs write files into it. Raises OSError."""
    for place, mode in ((folder.parent, 0o755), (folder, 0o1777)):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(f"{place} is not this user's directory")
        if stat.S_IMODE(found.st_mode) != mode:
            place.chmod(mode)


def notes(node: str, folder: Path = FOLDER) -> list[tuple[int, HeldNote]]:
    """Return (uid, note) for each user with a file for this node.

    Skip a file whose owner is not the user in its name.
    """
    found: list[tuple[int, HeldNote]] = []
    for path in sorted(folder.glob(f"{_plain(node)}.*.json"))[:MOST_NOTES]:
        number = path.name.removesuffix(".json").rpartition(".")[2]
        try:
            fd = open_file(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        with os.fdopen(fd, "rb") as file:
            owner, data = os.fstat(fd).st_uid, file.read(MOST_BYTES + 1)
        try:
            note = json_as(data, HeldNote)
        except Malformed:
            continue
        if str(owner) == number and note.node == node and len(data) <= MOST_BYTES:
            found.append((owner, HeldNote(node=node, devices=held(note.devices, node)[:MOST_DEVICES])))
    return found


def _plain(node: str) -> str:
    return _SAFE.sub("_", node)[:64]
