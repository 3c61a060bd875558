"""Records jobs that were submitted to a platform's queue and have not started.

The platform knows them too, but its server may be down. A waiting job has no directory yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.model.codec import encode
from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.record.database import make_private_dir
from holdfast.safe_files import read_file, replace_file
from holdfast.untrusted import Malformed, json_as, wrong_time

FOLDER = "submitted"
_MOST_BYTES = 64 * 1024
_MOST = 10_000


class SubmissionRecord(Noun, frozen=True, kw_only=True):
    """One submitted job. The record's file is removed after the platform has forgotten the job."""

    platform: PlatformJob
    name: str
    #: When the job was submitted, in seconds since the epoch.
    at: float
    #: The indices of a job array as the user wrote them; empty for a single job.
    array: str = ""
    #: The path of the copy of the job file that the job uses.
    job_file: str = ""
    #: The path of the platform's output file, in the platform's syntax for patterns.
    output: str = ""


def keep_job_file(home: Path, name: str, text: bytes) -> Path:
    """Save a permanent copy of a job file, under a name that depends on its content. Raises OSError."""
    path = job_file_place(home, name, text)
    make_private_dir(path.parent)
    if not path.exists():
        replace_file(path, text)
    return path


def job_file_place(home: Path, name: str, text: bytes) -> Path:
    """Return the path for the copy of a job file. The same text always has the same path."""
    import hashlib

    return home / FOLDER / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}.yaml"


def write_submission(home: Path, said: SubmissionRecord) -> None:
    """Write the record of a submission. Raises OSError."""
    make_private_dir(home / FOLDER)
    replace_file(_place(home, said.platform), encode(said) + b"\n")


def read_submissions(home: Path) -> Iterator[SubmissionRecord]:
    """Yield the recorded submissions. Unreadable files are skipped."""
    try:
        files = sorted((home / FOLDER).glob("*.json"))
    except OSError:
        return
    for file in files[-_MOST:]:
        try:
            found = json_as(read_file(file, _MOST_BYTES), SubmissionRecord)
        except (OSError, Malformed):
            continue  # skip a file that is being written, or comes from another version
        if not wrong_time(found.at):
            yield found


def remove_submission(home: Path, platform: PlatformJob) -> None:
    """Remove the record of a job that has started or never will."""
    try:
        _place(home, platform).unlink(missing_ok=True)
    except OSError:
        pass  # ignore the error: the directory is not writable now, and the next call tries again


def _place(home: Path, platform: PlatformJob) -> Path:
    return home / FOLDER / f"{platform.platform}-{platform.id}.json"
