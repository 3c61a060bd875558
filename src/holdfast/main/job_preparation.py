"""Prepares a job's directory before the job starts, or refuses the job with a message that gives the reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from holdfast.act.time_limited import WITHIN_S, within
from holdfast.errors import BadUsage, HoldfastError
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.node.exit_status import refused
from holdfast.platforms.platform_registry import platform_here
from holdfast.record.job_directory import JobPlace, claim, claim_again
from holdfast.record.owner_lock import read_owner
from holdfast.record.state_directory import job_dir
from holdfast.safe_files import write_file
from holdfast.safe_text import own_lines


def job_directory_for(launch: LaunchSpec, now: float) -> JobPlace:
    """Claim a directory for the new job. `now`: seconds since the epoch. Raises BadUsage if `--log-dir` is unusable."""
    if launch.log_dir is not None:
        must_answer(launch.log_dir, "--log-dir", partial(_try_out, launch.log_dir))
    spec, run, why = launch.spec, 0, ""
    if spec.platform is not None and (platform := platform_here(os.environ)) is not None:
        run = platform.restarts(os.environ)
        reserved = platform.reserved(os.environ) if not run else ""
        if reserved and (waited := read_owner(job_dir(launch.home, reserved))) is not None:
            try:
                return claim_again(launch.home, waited, run=0, log_dir=launch.log_dir)
            except OSError:
                pass  # another run of the job has the directory, so this one makes its own
        if run:
            # Imported late: few jobs are restarted by their platform.
            from holdfast.platforms.job_takeover import place_of_before

            before, why = place_of_before(launch, run)
            if before is not None:
                return before
    place = claim(launch.home, name=spec.name, now=now, log_dir=launch.log_dir, platform=spec.platform, run=run)
    return replace(place, trouble="\n".join(filter(None, (place.trouble, why))))


def must_answer(place: Path, option: str, work: Callable[[], object]) -> None:
    """Raise BadUsage if `work` on `place` times out, because the file system does not answer."""
    try:
        within(work)
    except OSError as error:
        if error.errno == errno.ETIMEDOUT:
            raise BadUsage(
                f"{option} {place}: no answer within {WITHIN_S:g} s; a directory of a mount that answers was expected",
                hint=f"timeout 5 ls {place}; grep -w nfs4 /proc/mounts",
            ) from None
        # Ignore all errors but a time-out: the code that opens the directory later reports them.


def _try_out(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = directory / f".holdfast-{os.getpid()}"
    write_file(probe, b"")
    probe.unlink()


def refuse(error: HoldfastError) -> int:
    """Print the message on stderr, because no console is open yet. Return the error's exit status."""
    os.write(2, "\n".join((*own_lines(str(error), again=""), "")).encode())
    refused(os.environ, error.exit_status, error.message, f"try: {error.hint}" if error.hint else "")
    return error.exit_status
