"""Implements `holdfast prepare`, which writes all files that a task's container needs.

It runs in a container in which holdfast is installed. It writes the runtime first and the job file after it. A
container that starts before `prepare` has ended may find no job.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.bundle.tree_choice import find_tree
from holdfast.bundle.tree_copy import InstalledTree, lay_down
from holdfast.errors import BadUsage, HoldfastError
from holdfast.launch.jobfile.job_file_reader import parsed, text_of
from holdfast.node.prechecks.fetch_process import fetch_here
from holdfast.runtime.name_expansion import secret_variable
from holdfast.safe_directories import enter, is_trusted
from holdfast.safe_files import replace_file

EXCHANGE = Path("/usr/local/pai")
#: Name of the job file for the task's container, in the exchange directory.
JOB = "job.yaml"


def prepare(
    into: Path,
    job: Path | None,
    tree: Path | None,
    say: Callable[[str], None],
    draw: Callable[[str], None] | None = None,
    width: int = 80,
) -> InstalledTree:
    """Write the runtime and the job file into `into`, and fetch the job's prerequisites.

    The call may be repeated. It checks the job file before it writes anything. Raises HoldfastError.

    `into`: path of the exchange directory.
    `job`: path of the job file, or None.
    `tree`: path of the tree to copy, or None to search for one.
    `say`: prints a message.
    `draw`: redraws a terminal line of `width` columns; None without a terminal.
    """
    if not into.is_absolute():
        into = into.absolute()
    text = None
    if job is not None:
        text = text_of(job)
        found = parsed(job, text, here=False)
    laid = lay_down(find_tree(tree, os.environ, say), into, say)
    if job is not None and text is not None:
        _lay_job(job, text, into)
        if things := found.spec.runtime.prerequisites:
            # Read the secrets only if the URI of some prerequisite uses one.
            asks = any("$secrets." in thing.uri for thing in things)
            secrets = parsed(job, text, here=True).secrets if asks else {}
            given = {secret_variable(name): value for name, value in secrets.items()}
            try:
                fetch_here(found.spec, into, {**os.environ, **given}, say, draw, width)
            except OSError as error:
                raise HoldfastError(f"no process could be made for the fetch: {error.strerror}") from error
    return laid


def _lay_job(job: Path, text: bytes, into: Path) -> None:
    """Copy the job file into `into`. Users who may read the job file may also read the copy."""
    try:
        mode = 0o600 | stat.S_IMODE(job.stat().st_mode) & 0o044
        into_fd = enter(into)
        try:
            to = Path(f"/proc/self/fd/{into_fd}/{JOB}")
            if not _is_there(to, text, mode):
                replace_file(to, text, mode)
        finally:
            os.close(into_fd)
    except OSError as error:
        raise BadUsage(
            f"the job file cannot be laid down as {into / JOB}: {error.strerror or error}", hint=f"ls -ld {into}"
        ) from error


def _is_there(to: Path, text: bytes, mode: int) -> bool:
    """Return whether the file `to` contains this text and no other user can change it."""
    try:
        found = to.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or not is_trusted(found.st_uid) or stat.S_IMODE(found.st_mode) != mode:
        return False
    return to.read_bytes() == text
