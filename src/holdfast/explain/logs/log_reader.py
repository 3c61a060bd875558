"""Reads all logs of one worker, and finds every possible cause with its weight.

The place of a matching line decides whether it is a cause. An exception that ended the program has more weight than a
line near the end, which has more weight than a warning. A line after which the program continued has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.explain.logs import log_lines as _lines
from holdfast.explain.logs.clue_ranking import gave_up_on_a_peer, key, specific_first
from holdfast.explain.logs.job_flow import JobFlow
from holdfast.explain.logs.last_lines import crashed_at, last_line, last_raised, thrown
from holdfast.explain.logs.launcher_notes import ExitNote, notes
from holdfast.explain.logs.line_reader import StreamReader, Text, quote
from holdfast.explain.logs.line_roles import may_cause, role_of
from holdfast.explain.logs.log_lines import Line
from holdfast.explain.logs.orderly_ends import orderly_end
from holdfast.explain.logs.peer_errors import blamed_ranks, first_hand, last_exception, speaks_of_peers
from holdfast.explain.logs.rendezvous_lines import meeting_words
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.logs.time_stamps import Origin
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import Evidence
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndNote, OrderlyEnd, OwnMatch, QuotedLine, Weight, WorkerReading
from holdfast.untrusted import Malformed, json_leniently

#: A line that blames another rank only counts if it is among this many last lines.
_BLAMING_LINES = 200
_SIGKILL = 9


class Reading(msgspec.Struct):
    """A worker with the reading of its logs."""

    worker: WorkerEvidence
    said: WorkerReading

    @property
    def best(self) -> Clue | None:
        return self.said.clues[0] if self.said.clues else None

    @property
    def last_line(self) -> Evidence | None:
        """The last line that the worker wrote; None if the worker wrote none."""
        return self.said.last_line or last_line(self.worker)

    @property
    def first_hand(self) -> bool:
        """Whether the worker failed by itself, and not because it lost a peer."""
        return self.said.first_hand


def read_worker_logs(worker: WorkerEvidence, matcher: Matcher) -> WorkerReading:
    """Read the logs of one worker. The reading's clues are sorted, strongest first."""
    reader = _WorkerLogReader(worker, matcher)
    reader.read()
    return reader.finish()


def glance_worker_logs(worker: WorkerEvidence, *, last: bool = False) -> WorkerReading:
    """Return a short log reading, made without the catalogue: facts about the exit, and the last line (if `last`) or
    the last exception."""
    ended = worker.exit
    words = ended.last_words if ended is not None else ""
    return WorkerReading(
        last_line=last_line(worker) if last else None,
        last_raised=None if last else last_raised(worker),
        first_hand=ended is not None and first_hand(ended),
        own_exception=says_own_exception(words),
        of_peers=speaks_of_peers(words),
        meeting=meeting_words(worker),
        given=worker.log is not None,
    )


def says_own_exception(words: str) -> bool:
    """Return whether the last exception in a worker's last lines is about the worker itself, and not about a peer."""
    last = last_exception(words)
    return bool(last) and not speaks_of_peers(last)


class _WorkerLogReader:
    """Reads the logs of one worker, one after the other."""

    def __init__(self, worker: WorkerEvidence, matcher: Matcher) -> None:
        self._clues: list[Clue] = []
        self._weaker: list[Clue] = []
        self._notes: list[ExitNote] = []
        self._lines: list[Line] = []
        #: For each line, whether the program continued its work after it.
        self._gone_on: list[bool] = []
        self._worker = worker
        self._matcher = matcher
        self._rank = worker.rank if worker.exit is not None else None
        self._texts = 0
        self._orderly: OrderlyEnd | None = None
        self._verdict: tuple[str, QuotedLine] | None = None

    def read(self) -> None:
        worker, ended = self._worker, self._worker.exit
        for excerpt in (worker.log, worker.stderr, worker.stdout):
            if excerpt is not None and (excerpt.text or excerpt.cuttings):
                self._read_excerpt(excerpt)
        if ended is None:
            return
        if not self._lines and (ended.last_words or ended.error_file):
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
        if (told := _lines.our_verdict(excerpt.text)) is not None:
            number, text = excerpt.first_line + told[1], excerpt.text.splitlines()[told[1]]
            self._verdict = told[0] or Phrase.SUCCEEDED, QuotedLine(text=text, number=number, source=excerpt.source)
        parsed = _lines.parse(excerpt.text, excerpt.first_line, origin)
        self._lines.extend(parsed)
        self._gone_on.extend(self._read_lines(parsed, excerpt.source, past=False))
        self._texts += 1

    def _read_lines(self, parsed: list[Line], source: str, *, past: bool) -> list[bool]:
        """Store the clues in the lines `parsed` of the log `source`. Return for each line whether its writer continued
        its work after it. `past`: the program showed progress after all these lines.
        """
        text = Text(parsed, self._matcher, source, self._texts, self._rank, past=past)
        readers = [StreamReader(text, stream, own) for stream, own in _lines.streams(parsed)]
        working = _in_order(parsed, [(each.own, each.working) for each in readers])
        flow = JobFlow(parsed, working, _in_order(parsed, [(each.own, each.ordinary) for each in readers]))
        for reader in readers:
            reader.read(flow)
            self._clues += reader.clues
            self._weaker += reader.weaker
        if not past:
            self._orderly = orderly_end(parsed, working) or self._orderly
            self._notes += (note for note in notes(parsed) if _is_told(note, flow))
        return _in_order(parsed, [(each.own, each.gone_on) for each in readers])

    def finish(self) -> WorkerReading:
        """Return the reading of the worker's logs, with its clues sorted, strongest first."""
        clues, weaker = _picked(self._clues, self._weaker)
        clues = specific_first(clues, self._matcher.catalogue)
        spoken = [line for line in self._lines if line.text.strip()]
        last = "\n".join(line.text for line in self._lines[-_BLAMING_LINES:])
        tagged = {line.rank for line in self._lines if line.rank is not None}
        named = [clue.rank for clue in (*clues, *weaker)] + [note.rank for note in self._notes]
        return replace(
            glance_worker_logs(self._worker, last=True),
            clues=tuple(self._with_growth(clue) for clue in clues),
            weaker=tuple(weaker),
            notes=tuple(self._end_note(note) for note in self._notes),
            ranks=tuple(sorted({rank for rank in named if rank is not None})),
            blames=blamed_ranks(last),
            own_matches=tuple(self._own_matches()),
            lines=len(self._lines),
            end=quote(spoken[-1] if spoken else self._lines[-1]) if self._lines else None,
            spoke=bool(spoken),
            tagged=tagged.pop() if len(tagged) == 1 else None,
            grown=growth([line.text for line in self._lines[-LINES:]]),
            crashed_in=crashed_at(self._lines),
            uncaught=thrown(self._lines),
            orderly=self._orderly,
            verdict=self._verdict,
        )

    def _with_growth(self, clue: Clue) -> Clue:
        if clue.phrase != Phrase.KILLED_BY_SIGNAL or not self._without_end():
            return clue
        grown = growth_before(clue.line, self._lines)
        return replace(clue, grown=grown) if grown else clue

    def _end_note(self, note: ExitNote) -> EndNote:
        line = quote(note.line)
        grown = growth_before(line, self._lines) if note.signal == _SIGKILL and self._without_end() else ""
        return EndNote(
            line=line,
            rank=note.rank,
            exit_code=note.exit_code,
            signal=note.signal,
            host=note.host,
            grown=grown,
            by=note.by,
            root=note.root,
            error_file=note.error_file,
        )

    def _without_end(self) -> bool:
        """Return whether the exit is known only from the log. If so, the log also shows OOM kills; otherwise the
        operating system reports them.
        """
        return self._worker.exit is None or not self._worker.exit.pid

    def _own_matches(self) -> Iterator[OwnMatch]:
        """Yield, for each pattern of the user's OpenPAI rows, the first matching line after which the program did
        not continue."""
        patterns = {each.user_log for row in self._matcher.catalogue.further for each in row.patterns if each.user_log}
        for pattern in sorted(patterns):
            compiled = self._matcher.compiled(pattern.strip())
            for line, gone_on in zip(self._lines, self._gone_on, strict=True):
                if not gone_on and (
                    compiled.search(line.text) or (line.raw != line.text and compiled.search(line.raw))
                ):
                    yield OwnMatch(pattern=pattern, line=quote(line))
                    break


def _words_of_error_file(text: str) -> str:
    """Return the exception's text from TORCHELASTIC_ERROR_FILE, a JSON file that the worker wrote."""
    try:
        record = json_leniently(text)
        message = record["message"]
        if isinstance(message, dict):
            extra = message.get("extraInfo") or {}
            return str(extra.get("py_callstack") or message.get("message") or "")
        return str(message)
    except (Malformed, KeyError, TypeError, AttributeError):
        return text


def _is_told(note: ExitNote, flow: JobFlow) -> bool:
    """Return whether the line states the end of a process of the last run, and no plan or advice."""
    return may_cause(role_of(note.line.text), followed=False) and not flow.in_earlier_run(note.line)


def _in_order(parsed: Sequence[Line], told: Sequence[tuple[Sequence[Line], Sequence[bool]]]) -> list[bool]:
    """Return what is known of each writer's lines, in the order of the log."""
    known = {id(line): value for own, values in told for line, value in zip(own, values, strict=True)}
    return [known.get(id(line), False) for line in parsed]


_LAUNCHER_SAYS = Lazy(r"ChildFailedError|failed \(exitcode: |Root Cause \(first observed|exits with return code")


#: Matches a line about a retry that succeeded. A failure before such a line is not the cause of a later exception.
_TRIED_AGAIN = Lazy(r"(?i)\bretrying\b.{0,80}\b(?:ok|succeeded)$|\b(?:re-?connected|recovered)\b")


def _picked(clues: Sequence[Clue], weaker: Sequence[Clue]) -> tuple[list[Clue], list[Clue]]:
    """Divide the clues into those that count, strongest first, and the rest."""
    if any(clue.phrase == Phrase.STOPPED_BY_OPERATOR for clue in clues):
        clues = [
            replace(clue, weight=max(clue.weight, Weight.ABORT)) if clue.phrase == Phrase.KILLED_BY_SIGNAL else clue
            for clue in clues
        ]
    # Drop a launcher's line that only states that a worker failed. That is the fact to be explained.
    kept, out = _parted(
        clues, lambda clue: clue.weight is Weight.CONSEQUENCE and bool(_LAUNCHER_SAYS.search(clue.line.text))
    )
    if gave_up_on_a_peer(kept):
        # The worker aborted because it had lost a peer, so the abort is not the cause.
        kept, more = _parted(kept, lambda clue: clue.weight is Weight.ABORT and clue.phrase == Phrase.NATIVE_CRASH)
        out += more
    kept.sort(key=key)
    if not any(clue.weight < Weight.OWN for clue in kept):
        # A broken link comes first in the log, and the later exception is only the program's reaction.
        peers = [c for c in kept if c.weight is Weight.PEERS and not _TRIED_AGAIN.search(c.line.text)]
        kept, more = _parted(kept, lambda clue: clue.weight is Weight.OWN and _follows(clue, peers))
        out += more
    return kept, [*weaker, *out]


def _parted(clues: Sequence[Clue], goes: Callable[[Clue], bool]) -> tuple[list[Clue], list[Clue]]:
    """Return two lists: the clues to keep (`goes` is false) and the clues to remove (`goes` is true)."""
    return [clue for clue in clues if not goes(clue)], [clue for clue in clues if goes(clue)]


def _follows(clue: Clue, others: Sequence[Clue]) -> bool:
    return any(other.stream == clue.stream and other.place < clue.place for other in others)


#: Number of lines before a line about a SIGKILL in which to search for amounts of memory.
LINES = 40
_KILLED = Lazy(r"Killed|SIGKILL|137|-9\b|signal:? 9\b")
_AMOUNT = Lazy(r"(?<!\d)(?P<number>\d{1,15}(?:\.\d{1,9})?) ?(?P<unit>[KMGT])i?B\b")
_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def growth_before(line: QuotedLine, lines: Sequence[Line]) -> str:
    """Return how memory grew in the lines before a line about a SIGKILL; empty if it did not grow."""
    if not _KILLED.search(line.text):
        return ""
    before = [other.text for other in lines if other.number < line.number]
    return growth(before[-LINES:])


def kill_with_memory(clues: Sequence[Clue]) -> list[Clue]:
    """Treat each plain SIGKILL as an OOM kill, if the log lines before it show growing memory."""
    return [
        replace(clue, phrase=Phrase.HOST_OUT_OF_MEMORY_KILLED, wording="", fields={**clue.fields, "grown": clue.grown})
        if clue.phrase == Phrase.KILLED_BY_SIGNAL and clue.grown
        else clue
        for clue in clues
    ]


def growth(texts: Sequence[str]) -> str:
    """Return a text such as `16 MiB to 176 MiB`, if the last amounts of memory in these lines grow steadily and at
    least threefold; else empty."""
    found = [match for text in texts if (match := _AMOUNT.search(text))]
    tail = [(float(match["number"]) * _UNIT[match["unit"]], match[0]) for match in found[-8:]]
    if len(tail) < 3 or any(b[0] <= a[0] for a, b in itertools.pairwise(tail)):
        return ""
    return f"{tail[0][1]} to {tail[-1][1]}" if tail[-1][0] >= 3 * tail[0][0] else ""
