"""Where a new job keeps its files, and its id."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from holdfast.errors import BadUsage
from holdfast.file_modes import distrust, take_over, tighten
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import PlatformJob
from holdfast.record.database import make_private_dir
from holdfast.record.owner_lock import OwnerInfo, OwnerLock, boot_id
from holdfast.record.state_directory import job_dir

#: The home of a job for which no directory is writable: no file can be made there, by any user.
NOWHERE = Path("/proc/holdfast-has-no-home")
#: In a job's directory on each node: the keys for the sshd beside its workers.
DOOR = "ssh"
#: In a job's directory: a link to its logs where they are elsewhere (`--log-dir`).
LOGS_LINK = "logs"

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # none that reads like another one
_TRIES = 20
_NO_FILES = (
    "; no other directory of this machine can be written either. The job runs; no log is kept, this terminal has "
    "its only report, and `holdfast stop` cannot reach it. Set HOLDFAST_HOME to a writable directory, or mount one "
    "on /tmp"
)
_UNSAFE = Lazy(r"[^A-Za-z0-9_.-]")


class JobPlace(msgspec.Struct, frozen=True):
    """A new job's id and directory, and the lock that shows that its owner is alive."""

    job_id: str
    #: The directory's parent: the home that was requested, or a substitute if that is not writable.
    home: Path
    directory: Path
    #: The parent of its `attempt-<n>` directories: `directory`, or its own place under `--log-dir`.
    logs: Path
    lock: OwnerLock
    #: Empty, or the sentence to print about the substitute.
    trouble: str
    #: The name for its control groups; empty: the job's id.
    tree: str = ""
    #: How often the platform had started the job before this run.
    run: int = 0
    #: An earlier run of the job has made it: the journal continues.
    resumed: bool = False


def new_job_id(now: float, suffix: str) -> str:
    """`20261120-2341-k3f9`: minutes in UTC, so that ids sort by age even when clocks change."""
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime(now))}-{suffix}"


def _suffix() -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4))


def logs_of(home: Path, job_id: str) -> Path:
    """The parent of the job's `attempt-<n>` directories."""
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
    """Make the directory (0700) of a new job under `home` and take its lock. `now`: seconds since the epoch.

    `run`: how often its platform had started the job before. With `log_dir` the job's logs go to `log_dir/<job>`, which
    is made, and a link in the directory leads there. Raises BadUsage where that cannot be made.

    Where `home` is not writable, the directory is made under the machine's temporary directory instead, and `trouble`
    explains it; the same where another user can write to `home`. Where no directory at all is writable, none is made.
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
    trouble += (
        f"; this job's logs and its report go to {stand_in}, and other holdfast commands find it only with "
        f"HOLDFAST_HOME={stand_in}"
    )
    return _claim(stand_in, name=name, now=now, log_dir=log_dir, trouble=trouble, platform=platform, run=run)


def claim_again(home: Path, before: OwnerInfo, *, run: int, log_dir: Path | None = None) -> JobPlace:
    """Take over the directory of a job that its platform has started again. Raises OSError.

    `before`: the owner of the earlier run. Its lock may still look held: the server of a network file system keeps the
    lock of a dead machine for a while, and a machine without network may be alive. That run is over all the same, so a
    new lock file takes the place of the old one.
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
    """Where a node keeps its part of a job that has its owner elsewhere: `nodes/NODE` in the job's directory.

    Logs are where those of the owner's node are: a rank has one node, so nodes that share a home share no file. No lock
    is taken: the end of a node's agent does not end the job. Where `home` is not writable, see `claim`.
    """
    try:
        return _part(home, job_id, node=node, name=name, now=now, log_dir=log_dir, trouble="")
    except OSError as error:
        trouble = f"the state directory {home} cannot be written ({(error.strerror or str(error)).lower()})"
    other = _stand_in()
    if other is None:
        return _nowhere(name=name, now=now, trouble=trouble, also=", and no other directory either: no log is kept")
    trouble += f"; the logs of this node go to {other}"
    return _part(other, job_id, node=node, name=name, now=now, log_dir=log_dir, trouble=trouble)


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
            pass  # of the owner, or of another node
    lock = OwnerLock(-1, _supervisor(job_id, name, now))
    return JobPlace(job_id, home, own, logs, lock, trouble, tree=f"{job_id}@{node}")


def _stand_in() -> Path | None:
    """A private directory on this machine, with room for logs; None where no directory is writable."""
    import tempfile

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for place in (None, *([runtime] if runtime else []), "/dev/shm", "/run"):
        try:
            return Path(tempfile.mkdtemp(prefix="holdfast-", dir=place))
        except OSError:
            continue
    return None


def nowhere(name: str, now: float) -> JobPlace:
    """The place of a job that has none yet."""
    return _nowhere(name=name, now=now, trouble="", also="")


def _nowhere(
    *, name: str, now: float, trouble: str, also: str = _NO_FILES, platform: PlatformJob | None = None
) -> JobPlace:
    """A job on a machine without any writable directory: it runs, and only the terminal shows what happened."""
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
        # Half a directory would be in the way of nothing but the eye.
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
        raise
    return JobPlace(job_id, home, directory, logs, lock, trouble, run=run)
