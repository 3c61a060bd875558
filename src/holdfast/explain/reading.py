"""One worker's words read whole: every possible cause in its logs, and how it stands there.

A pattern that matches is not yet a cause: it counts by where it stands. An exception that ended the program counts more
than a line near the end, that more than a warning; what the program went on after counts nothing.
"""

from __future__ import annotations

import msgspec

from holdfast.explain import lines as _lines
from holdfast.explain.cause import Cause, gave_up_on_a_peer
from holdfast.explain.lines import Line
from holdfast.explain.matcher import Matcher
from holdfast.explain.notes import Note, notes
from holdfast.explain.peers import blamed_ranks
from holdfast.explain.stamps import Origin
from holdfast.explain.stream import StreamReader, Text
from holdfast.explain.weighing import Standing
from holdfast.lazy import Lazy
from holdfast.model.evidence import LogExcerpt, WorkerEvidence
from holdfast.untrusted import Malformed, json_leniently

_BLAMING_LINES = 200
"""Of so many last lines the accusations count."""


class Reading(msgspec.Struct):
    """What one worker's logs hold."""

    worker: WorkerEvidence
    causes: list[Cause] = msgspec.field(default_factory=list)
    """The best of each stream, strongest first."""
    weaker: list[Cause] = msgspec.field(default_factory=list)
    """Everything else that matched and was not believed."""
    notes: list[Note] = msgspec.field(default_factory=list)
    lines: list[Line] = msgspec.field(default_factory=list)
    gone_on: list[bool] = msgspec.field(default_factory=list)
    """For each line: did the program go on with its work after it?"""
    blames: tuple[int, ...] = ()
    """Ranks that its last words accuse."""
    peers_only: bool = False

    @property
    def best(self) -> Cause | None:
        return self.causes[0] if self.causes else None


def read(worker: WorkerEvidence, matcher: Matcher) -> Reading:
    """All possible causes in the logs of one worker, the strongest first."""
    reader = _Reader(worker, matcher)
    reader.read()
    _pick(reader.reading)
    return reader.reading


class _Reader:
    """Reads the texts of one worker, one after the other."""

    def __init__(self, worker: WorkerEvidence, matcher: Matcher) -> None:
        self.reading = Reading(worker)
        self._worker = worker
        self._matcher = matcher
        self._rank = worker.rank if worker.exit is not None else None
        self._texts = 0

    def read(self) -> None:
        worker, ended = self._worker, self._worker.exit
        for excerpt in (worker.log, worker.stderr, worker.stdout):
            if excerpt is not None and (excerpt.text or excerpt.cuttings):
                self._read_excerpt(excerpt)
        if ended is None:
            return
        if not self.reading.lines and (ended.last_words or ended.error_file):
            name = f"{worker.role}-{worker.rank} {ended.last_words_stream or 'last words'}"
            self._read_excerpt(LogExcerpt(source=name, text=ended.last_words))
        if ended.error_file:
            words = _lines.parse(_words_of_error_file(ended.error_file), origin=Origin("error file"))
            self._texts += 1
            self._read_lines(words, "error file", past=False)

    def _read_excerpt(self, excerpt: LogExcerpt) -> None:
        origin = Origin(excerpt.source, excerpt.written_at, excerpt.utc_offset_s)
        for index, cutting in enumerate(excerpt.cuttings):
            number = excerpt.cutting_lines[index] if index < len(excerpt.cutting_lines) else 1
            old = _lines.parse(cutting, number, origin)
            self._read_lines(old, excerpt.source, past=index < excerpt.settled)
            if index >= excerpt.settled:
                self.reading.notes.extend(notes(old))
        parsed = _lines.parse(excerpt.text, excerpt.first_line, origin)
        self.reading.lines.extend(parsed)
        self.reading.notes.extend(notes(parsed))
        self.reading.gone_on.extend(self._read_lines(parsed, excerpt.source, past=False))
        self._texts += 1

    def _read_lines(self, parsed: list[Line], source: str, *, past: bool) -> list[bool]:
        """Adds the causes; answers for each line whether its writer went on after it."""
        text = Text(parsed, self._matcher, source, self._texts, self._rank, past=past)
        went: dict[int, bool] = {}
        for stream, own in _lines.streams(parsed):
            reader = StreamReader(text, stream, own)
            reader.read()
            self.reading.causes += reader.causes
            self.reading.weaker += reader.weaker
            went.update((id(line), gone) for line, gone in zip(own, reader.gone_on, strict=True))
        return [went.get(id(line), False) for line in parsed]


def _words_of_error_file(text: str) -> str:
    """TORCHELASTIC_ERROR_FILE: JSON with the exception as the worker itself recorded it."""
    try:
        record = json_leniently(text)
        message = record["message"]
        if isinstance(message, dict):
            extra = message.get("extraInfo") or {}
            return str(extra.get("py_callstack") or message.get("message") or "")
        return str(message)
    except (Malformed, KeyError, TypeError, AttributeError):
        return text


_LAUNCHER_SAYS = Lazy(r"ChildFailedError|failed \(exitcode: |Root Cause \(first observed|exits with return code")


def _pick(reading: Reading) -> None:
    """The strongest first; within one stream a worker's own exception comes before what it said later of others."""
    if any(cause.phrase == "StoppedByOperator" for cause in reading.causes):
        for cause in reading.causes:
            if cause.phrase == "KilledBySignal":
                cause.standing = max(cause.standing, Standing.ABORT)
    for cause in [*reading.causes]:
        # That a launcher's worker failed is no explanation at all: it is what is to be explained.
        if cause.standing is Standing.CONSEQUENCE and _LAUNCHER_SAYS.search(cause.line.text):
            reading.causes.remove(cause)
            reading.weaker.append(cause)
    if gave_up_on_a_peer(reading.causes):
        # It aborted itself because somebody else was gone: the abort is how it ended, not why.
        for cause in [*reading.causes]:
            if cause.standing is Standing.ABORT and cause.phrase == "NativeCrash":
                reading.causes.remove(cause)
                reading.weaker.append(cause)
    reading.causes.sort(key=lambda cause: cause.key)
    own = [cause for cause in reading.causes if cause.standing is Standing.OWN]
    peers = [cause for cause in reading.causes if cause.standing is Standing.PEERS]
    for cause in own:
        earlier = [other for other in peers if other.stream == cause.stream and other.place < cause.place]
        if earlier and not any(other.standing < Standing.OWN for other in reading.causes):
            # It died of the link first; the exception is what that looked like from the program.
            reading.causes.remove(cause)
            reading.weaker.append(cause)
    tail = "\n".join(line.text for line in reading.lines[-_BLAMING_LINES:])
    reading.blames = blamed_ranks(tail)
    best = reading.best
    reading.peers_only = best is not None and best.standing >= Standing.PEERS
