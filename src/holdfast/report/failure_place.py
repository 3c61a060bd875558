"""Finds the place of a failure: the log and its lines, and the frames of the user's code with their source."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import Evidence, EvidenceKind, ExitReport, SourceLines
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.safe_files import end_of_file
from holdfast.safe_text import harmless, one_line

_SOURCE = Lazy(r"(?P<role>[\w.-]{1,80})-(?P<rank>\d{1,9}) (?P<stream>stdout|stderr)(?::(?P<line>\d{1,12}))?")
_FRAME = Lazy(r'  File "(?P<path>[^"\n]{1,4096})", line (?P<line>\d{1,9}), in (?P<function>.{1,200})')
_AT = Lazy(r"  at (?P<path>.{1,4096}):(?P<line>\d{1,9}) in (?P<function>.{1,200})")
#: A frame in py-spy's format.
_STACK = Lazy(r"(?P<function>.{1,200}) \((?P<path>[^()\n]{1,4096}):(?P<line>\d{1,9})\)")
_DUMPED = Lazy(r'  File "(?P<path>[^"\n]{1,4096})", line (?P<line>\d{1,9}) in (?P<function>.{1,200})')
_CRASHED, _INNERMOST = "Current thread ", "(most recent call first):"
_BEGIN = "Traceback (most recent call last):"
_LINK = Lazy(r"^(?:because|while handling) ")
#: Parts of paths that occur only in the paths of installed code, which is not the user's code.
_OTHERS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3")
#: Beginnings of the paths of installed code, in stacks with shortened paths.
_LIBRARIES = ("torch/", "multiprocessing/", "concurrent/", "asyncio/", "threading.py", "selectors.py", "<")

#: Number of bytes at the end of a log that are searched.
TAIL_BYTES = 256 * 1024
#: Number of lines before the exception in which to search for the traceback.
MOST_LINES = 400
MOST_FRAMES = 3
#: The class of an exception that has no row in the catalogue. The exception says more than this class.
_ANY = Phrase.USER_EXCEPTION
#: Failure classes that say less than the exit status or signal.
_BARE = (Phrase.UNEXPLAINED, Phrase.KILLED_BY_SIGNAL, Phrase.NATIVE_CRASH)
_MOST_CAUSE = 80


class UserFrame(Noun, frozen=True, kw_only=True):
    """A frame of the user's code in a stack."""

    path: str
    line: int
    function: str
    #: The source line as the log shows it; empty if the log does not show it.
    source: str = ""


class FailurePlace(Noun, frozen=True, kw_only=True):
    """The place of a failure in the worker's log and in the code. Each part may be missing."""

    #: The first line of the exception, as the program printed it.
    said: str = ""
    #: The frames of the user's code, the innermost first; at most `MOST_FRAMES`.
    frames: tuple[UserFrame, ...] = ()
    #: The path of the log file. `first_line` and `last_line` are the lines of the traceback in this file.
    log: str = ""
    first_line: int | None = None
    last_line: int | None = None
    #: The rank in whose log the evidence is, if that rank is not the culprit. The log's path is in `log`.
    witness: int | None = None
    witness_log: str = ""


def cause_of(phrase: str, report: ExitReport | None) -> str:
    """Return the cause of a failure in a few words: the class and the exception's message.

    If the class is the one of any exception, return only the exception, with its type and message.
    """
    if report is None:
        return phrase
    said = one_line(scene_of(report, None).said)
    more = said.partition(": ")[2] or (report.original.how if phrase in _BARE else "")
    cause = said if phrase == _ANY and said else f"{phrase}: {more}" if more else phrase
    return cause if len(cause) <= _MOST_CAUSE else f"{cause[: _MOST_CAUSE - 1]}…"


def scene_of(report: ExitReport, logs: Path | None) -> FailurePlace:
    """Return the place of the report's failure. `logs`: the parent of the `attempt-<n>` directories; None: read no log.

    If a log cannot be read (because it is on another node or was removed), the place comes from the report's evidence.
    If the log does not show the source line, it comes from the lines that the report has.
    """
    place = _place_of(report, logs)
    kept = source_of(report, place)
    if kept is None or place.frames[0].source:
        return place
    inner, *callers = place.frames
    return replace(place, frames=(replace(inner, source=kept.failing.strip()), *callers))


def source_of(report: ExitReport, place: FailurePlace) -> SourceLines | None:
    """Return the source lines around this place, as they were when it failed; None: the report has none of this
    place.
    """
    kept, inner = report.source_lines, next(iter(place.frames), None)
    same = kept is not None and inner is not None and (kept.path, kept.line) == (inner.path, inner.line)
    return kept if same else None


def _place_of(report: ExitReport, logs: Path | None) -> FailurePlace:
    item = _deciding(report)
    if item is None:
        file, count = _written(report, logs)
        return FailurePlace(frames=_waiting(report), log=file, last_line=count)
    head, *rest = _bare_lines(item.text) or [""]
    # The deciding exception may be a cause of the one that left the program. Then it is in a later line.
    texts = [head, *rest]
    at = next((at for at, text in enumerate(texts) if report.exception and text.startswith(report.exception)), -1)
    cause = texts[at] if at >= 0 else ""
    said = head if cause else ""
    told = [_frame(found.groupdict()) for line in rest if (found := _AT.fullmatch(line))]
    frames = tuple(told[-1:]) or _waiting(report)
    source = _SOURCE.fullmatch(item.source)
    if source is None or logs is None:
        return FailurePlace(said=said, frames=frames)
    path = _log(logs, report.attempt, source["role"], source["rank"], source["stream"])
    if report.first is not None and int(source["rank"]) not in (report.first.rank, *(one.rank for one in report.also)):
        # The evidence is another rank's line about the culprit, so the frames in that rank's log do not show the
        # culprit's place.
        log, count = _written(report, logs)
        line = f":{source['line']}" if source["line"] else ""
        theirs = f"{path}{line}" if _is_log(path) else ""
        witness = int(source["rank"]) if theirs else None
        return FailurePlace(
            said=said, frames=_waiting(report), log=log, last_line=count, witness=witness, witness_log=theirs
        )
    last = int(source["line"]) if source["line"] else None
    written = _end_of(path)
    begin, end = _block(written, cause) if cause else (0, 0)
    frames_below = _frames(written[begin:end])
    own = [frame for frame in frames_below if _users(frame.path)] or _dumped(written)[::-1]
    final = end
    for text in texts[:at][::-1] if cause else ():
        above, below = _block(written, text)
        if not final <= above < below:
            break
        outer = _frames(written[above:below])
        own, frames_below, final = _callers(outer, frames_below) + own, outer, below
    return FailurePlace(
        said=said,
        frames=tuple(own[: -MOST_FRAMES - 1 : -1]) or frames,
        log=str(path) if _is_log(path) else "",
        first_line=max(1, last - max(0, end - begin - 1)) if last is not None else None,
        last_line=last + final - end if last is not None else None,
    )


def _log(logs: Path, attempt: int, role: str, rank: int | str, stream: str) -> Path:
    return logs / f"attempt-{attempt}" / f"{role}-{rank}" / f"{stream}.log"


def _is_log(path: Path) -> bool:
    """Whether the log exists, and neither it nor its directories are links. A worker could have put a link there."""
    return path.is_file() and not any(each.is_symlink() for each in (path, path.parent, path.parent.parent))


def _end_of(path: Path) -> list[str]:
    if not _is_log(path):
        return []
    try:
        return end_of_file(path, TAIL_BYTES).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def _written(report: ExitReport, logs: Path | None) -> tuple[str, int | None]:
    """Return the culprit's log and its number of lines, if no log line decided the report.

    Prefer stderr to stdout. The number is None if the log is too long to count its lines.
    """
    first = report.first
    if first is None or logs is None or "/" in first.role:
        return "", None
    for stream in ("stderr", "stdout"):
        path = _log(logs, report.attempt, first.role, first.rank, stream)
        try:
            size = path.stat().st_size
        except OSError:
            continue
        if size and _is_log(path):
            return str(path), len(_end_of(path)) if size <= TAIL_BYTES else None
    return "", None


def _waiting(report: ExitReport) -> tuple[UserFrame, ...]:
    """Return the place of a hang's culprit from its last stack dump: the user's frames, or else the innermost frame."""
    if report.first is None:
        return ()
    begin = f"rank {report.first.rank} "
    for item in report.evidence[::-1]:
        if item.kind is EvidenceKind.HANG and item.text.startswith(begin):
            found = [_frame(match.groupdict()) for line in item.text.splitlines() if (match := _STACK.fullmatch(line))]
            own = [frame for frame in found if _users(frame.path)]
            return tuple(own[:MOST_FRAMES] or found[:1])
    return ()


def _dumped(lines: list[str]) -> list[UserFrame]:
    """Return the user's frames in the last `faulthandler` dump, for the crashed thread, the innermost first."""
    begins = [at for at, line in enumerate(lines) if line.startswith(_CRASHED) and line.endswith(_INNERMOST)]
    frames: list[UserFrame] = []
    for line in lines[begins[-1] + 1 :][:MOST_LINES] if begins else ():
        if (found := _DUMPED.fullmatch(line)) is None:
            break
        frames.append(_frame(found.groupdict()))
    return [frame for frame in frames if _users(frame.path)]


def _users(path: str) -> bool:
    return not path.startswith(_LIBRARIES) and not any(part in path for part in _OTHERS)


def _deciding(report: ExitReport) -> Evidence | None:
    """Return the first evidence from a worker's log, preferably evidence with the exception."""
    read = [item for item in report.evidence if item.kind in (EvidenceKind.LOG, EvidenceKind.EXCEPTION)]
    own = [item for item in read if report.exception and item.text.startswith(report.exception)]
    return next(iter((*own, *read)), None)


def _bare_lines(text: str) -> list[str]:
    """Return the text lines of an evidence item, without the lines that link exceptions."""
    return [_LINK.sub("", line) for line in text.splitlines()]


def _callers(outer: list[UserFrame], inner: list[UserFrame]) -> list[UserFrame]:
    """Return the user's frames that called the function in which the inner exception was handled.

    The traceback of a handled exception begins there; the outer one has the calls before it.
    """
    first = inner[0] if inner else None
    same = (first.path, first.function) if first else None
    at = next((at for at, each in enumerate(outer) if (each.path, each.function) == same), 0)
    return [frame for frame in outer[:at] if _users(frame.path)]


def _block(lines: list[str], head: str) -> tuple[int, int]:
    """Return the first line of the last traceback that ends with the exception `head`, and the line after the
    traceback; (0, 0) if there is none.
    """
    plain = harmless(head).strip()
    for end in range(len(lines) - 1, -1, -1):
        if harmless(lines[end]).strip() != plain:
            continue
        for begin in range(end, max(-1, end - MOST_LINES), -1):
            if lines[begin].startswith(_BEGIN):
                return begin, end + 1
        return 0, 0
    return 0, 0


def _frames(block: list[str]) -> list[UserFrame]:
    frames: list[UserFrame] = []
    for at, line in enumerate(block):
        if found := _FRAME.fullmatch(line):
            below = block[at + 1] if at + 1 < len(block) else ""
            source = below.strip() if below.startswith("    ") else ""
            frames.append(_frame({**found.groupdict(), "source": source}))
    return frames


def _frame(found: dict[str, str]) -> UserFrame:
    return UserFrame(
        path=found["path"], line=int(found["line"]), function=found["function"], source=found.get("source", "")
    )
