"""Finds what a worker wrote last (a line, an exception, a crash). Reports use it if no row of the catalogue matches."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.logs import log_lines as _lines
from holdfast.explain.logs.log_lines import Line
from holdfast.explain.logs.peer_errors import last_exception
from holdfast.explain.logs.time_stamps import Origin
from holdfast.explain.logs.tracebacks import is_users
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import WorkerEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind
from holdfast.model.worker_reading import RaisedException, UncaughtException

_END_CHARS = 4096
_THROWN = Lazy(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_WHAT = Lazy(r"^\s*what\(\):\s+(?P<what>.+)")
_TRACEBACK_CHARS = 16384
_TAGS = Lazy(r"^(?:\[[^\]\n]{1,24}\]:\s?)+")
_PY_FRAME = Lazy(r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9})(?:, in (?P<where>[^\n]+))?')
_FRAME = Lazy(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<where>\S+)')


def last_line(worker: WorkerEvidence) -> Evidence | None:
    """Return the worker's last line, preferably from stderr; None if the worker wrote no line."""
    for excerpt in (worker.log, worker.stderr, worker.stdout):
        text = excerpt.text.rstrip() if excerpt is not None else ""
        if excerpt is None or not text:
            continue
        number = excerpt.first_line + text.count("\n")
        origin = Origin(excerpt.source, excerpt.written_at, excerpt.utc_offset_s)
        parsed = [line for line in _lines.parse(text[-_END_CHARS:], origin=origin) if line.text.strip()]
        if parsed:
            return Evidence(
                kind=EvidenceKind.LOG,
                text=sentences.one_line(parsed[-1].raw),
                source=f"{excerpt.source}:{number}",
                at=parsed[-1].moment,
            )
    return None


def last_raised(worker: WorkerEvidence) -> RaisedException | None:
    """Return the last exception in the worker's last lines, with the innermost frame in the user's own code."""
    excerpts = [each.text for each in (worker.log, worker.stderr, worker.stdout) if each is not None]
    for text in (*excerpts, worker.exit.last_words if worker.exit is not None else ""):
        tail = text[-_TRACEBACK_CHARS:]
        told = last_exception(tail).partition("\n")[0]
        if not told:
            continue
        name, _, message = _TAGS.compiled.sub("", told).partition(":")
        frames = [frame for frame in _PY_FRAME.compiled.finditer(tail) if is_users(frame["file"])]
        frame = (frames[-1]["file"], int(frames[-1]["line"]), frames[-1]["where"] or "") if frames else None
        return RaisedException(type=name.strip(), message=message.strip(), frame=frame)
    return None


def thrown(lines: Sequence[Line]) -> UncaughtException | None:
    """Return the last uncaught C++ exception in these lines, such as `std::runtime_error: bad thing`."""
    for index in range(len(lines) - 1, -1, -1):
        if found := _THROWN.search(lines[index].text):
            said = next(
                ((line, match) for line in lines[index + 1 : index + 3] if (match := _WHAT.match(line.text))), None
            )
            own = [lines[index].text, *([said[0].text] if said else [])]
            source = f"{lines[index].source}:{lines[index].number}"
            what = said[1]["what"] if said else ""
            return UncaughtException(type=found["type"], what=what, text="\n".join(own), source=source)
    return None


def crashed_at(lines: Sequence[Line]) -> str:
    """Return the Python frame in which the thread crashed, from faulthandler's output: `main (train.py:12)`.

    Empty if there is none.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].text.startswith("Current thread "):
            frame = _FRAME.match(lines[index + 1].text) if index + 1 < len(lines) else None
            return f"{frame['where']} ({frame['file']}:{frame['line']})" if frame else ""
    return ""
