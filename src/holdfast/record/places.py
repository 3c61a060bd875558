"""Where a new job keeps its files, and under which number."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from holdfast.errors import BadUsage
from holdfast.model.paths import job_dir
from holdfast.record.database import make_private_dir
from holdfast.record.liveness import Supervisor, SupervisorLock, boot_id

LOGS_LINK = "logs"
"""In a job's directory: leads to its logs where they are kept elsewhere (`--log-dir`)."""

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # none that reads like another one
_TRIES = 20


class JobPlace(msgspec.Struct, frozen=True):
    """A new job's number and directory, and the lock that says that its supervisor lives."""

    job_id: str
    home: Path
    """Where the directory lies: the home that was asked for, or a stand-in if that cannot be written."""
    directory: Path
    logs: Path
    """Where its `attempt-<n>` directories go: `directory`, or its own place under `--log-dir`."""
    lock: SupervisorLock
    trouble: str
    """Empty, or the sentence to print about the stand-in."""


def new_job_id(now: float, suffix: str) -> str:
    """`20261120-2341-k3f9`: minutes of universal time, so that numbers sort by age also when clocks change."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime(now))}-{suffix}"


def logs_of(home: Path, job_id: str) -> Path:
    """Where the job's `attempt-<n>` directories lie."""
    linked = job_dir(home, job_id) / LOGS_LINK
    return linked if linked.exists() else job_dir(home, job_id)


def claim(home: Path, *, name: str, now: float, log_dir: Path | None = None) -> JobPlace:
    """Make the directory (0700) of a new job under `home` and take its lock. `now`: seconds since the epoch.

    With `log_dir` the job's logs are to go to `log_dir/<job>`, which is made, and a link in the directory leads there.
    Raises BadUsage where that cannot be made.
    Where `home` cannot be written, the directory is made under the machine's temporary directory instead, and `trouble`
    says so. Raises OSError where not even that works.
    """
    try:
        return _claim(home, name=name, now=now, log_dir=log_dir, trouble="")
    except OSError as error:
        import tempfile

        taken = isinstance(error, FileExistsError | NotADirectoryError)
        why = "it is no directory" if taken else (error.strerror or str(error)).lower()
        stand_in = Path(tempfile.mkdtemp(prefix="holdfast-"))
        trouble = (
            f"the state directory {home} cannot be written ({why}): this job's logs "
            f"and its report go to {stand_in}, and other holdfast commands find it only with HOLDFAST_HOME={stand_in}"
        )
        return _claim(stand_in, name=name, now=now, log_dir=log_dir, trouble=trouble)


def _make_logs(log_dir: Path, logs: Path) -> None:
    try:
        make_private_dir(logs)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"--log-dir {log_dir}: expected a directory to write logs to: {reason}"
        raise BadUsage(message, hint=f"ls -ld {log_dir}") from error


def _claim(home: Path, *, name: str, now: float, log_dir: Path | None, trouble: str) -> JobPlace:
    make_private_dir(home / "jobs")
    for attempt in range(_TRIES):
        job_id = new_job_id(now, "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4)))
        directory = job_dir(home, job_id)
        try:
            directory.mkdir(mode=0o700)
            break
        except FileExistsError:
            if attempt == _TRIES - 1:
                raise
    supervisor = Supervisor(
        job_id=job_id, name=name, host=os.uname().nodename, pid=os.getpid(), created=now, boot_id=boot_id()
    )
    try:
        lock = SupervisorLock.take(directory, supervisor)
        logs = directory
        if log_dir is not None:
            logs = log_dir.absolute() / job_id
            (directory / LOGS_LINK).symlink_to(logs)
            _make_logs(log_dir, logs)
    except (OSError, BadUsage):
        # Half a directory would be in the way of nothing but the eye.
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
        raise
    return JobPlace(job_id, home, directory, logs, lock, trouble)
