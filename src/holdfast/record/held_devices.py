"""Publishes the devices that a user's jobs hold on a node, for the node's check, which runs as root.

Standings belong to a user, but a drain affects the whole node. An administrator who wants held devices to drain nodes
lets the node's check create a folder (`holdfast check --slurm --believe USERS`). Without that folder nothing is
written. Each user has one file for each node in it. The folder is sticky, so only its owner can replace a file.
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
    """The devices that one user holds on one node."""

    node: str
    #: The devices that are HELD, except by a check's verdict; at most MOST_DEVICES.
    devices: tuple[DeviceStanding, ...] = ()


def held(standings: Iterable[DeviceStanding], node: str) -> tuple[DeviceStanding, ...]:
    """Return the standings that a person has to look at on this node: held devices, except by a check's verdict."""
    return tuple(
        each
        for each in standings
        if each.standing is Standing.HELD and each.node in ("", node) and not is_verdict_of_a_check(each.codes)
    )


def publish(node: str, standings: Iterable[DeviceStanding], folder: Path = FOLDER) -> None:
    """Write the devices that are held on this node now, for the node's check. Errors are ignored: the standings do not
    depend on the note."""
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
        return  # the disk is full, or the file is another user's: the node's check does without this note


def make_folder(folder: Path = FOLDER) -> None:
    """Create the folder, as root: from now on users' runs write their notes there. Raises OSError."""
    for place, mode in ((folder.parent, 0o755), (folder, 0o1777)):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(f"{place} is not this user's directory")
        if stat.S_IMODE(found.st_mode) != mode:
            place.chmod(mode)


def notes(node: str, folder: Path = FOLDER) -> list[tuple[int, HeldNote]]:
    """Return (uid, note) of each user with a note on this node. A file whose owner is not the user in its name is
    skipped."""
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
