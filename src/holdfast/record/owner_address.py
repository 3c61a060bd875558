"""The note with the owner's address. In a multi-node job the owner and each agent write one into the job's directory.

With the note a command on any node finds the owner. It contains no secret, only the path of the key file.
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
    """How one node reaches the owner of its job."""

    job_id: str
    #: The job's name.
    name: str
    #: The node's name in the job; empty in the owner's own note.
    node: str
    #: The host name of the machine that wrote the note.
    machine: str
    #: The host name of the owner's machine.
    owner: str
    #: The address by which this node reaches the owner.
    host: str
    port: int
    #: When the note was written, in seconds since the epoch.
    began: float = 0.0
    #: The path of the job's key file on this machine; empty if the key did not come from a file.
    key: str = ""


def write_owner_address(directory: Path, said: OwnerAddress) -> None:
    """Write the note into `directory`, which is the owner's or an agent's directory of the job. Raises OSError."""
    replace_file(directory / NOTE_NAME, encode(said) + b"\n")


def read_owner_address(home: Path, job: str) -> OwnerAddress | None:
    """Return the address by which this machine reaches a job's owner. `job`: the job's id, or its name, which means the
    newest job of that name.
    """
    places = (f"jobs/*/{NOTE_NAME}", f"jobs/*/nodes/*/{NOTE_NAME}")
    found = [said for each in places for said in _notes(home.glob(each))]
    of_job = [said for said in found if said.job_id == job] or [said for said in found if said.name == job]
    here = os.uname().nodename
    # A shared state directory has other machines' notes too. Prefer this machine's note. Skip a loopback address of
    # another machine, because this machine cannot reach it.
    usable = [said for said in of_job if said.machine == here or not said.host.startswith("127.")]
    return max(usable, key=lambda said: (said.job_id, said.machine == here), default=None)


def note_in(job_dir: Path) -> OwnerAddress | None:
    """Return a note of one of the agents in a job's directory; None: there is none."""
    return next(_notes(job_dir.glob(f"nodes/*/{NOTE_NAME}")), None)


def _notes(paths: Iterable[Path]) -> Iterator[OwnerAddress]:
    for path in paths:
        try:
            yield json_as(read_file(path, _MOST_BYTES), OwnerAddress)
        except (OSError, Malformed):
            continue  # skip a note that is being written, or comes from another version
