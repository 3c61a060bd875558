"""Jobs that this state directory submitted to a platform's queue, and that have not begun.

A queue remembers them, but answers only while its server does; and a waiting job has no directory of its own yet.
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
    """One submission. Its note is removed when the platform no longer knows it."""

    platform: PlatformJob
    name: str
    #: Seconds since the epoch.
    at: float
    #: The indices of an array, as they were written; empty: it is one job.
    array: str = ""
    #: The copy of the job file that it runs from.
    job_file: str = ""
    #: The file of the platform's output, as a pattern of the platform's.
    output: str = ""


def keep_job_file(home: Path, name: str, text: bytes) -> Path:
    """A permanent copy of a job file, under a name that follows from its content. Raises OSError."""
    path = job_file_place(home, name, text)
    make_private_dir(path.parent)
    if not path.exists():
        replace_file(path, text)
    return path


def job_file_place(home: Path, name: str, text: bytes) -> Path:
    """The path of that copy. The same text is one file, however often it is submitted."""
    import hashlib

    return home / FOLDER / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}.yaml"


def write_submission(home: Path, said: SubmissionRecord) -> None:
    """Record a submission. Raises OSError."""
    make_private_dir(home / FOLDER)
    replace_file(_place(home, said.platform), encode(said) + b"\n")


def read_submissions(home: Path) -> Iterator[SubmissionRecord]:
    """The recorded submissions; unreadable notes are skipped."""
    try:
        files = sorted((home / FOLDER).glob("*.json"))
    except OSError:
        return
    for file in files[-_MOST:]:
        try:
            found = json_as(read_file(file, _MOST_BYTES), SubmissionRecord)
        except (OSError, Malformed):
            continue  # being written, or of another version
        if not wrong_time(found.at):
            yield found


def remove_submission(home: Path, platform: PlatformJob) -> None:
    """The job has begun, or never will."""
    try:
        _place(home, platform).unlink(missing_ok=True)
    except OSError:
        pass  # a directory that cannot be written: it is looked at again


def _place(home: Path, platform: PlatformJob) -> Path:
    return home / FOLDER / f"{platform.platform}-{platform.id}.json"
