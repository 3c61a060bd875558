"""Creates the directory and the id of a new job."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.errors import BadUsage
from holdfast.file_modes import distrust, take_over, tighten
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import PlatformJob
from holdfast.record.database import make_private_dir
from holdfast.record.owner_lock import OwnerInfo, OwnerLock, boot_id
from holdfast.record.state_directory import job_dir

#: The state directory of a job if no directory is writable. No user can create a file at this path.
NOWHERE = Path("/proc/holdfast-has-no-home")
#: The folder in a job's directory with the keys for the sshd beside the workers.
SSH_FOLDER = "ssh"
#: The link in a job's directory to its logs, if `--log-dir` puts them elsewhere.
LOGS_LINK = "logs"

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # The letters and digits of ids, without those that look alike
_TRIES = 20
_NO_FILES = (
    "; no other directory of this machine can be written either. The job runs; no log is kept, this terminal has "
    "its only report, and `holdfast stop` cannot reach it. Set HOLDFAST_HOME to a writable directory, or mount one "
    "on /tmp"
)
_UNSAFE = Lazy(r"[^A-Za-z0-9_.-]")


class JobPlace(msgspec.Struct, frozen=True):
    """A job's id and directory, and the lock that shows that the job's owner is alive."""

    job_id: str
    #: The state directory with the job's directory. If the chosen one is not writable, it is a temporary directory.
    home: Path
    directory: Path
    #: The folder that contains the job's `attempt-<n>` directories: `directory`, or the job's folder in `--log-dir`.
    logs: Path
    lock: OwnerLock
    #: A message to the user about the temporary directory in place of the state directory; empty: none is used.
    trouble: str
    #: Whether `home` is a temporary directory in place of the state directory. Other commands only find it through
    #: HOLDFAST_HOME.
    stand_in: bool = False
    #: The name of the job's control groups; empty: the job's id.
    tree: str = ""
    #: How often the platform had started the job before this run.
    run: int = 0
    #: Whether the directory is of an earlier run of the job, so that this run continues the job's journal.
    resumed: bool = False


def new_job_id(now: float, suffix: str) -> str:
    """Return an id such as `20261120-2341-k3f9`. It contains the UTC time, so that ids sort by age in any time zone."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime(now))}-{suffix}"


def _suffix() -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4))


def logs_of(home: Path, job_id: str) -> Path:
    """Return the folder that contains the job's `attempt-<n>` directories with the logs."""
    linked = job_dir(home, job_id) / LOGS_LINK
    return linked if linked.exists() else job_dir(home, job_id)


def claim(
    home: Path,
    *,
    name: str,
    now: float,
    log_dir: Path | None = None,
    platform: PlatformJob | None = None,
    run: int = 0,
) -> JobPlace:
    """Create the directory (mode 0700) of a new job under `home`, and take its lock.

    If `home` is not writable, or if another user can write to it, use a temporary directory, and explain that in the
    result's `trouble`. If no directory is writable, create none. Raises BadUsage if `log_dir/<job>` cannot be created.

    now: seconds since the epoch. log_dir: the job's logs go to `log_dir/<job>`, and a link in the job's directory
    points to it. platform: the platform's id of the job. run: how often the platform had started the job before.
    """
    take_over(home)
    trouble = f"the state directory is not used: {why}" if (why := distrust(home)) else ""
    if not trouble:
        try:
            return _claim(home, name=name, now=now, log_dir=log_dir, trouble="", platform=platform, run=run)
        except OSError as error:
            taken = isinstance(error, FileExistsError | NotADirectoryError)
            why = "it is no directory" if taken else (error.strerror or str(error)).lower()
            take_over(home)
    trouble = f"the state directory {home} cannot be written ({why})"
    stand_in = _stand_in()
    if stand_in is None:
        return _nowhere(name=name, now=now, trouble=trouble, platform=platform)
    found = (
        f"{trouble}; this job's logs and its report go to {stand_in}, and other holdfast commands find it only with "
        f"HOLDFAST_HOME={stand_in}"
    )
    try:
        place = _claim(stand_in, name=name, now=now, log_dir=log_dir, trouble=found, platform=platform, run=run)
    except OSError:  # no file system of this machine has locks, or all are full
        return _nowhere(name=name, now=now, trouble=trouble, platform=platform)
    return msgspec.structs.replace(place, stand_in=True)


def claim_again(home: Path, before: OwnerInfo, *, run: int, log_dir: Path | None = None) -> JobPlace:
    """Take over the directory of a job that its platform has restarted. Raises OSError.

    The earlier run has ended, but its lock may still be taken: a network file system keeps the lock of a dead machine
    for a while, or the machine runs on without its network. A new lock file then replaces the old one.

    before: the owner of the earlier run.
    """
    directory = job_dir(home, before.job_id)
    supervisor = msgspec.structs.replace(
        _supervisor(before.job_id, before.name, before.created, before.platform), run=run
    )
    try:
        lock = OwnerLock.take(directory, supervisor)
    except BlockingIOError:
        if before.run >= run:
            raise
        lock = OwnerLock.take(directory, supervisor, anew=True)
    logs = directory
    if log_dir is not None:
        logs = log_dir.absolute() / before.job_id
        _make_logs(log_dir, logs)
    elif (directory / LOGS_LINK).exists():
        logs = directory / LOGS_LINK
    return JobPlace(before.job_id, home, directory, logs, lock, "", run=run, resumed=True)


def part(home: Path, job_id: str, *, node: str, name: str, now: float, log_dir: Path | None = None) -> JobPlace:
    """Create a node's directory for a job whose owner is on another node: `nodes/NODE` in the job's directory.

    The logs have the same paths as on the owner's node. Each rank is on one node, so nodes with a shared state
    directory never write to the same log file. No lock is taken, because the end of an agent does not end the job. If
    `home` is not writable, a temporary directory replaces it, as in `claim`.
    """
    try:
        return _part(home, job_id, node=node, name=name, now=now, log_dir=log_dir, trouble="")
    except OSError as error:
        trouble = f"the state directory {home} cannot be written ({(error.strerror or str(error)).lower()})"
    other = _stand_in()
    if other is None:
        return _nowhere(name=name, now=now, trouble=trouble, also=", and no other directory either: no log is kept")
    trouble += f"; the logs of this node go to {other}"
    place = _part(other, job_id, node=node, name=name, now=now, log_dir=log_dir, trouble=trouble)
    return msgspec.structs.replace(place, stand_in=True)


def _part(home: Path, job_id: str, *, node: str, name: str, now: float, log_dir: Path | None, trouble: str) -> JobPlace:
    make_private_dir(home / "jobs")
    directory = job_dir(home, job_id)
    own = directory / "nodes" / _UNSAFE.sub("_", node)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    logs = directory
    if log_dir is not None:
        logs = log_dir.absolute() / job_id
        _make_logs(log_dir, logs)
        try:
            (directory / LOGS_LINK).symlink_to(logs)
        except FileExistsError:
            pass  # keep the link, because the owner or another node has created it already
    lock = OwnerLock(-1, _supervisor(job_id, name, now))
    return JobPlace(job_id, home, own, logs, lock, trouble, tree=f"{job_id}@{node}")


#: The prefix of the temporary directory's name, and the variables that name folders for it.
_STAND_IN, _FOLDERS = "holdfast-", ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")


def is_stand_in(home: Path, environment: Mapping[str, str]) -> bool:
    """Return whether the directory is a temporary one in place of an unwritable state directory."""
    folders = {"/tmp", "/var/tmp", "/dev/shm", "/run", *(environment.get(name) for name in _FOLDERS)}
    return home.name.startswith(_STAND_IN) and str(home.parent) in folders


def _stand_in() -> Path | None:
    """Create a private temporary directory in place of the state directory; None if no directory is writable."""
    import tempfile

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for place in (None, *([runtime] if runtime else []), "/dev/shm", "/run"):
        try:
            return Path(tempfile.mkdtemp(prefix=_STAND_IN, dir=place))
        except OSError:
            continue
    return None


def nowhere(name: str, now: float) -> JobPlace:
    """Return a placeholder for the directory of a job that has none yet."""
    return _nowhere(name=name, now=now, trouble="", also="")


def _nowhere(
    *, name: str, now: float, trouble: str, also: str = _NO_FILES, platform: PlatformJob | None = None
) -> JobPlace:
    """Return a placeholder for a job's directory on a machine without a writable directory. The job then has no files,
    and only the terminal shows its report. `trouble`, `also`: the message to the user.
    """
    job_id = new_job_id(now, _suffix())
    directory = job_dir(NOWHERE, job_id)
    lock = OwnerLock(-1, _supervisor(job_id, name, now, platform))
    return JobPlace(job_id, NOWHERE, directory, directory, lock, trouble + also)


def _supervisor(job_id: str, name: str, now: float, platform: PlatformJob | None = None) -> OwnerInfo:
    return OwnerInfo(
        job_id=job_id,
        name=name,
        host=os.uname().nodename,
        pid=os.getpid(),
        created=now,
        boot_id=boot_id(),
        platform=platform,
    )


def _make_logs(log_dir: Path, logs: Path) -> None:
    try:
        make_private_dir(logs)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"--log-dir {log_dir}: expected a directory to write logs to: {reason}"
        raise BadUsage(message, hint=f"ls -ld {log_dir}") from error


def _claim(
    home: Path,
    *,
    name: str,
    now: float,
    log_dir: Path | None,
    trouble: str,
    platform: PlatformJob | None,
    run: int,
) -> JobPlace:
    make_private_dir(home / "jobs")
    tighten(home)
    tighten(home / "jobs")
    for attempt in range(_TRIES):
        job_id = new_job_id(now, _suffix())
        directory = job_dir(home, job_id)
        try:
            directory.mkdir(mode=0o700)
            break
        except FileExistsError:
            if attempt == _TRIES - 1:
                raise
    try:
        lock = OwnerLock.take(directory, msgspec.structs.replace(_supervisor(job_id, name, now, platform), run=run))
        logs = directory
        if log_dir is not None:
            logs = log_dir.absolute() / job_id
            (directory / LOGS_LINK).symlink_to(logs)
            _make_logs(log_dir, logs)
    except (OSError, BadUsage):
        # Remove the incomplete directory of the job, because it could confuse users.
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
        raise
    return JobPlace(job_id, home, directory, logs, lock, trouble, run=run)
