"""A worker's last words where no row knows them: the report's reader may know what we do not."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain import lines as _lines
from holdfast.explain import words
from holdfast.explain.lines import Line
from holdfast.explain.stamps import Origin
from holdfast.lazy import Lazy
from holdfast.model.evidence import WorkerEvidence
from holdfast.model.exits import Evidence, EvidenceKind
from holdfast.model.reading import UncaughtException

_END_CHARS = 4096
_THROWN = Lazy(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_WHAT = Lazy(r"^\s*what\(\):\s+(?P<what>.+)")
_FRAME = Lazy(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<where>\S+)')


def last_line(worker: WorkerEvidence) -> Evidence | None:
    """The last line that it wrote, of stderr rather than of stdout; None where it wrote nothing."""
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
                text=words.one_line(parsed[-1].raw),
                source=f"{excerpt.source}:{number}",
                at=parsed[-1].moment,
            )
    return None


def thrown(lines: Sequence[Line]) -> UncaughtException | None:
    """The last C++ exception of these lines that nothing caught: `std::runtime_error: bad thing`."""
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
    """Python's own line of the thread that crashed, as faulthandler tells it: `main (train.py:12)`. Empty: not told."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].text.startswith("Current thread "):
            frame = _FRAME.match(lines[index + 1].text) if index + 1 < len(lines) else None
            return f"{frame['where']} ({frame['file']}:{frame['line']})" if frame else ""
    return ""
