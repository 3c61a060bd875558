"""Implements `holdfast.explain`, which explains from logs why a job failed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from holdfast.api.public_report import Report, of_exit
from holdfast.errors import BadUsage
from holdfast.node.explain_files import ended_by, explain_files

Log = str | Path | bytes


def explain(logs: Log | Sequence[Log], *, exit_code: int | None = None, signal: int | str | None = None) -> Report:
    """Explain why a job failed, from logs of any launcher.

    `logs`: path of a log, or several paths, one per rank. A text that contains a line end, or bytes, is the content of
        a log.
    `exit_code`, `signal`: how the job ended, if the log does not show it. The signal is a name or a number. Raises
    `BadUsage` for a file that cannot be read, and for an invalid status or signal. The function starts no process and
    writes no file.
    """
    code, number = ended_by(exit_code, None if signal is None else str(signal))
    many = [logs] if isinstance(logs, str | Path | bytes) else list(logs)
    if not many:
        raise BadUsage("no log was given: expected a path, or the text of a log", hint="holdfast.explain('job.log')")
    texts = [each for each in many if isinstance(each, bytes) or (isinstance(each, str) and "\n" in each)]
    if not texts:
        return of_exit(explain_files([str(each) for each in many], exit_code=code, signal=number))
    if len(many) > 1:
        raise BadUsage(
            f"{len(texts)} of {len(many)} logs are texts: expected one text, or paths only",
            hint="holdfast.explain(['rank0.log', 'rank1.log'])",
        )
    data = texts[0].encode("utf-8", "replace") if isinstance(texts[0], str) else texts[0]
    return of_exit(explain_files(["-"], exit_code=code, signal=number, stdin=io.BytesIO(data)))
