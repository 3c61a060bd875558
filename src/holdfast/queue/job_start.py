"""Starts a job of the queue: `holdfast run`, with the command, directory and environment of the job's submission."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.decide.queue.queue_model import Machine
from holdfast.errors import HoldfastError
from holdfast.model.codec import encode
from holdfast.model.job_spec import QUEUE_DEVICES, VISIBLE
from holdfast.model.noun_base import Noun
from holdfast.safe_files import open_file, read_file, replace_file
from holdfast.untrusted import Malformed, json_as

SUBMISSION_NAME, OUTPUT_NAME, START_LOCK_NAME = "submission.json", "output.log", "start.lock"
#: The variable that names the job in its run: `local:ID`.
RUN_OF = "HOLDFAST_PLATFORM_RUN"
_MOST_BYTES = 4 << 20
#: Soft limits that the job's run gets from its submission.
LIMITS = ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_MEMLOCK")


class JobSubmission(Noun, frozen=True, kw_only=True):
    """A job's command as the user submitted it. The file has mode 0600, because the environment may hold secrets."""

    #: The program and its arguments: `python -P -m holdfast run …`.
    command: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    umask: int
    #: Name of a limit of `resource` → soft limit.
    limits: dict[str, int] = {}
    #: The file for the run's output; empty: `output.log` in the job's directory.
    output: str = ""


class StartFailed(HoldfastError):
    """The job's command could not be started. The message tells why."""


def write_submission(job_dir: Path, submission: JobSubmission) -> None:
    """Write the submission into the job's directory. Raises OSError."""
    replace_file(job_dir / SUBMISSION_NAME, encode(submission) + b"\n")


def read_submission(job_dir: Path) -> JobSubmission:
    """Read a job's submission. Raises StartFailed."""
    try:
        return json_as(read_file(job_dir / SUBMISSION_NAME, _MOST_BYTES), JobSubmission, most_bytes=_MOST_BYTES)
    except (OSError, Malformed) as error:
        raise StartFailed(f"the job's submission cannot be read: {error}") from None


def soft_limits() -> dict[str, int]:
    """Return the soft limits of this process."""
    return {name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS}


def start(job_id: str, job_dir: Path, given: Mapping[str, str]) -> tuple[int, int]:
    """Start the job's run. Return its process id and a pidfd.

    `given`: variables that tell the run its job and devices. The run inherits the locked file `start.lock`: a core that
    died right after the start leaves a job that the next core can see. Raises StartFailed.
    """
    submission = read_submission(job_dir)
    lock = open_file(job_dir / START_LOCK_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        output = Path(submission.output) if submission.output else job_dir / OUTPUT_NAME
        try:
            log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartFailed(f"{output} cannot be written: {error.strerror}") from None
        try:
            child = subprocess.Popen(
                submission.command,
                cwd=submission.directory,
                env={**submission.environment, **given, RUN_OF: f"local:{job_id}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=submission.umask,
                pass_fds=(lock,),
                preexec_fn=_limited(submission.limits),  # the core has one thread
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            what = error.filename if isinstance(error, OSError) and error.filename else submission.command[0]
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise StartFailed(f"{what}: {why}") from None
        finally:
            os.close(log)
        child.returncode = 0  # the core waits by the pidfd, so Popen must not
        return child.pid, os.pidfd_open(child.pid)
    except BlockingIOError:
        raise StartFailed("a process of an earlier start of the job still runs") from None
    finally:
        os.close(lock)


def _limited(limits: Mapping[str, int]) -> Callable[[], None]:
    def limit() -> None:
        for name, soft in limits.items():
            if name in LIMITS:
                number = getattr(resource, name)
                hard = resource.getrlimit(number)[1]
                most = soft if hard == resource.RLIM_INFINITY else min(soft, hard) if soft >= 0 else hard
                resource.setrlimit(number, (most, hard))

    return limit


def is_started(job_dir: Path) -> bool:
    """Return whether a process of the job's run still holds the start lock."""
    try:
        fd = open_file(job_dir / START_LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def ticks_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot; 0 if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = text.rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def variables_of(devices: Sequence[str], machine: Machine) -> dict[str, str]:
    """Return the variables with which the job's workers find their devices. `devices`: names such as `gpu3`."""
    found = {QUEUE_DEVICES: ",".join(map(_number, devices))}
    for variable, kind in VISIBLE.items():
        # A job without devices must see none of those that the machine has.
        if variable != QUEUE_DEVICES and any(each.name.startswith(kind) for each in machine.devices):
            found[variable] = ",".join(_number(name) for name in devices if name.startswith(kind))
            found |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if kind == "gpu" else {}
    return found


def _number(name: str) -> str:
    return name.lstrip("abcdefghijklmnopqrstuvwxyz")
