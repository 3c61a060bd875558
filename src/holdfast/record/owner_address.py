"""The address of the owner of a job over many nodes: the owner and each agent write it into the job's directory.

With this note a command on any node finds the owner. It contains no secret: it names only the file of the key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_file, replace_file
from holdfast.untrusted import Malformed, json_as

NOTE_NAME = "owner.json"
_MOST_BYTES = 64 * 1024


class OwnerAddress(Noun, frozen=True, kw_only=True):
    """How the owner is reached from one node."""

    job_id: str
    #: The job's id.
    name: str
    #: The node's name in the job; empty in the owner's own note.
    node: str
    #: The host name of the node's machine.
    machine: str
    #: The host name of the owner's machine.
    owner: str
    #: The address to dial.
    host: str
    port: int
    #: When it was written, in seconds since the epoch.
    began: float = 0.0
    #: The file of the job's key on this machine; empty where the key came another way.
    key: str = ""


def write_owner_address(directory: Path, said: OwnerAddress) -> None:
    """Write it into the owner's or an agent's own directory of the job. Raises OSError."""
    replace_file(directory / NOTE_NAME, encode(said) + b"\n")


def read_owner_address(home: Path, job: str) -> OwnerAddress | None:
    """How this machine reaches the owner of a job, by the job's id or its name (the newest of that name)."""
    places = (f"jobs/*/{NOTE_NAME}", f"jobs/*/nodes/*/{NOTE_NAME}")
    found = [said for each in places for said in _notes(home.glob(each))]
    of_job = [said for said in found if said.job_id == job] or [said for said in found if said.name == job]
    here = os.uname().nodename
    # With a shared home there are notes of other machines too: one of this machine comes first, and another machine's
    # loopback leads nowhere from here.
    usable = [said for said in of_job if said.machine == here or not said.host.startswith("127.")]
    return max(usable, key=lambda said: (said.job_id, said.machine == here), default=None)


def note_in(job_dir: Path) -> OwnerAddress | None:
    """One of the notes in a job's directory; None where no agent has written any."""
    return next(_notes(job_dir.glob(f"nodes/*/{NOTE_NAME}")), None)


def _notes(paths: Iterable[Path]) -> Iterator[OwnerAddress]:
    for path in paths:
        try:
            yield json_as(read_file(path, _MOST_BYTES), OwnerAddress)
        except (OSError, Malformed):
            continue  # being written, or of another version
