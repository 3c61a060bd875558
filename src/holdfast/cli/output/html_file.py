"""`holdfast show JOB --html FILE`: writes a page about one job to a file or to stdout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.record.job_views import JobDetail
    from holdfast.report.failure_place import FailurePlace

STDOUT = "-"


def refuse_early(file: str, *, as_json: bool, in_cluster: bool) -> None:
    """Raise BadUsage early if FILE (of `--html FILE`) cannot be written or the page cannot be made."""
    from holdfast.safe_files import not_a_file

    if as_json:
        raise BadUsage("--html and --json exclude each other: expected one of them")
    if in_cluster:
        raise BadUsage(
            "--html: the page is made from a journal in a state directory; of a cluster's job only the report is known",
            hint="holdfast show JOB --json --platform kubernetes",
        )
    if file == STDOUT:
        return
    hint = f"holdfast show --html {STDOUT} > FILE"
    if not file:
        raise BadUsage("--html: the name of the file is empty", hint=hint)
    try:
        kind = not_a_file(file)
    except (OSError, ValueError) as error:
        raise BadUsage(f"--html: {file!r} cannot be looked at: {_why(error)}", hint=hint) from None
    if kind:
        raise BadUsage(f"--html: {file!r} is {kind}, and a file was expected; it was left as it is", hint=hint)
    target = Path(file).resolve()
    if not target.parent.is_dir():
        raise BadUsage(f"--html: there is no directory {str(target.parent)!r}", hint=hint)
    if target.exists() and not os.access(file, os.W_OK):
        raise BadUsage(f"--html: {file!r} may not be written by this user; it was left as it is", hint=hint)


def write_page(home: Path, known: JobDetail, report_json: str, file: str) -> None:
    """Write the page of this job, completely or not at all. Raise BadUsage if FILE cannot be written."""
    import platform
    import time

    from holdfast.cli.output.printing import say
    from holdfast.file_modes import users_umask
    from holdfast.record.job_views import events
    from holdfast.record.local_time import local
    from holdfast.report.page import page
    from holdfast.safe_files import replace_file
    from holdfast.version import __version__

    versions = f"holdfast {__version__}, Python {platform.python_version()}, on {platform.platform()}"
    text = page(
        known,
        events(home, known.view.id),
        local,
        now=time.time(),
        report_json=report_json,
        written_by=versions,
        scene=_scene(home, known),
    )
    data = text.encode("utf-8", "replace")
    if file == STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        # If FILE is a symbolic link, replace its target and keep the link.
        replace_file(Path(file).resolve(), data, 0o666 & ~users_umask())
    except OSError as error:
        raise BadUsage(f"--html: {file!r} cannot be written: {_why(error)}") from None
    say(f"the page of job {known.view.id} is in {file} ({len(data)} bytes); it needs no server and no network")


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _scene(home: Path, known: JobDetail) -> FailurePlace | None:
    from holdfast.explain.text.secret_filter import without_secrets
    from holdfast.record.job_directory import logs_of
    from holdfast.report.failure_place import scene_of

    if known.report is None:
        return None
    return without_secrets(scene_of(known.report.report, logs_of(home, known.view.id)))
