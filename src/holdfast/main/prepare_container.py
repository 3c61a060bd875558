"""`holdfast prepare`: one container, which has holdfast, writes all that a task's container needs when it starts.

It writes the runtime first, then the job file; `run` exists from the beginning. A container that starts before this has
ended starts too early, and finds no job.
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
from holdfast.safe_files import replace_file

EXCHANGE = Path("/usr/local/pai")
#: In the exchange directory: the job of the task's container.
JOB = "job.yaml"


def prepare(
    into: Path,
    job: Path | None,
    tree: Path | None,
    say: Callable[[str], None],
    draw: Callable[[str], None] | None = None,
    width: int = 80,
) -> InstalledTree:
    """Write the runtime into `into`, the job file beside it, and what the job has to fetch before its start.

    Raises HoldfastError; may be repeated. It checks the job file before it writes anything. `draw` redraws the one line
    of a terminal, of `width` columns; None: it is none.
    """
    if not into.is_absolute():
        into = into.absolute()
    text = None
    if job is not None:
        text = text_of(job)
        found = parsed(job, text, here=False)
    laid = lay_down(find_tree(tree, os.environ, say), into)
    if job is not None and text is not None:
        _lay_job(job, text, into / JOB)
        if things := found.spec.runtime.prerequisites:
            from holdfast.node.fetching.blocking_fetch import fetch_here  # few jobs have prerequisites
            from holdfast.runtime.name_expansion import secret_variable

            # Their values are looked up only where an address has a place for one.
            asks = any("$secrets." in thing.uri for thing in things)
            secrets = parsed(job, text, here=True).secrets if asks else {}
            given = {secret_variable(name): value for name, value in secrets.items()}
            try:
                fetch_here(found.spec, into, {**os.environ, **given}, say, draw, width)
            except OSError as error:
                raise HoldfastError(f"no process could be made for the fetch: {error.strerror}") from error
    return laid


def _lay_job(job: Path, text: bytes, to: Path) -> None:
    """Users that may read the job file may read its copy."""
    try:
        mode = 0o600 | stat.S_IMODE(job.stat().st_mode) & 0o044
        if to.is_file() and to.read_bytes() == text and stat.S_IMODE(to.stat().st_mode) == mode:
            return
        replace_file(to, text, mode)
    except OSError as error:
        raise BadUsage(
            f"the job file cannot be laid down as {to}: {error.strerror or error}", hint=f"ls -ld {to.parent}"
        ) from error
