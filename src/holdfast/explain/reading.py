"""One worker's words read whole: every possible cause in its logs, and how it stands there.

A pattern that matches is not yet a cause: it counts by where it stands. An exception that ended the program counts more
than a line near the end, that more than a warning; what the program went on after counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.catalogue.exits import ExitRow, Strength, Wording
from holdfast.explain import lines as _lines
from holdfast.explain.lazy import Lazy
from holdfast.explain.lines import Line
from holdfast.explain.matcher import Hit, Matcher
from holdfast.explain.notes import Note, notes
from holdfast.explain.peers import blamed_ranks, speaks_of_peers
from holdfast.explain.stamps import Origin
from holdfast.explain.tracebacks import Chain, Raised, chains
from holdfast.explain.weighing import (
    ABOUT_PEERS,
    BROADEST,
    Standing,
    from_launcher,
    is_wrapper,
    of_chain,
    original,
    standing_of_exception,
    standing_of_line,
    strongest,
)
from holdfast.model.evidence import LogExcerpt, WorkerEvidence
from holdfast.untrusted import Malformed, json_leniently

# ruff: noqa: E501 - an alternative stays on its line
_PROGRESS = Lazy(
    r"(?i)(?<![\w.])(?:global[_ ]?)?(?:step|iter(?:ation)?s?|epoch|batch|update|trained|eval(?:uated)?)\b\s*[:=#\[(]?\s*\d+"
    r"|['\"]?\b(?:train_|lm_)?loss['\"]?\s*[:=]?\s*\d+\.\d|it/s\b|s/it\b|tokens?/s(?:ec)?\b|samples?/s|throughput\s*[:=(]|elapsed time per iteration"
    r"|\" 200 OK\b|\b200 OK$|checkpoint saved|saved checkpoint|saving checkpoint (?:to|at)"
)
_TROUBLE = Lazy(
    r"(?i)error|fail|exception|abort|kill|shut|stop|exit|clos|clean|destroy|terminat|cancel|retry|traceback|signal|fatal|crash"
    r"|core dump|timed? ?out|dead|lost|warn|dump|backtrace|unhealthy|drain|\.(?:cc|cpp|cu|h):\d+ -> \d"
)


class Cause(msgspec.Struct):
    """One possible cause, with where and how it stands."""

    standing: Standing
    phrase: str
    row: ExitRow
    line: Line
    order: float
    """Its place in the text (or the moment of the death it belongs to): earlier is smaller."""
    stream: str
    source: str
    wording: Wording | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    raised: Raised | None = None
    rank: int | None = None
    context: list[Line] = msgspec.field(default_factory=list)
    note: Note | None = None
    doubtful: bool = False
    """Signs of progress without a time follow it: buffered output, or a program that lived on."""

    @property
    def weight(self) -> float:
        """The standing; what is doubtful yields to every death that is not."""
        return Standing.OWN + 0.5 if self.doubtful and self.standing <= Standing.OWN else self.standing

    @property
    def key(self) -> tuple[float, int, bool, float]:
        """Strongest first. Between workers a link or a meeting that failed comes before those who waited in vain, and
        any before the broadest; then a first-hand word before a hint."""
        if self.standing is not Standing.PEERS:
            return (self.weight, 0, False, self.order)
        hint = self.wording is not None and self.wording.strength is Strength.HINT
        if self.phrase in BROADEST:
            tier = 2 if hint else 1
        else:
            tier = 1 if self.phrase == "CollectiveTimeout" or (hint and self.phrase == "NetworkLost") else 0
        return (self.weight, tier, hint, self.order)


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
    reading = Reading(worker)
    own_rank = worker.rank if worker.exit is not None else None
    offset = 0.0
    for excerpt in (worker.log, worker.stderr, worker.stdout):
        if excerpt is None or not (excerpt.text or excerpt.cuttings):
            continue
        _read_excerpt(reading, excerpt, matcher, own_rank, offset)
        offset += 1_000_000.0
    if not reading.lines and worker.exit is not None and (worker.exit.last_words or worker.exit.error_file):
        name = f"{worker.role}-{worker.rank} {worker.exit.last_words_stream or 'last words'}"
        words = LogExcerpt(source=name, text=worker.exit.last_words)
        _read_excerpt(reading, words, matcher, own_rank, offset)
    if worker.exit is not None and worker.exit.error_file:
        _read_error_file(reading, worker.exit.error_file, matcher, own_rank, offset + 1_000_000.0)
    _pick(reading)
    return reading


def _read_excerpt(reading: Reading, excerpt: LogExcerpt, matcher: Matcher, rank: int | None, offset: float) -> None:
    origin = Origin(excerpt.source, excerpt.written_at, excerpt.utc_offset_s)
    for index, cutting in enumerate(excerpt.cuttings):
        number = excerpt.cutting_lines[index] if index < len(excerpt.cutting_lines) else 1
        old = _lines.parse(cutting, number, origin)
        _read_lines(reading, old, excerpt.source, matcher, rank, offset, past=index < excerpt.settled)
        if index >= excerpt.settled:
            reading.notes.extend(notes(old))
    parsed = _lines.parse(excerpt.text, excerpt.first_line, origin)
    reading.lines.extend(parsed)
    reading.notes.extend(notes(parsed))
    reading.gone_on.extend(_read_lines(reading, parsed, excerpt.source, matcher, rank, offset, past=False))


def _read_error_file(reading: Reading, text: str, matcher: Matcher, rank: int | None, offset: float) -> None:
    """TORCHELASTIC_ERROR_FILE: JSON with the exception as the worker itself recorded it."""
    try:
        record = json_leniently(text)
        message = record["message"]
        if isinstance(message, dict):
            extra = message.get("extraInfo") or {}
            words = str(extra.get("py_callstack") or message.get("message") or "")
        else:
            words = str(message)
    except (Malformed, KeyError, TypeError, AttributeError):
        words = text
    _read_lines(
        reading, _lines.parse(words, origin=Origin("error file")), "error file", matcher, rank, offset, past=False
    )


def _read_lines(
    reading: Reading, parsed: list[Line], source: str, matcher: Matcher, rank: int | None, offset: float, *, past: bool
) -> list[bool]:
    """Adds the causes; answers for each line whether its writer went on after it."""
    everything = _Everything([line.text for line in parsed], matcher)
    went: dict[int, bool] = {}
    places = {id(line): offset + index for index, line in enumerate(parsed)}
    for stream, own in _lines.streams(parsed):
        _read_stream(reading, own, stream, source, matcher, rank, places, everything, past, went)
    return [went.get(id(line), False) for line in parsed]


def _read_stream(
    reading: Reading,
    own: list[Line],
    stream: str,
    source: str,
    matcher: Matcher,
    rank: int | None,
    places: dict[int, float],
    everything: _Everything,
    past: bool,
    went: dict[int, bool],
) -> None:
    found = chains(own)
    blocks: dict[int, _Everything] = {}
    for chain in found:
        span = range(chain.first, chain.last + 1)
        blocks.update(dict.fromkeys(span, _Everything([own[index].raw for index in span], matcher)))
    hits = [_hits(line, matcher, everything, blocks.get(index)) for index, line in enumerate(own)]
    number = {id(line): index for index, line in enumerate(own)}
    after = _going_on(own, hits)
    went.update((id(line), gone) for line, gone in zip(own, after, strict=True))
    covered: dict[int, tuple[Chain, Raised]] = {}
    naming: set[int] = set()
    for chain in found:
        for raised in chain.raised:
            for index in range(raised.first, raised.last + 1):
                covered[index] = (chain, raised)
            naming.add(id(raised.line))
            if raised.message.startswith("assert ") and raised.message not in raised.line.text:
                told = matcher.line(f"{raised.type}: {raised.message}")
                index = number[id(raised.line)]
                hits[index] += [hit for hit in told if _allowed(hit.wording, everything, blocks.get(index))]

    def cause(
        standing: Standing, hit: Hit | None, index: int, raised: Raised | None, row: ExitRow | None = None
    ) -> Cause:
        line = own[index]
        chosen = hit.row if hit else row
        assert chosen is not None  # one of the two is always given
        context = own[max(0, index - 10) : index + 11]
        if raised is not None:
            context = [*raised.lines, *context]
        return Cause(
            standing, chosen.phrase, chosen, line, places[id(line)], stream, source,
            hit.wording if hit else None, dict(hit.fields) if hit else {}, raised,
            line.rank if line.rank is not None else rank, context,
        )  # fmt: skip

    for chain in found:
        if chain.ignored:
            continue
        gone_on = _chain_gone_on(own, chain, after, past)
        doubtful = after[chain.last]
        picked = of_chain(chain, number, hits)
        if picked is not None:
            raised, index, hit = picked
            standing = standing_of_exception(hit, own[index])
            found_cause = cause(standing, hit, index, raised)
            found_cause.doubtful = doubtful
            (reading.weaker if gone_on else reading.causes).append(found_cause)
        elif not is_wrapper(chain.outer) and not from_launcher(chain):
            raised = original(chain)
            index = number[id(raised.line)]
            row = matcher.catalogue.row("UserException")
            standing = Standing.PEERS if speaks_of_peers(f"{raised.type}: {raised.message}") else Standing.OWN
            if standing is Standing.PEERS:
                row = matcher.catalogue.row("PeerLost")
                standing = Standing.CONSEQUENCE
            own_words = next(
                (h for h in hits[index] if h.row is row and h.wording.strength is Strength.FIRST_HAND), None
            )
            found_cause = cause(standing, own_words, index, raised, row)
            found_cause.doubtful = doubtful
            (reading.weaker if gone_on else reading.causes).append(found_cause)
    for index, line in enumerate(own):
        if not hits[index]:
            continue
        if (place := covered.get(index)) is not None:
            _chain, raised = place
            # Inside a traceback only the exception's own words count, and those are read above; frames are code.
            if _chain.ignored or line in raised.lines or index < raised.last:
                continue
        best = strongest(hits[index], exception=False)
        if best is None:
            continue
        standing_or_none = standing_of_line(best, line, after[index], past)
        if standing_or_none is None:
            reading.weaker.append(cause(Standing.WARNED, best, index, None))
        else:
            reading.causes.append(cause(standing_or_none, best, index, None))


def _hits(line: Line, matcher: Matcher, everything: _Everything, block: _Everything | None) -> list[Hit]:
    found = matcher.line(line.text)
    for other in (line.logged, line.raw):
        if other and other != line.text:
            known = {hit.wording.id for hit in found}
            found += [hit for hit in matcher.line(other) if hit.wording.id not in known]
    return [hit for hit in found if _allowed(hit.wording, everything, block)]


class _Everything:
    """All lines of one worker's text, asked for what must or must not stand beside a hit; each question once."""

    def __init__(self, texts: Sequence[str], matcher: Matcher) -> None:
        self._texts = texts
        self._matcher = matcher
        self._told: dict[str, bool] = {}

    def has(self, pattern: str) -> bool:
        if (told := self._told.get(pattern)) is None:
            told = self._told[pattern] = self._matcher.has(pattern, self._texts)
        return told


def _allowed(wording: Wording, everything: _Everything, block: _Everything | None) -> bool:
    """`block`: the chain of exceptions that the line is part of. What speaks against a wording must stand there."""
    if wording.beside and not everything.has(wording.beside):
        return False
    if wording.strength is Strength.ADVICE and not wording.beside:
        return False
    return not (wording.unless and (block or everything).has(wording.unless))


def _is_progress(line: Line, hits: list[Hit]) -> bool:
    text = line.text
    return not hits and bool(_PROGRESS.search(text) or _lines.is_bar(text)) and not _TROUBLE.search(text)


def _going_on(own: Sequence[Line], hits: Sequence[list[Hit]]) -> list[bool]:
    """For each line: did its writer go on with its work after it?"""
    went = [False] * len(own)
    progress = ordinary = 0
    for index in range(len(own) - 1, -1, -1):
        went[index] = progress >= 1 or ordinary >= 3
        line = own[index]
        if _is_progress(line, hits[index]):
            progress += 1
        elif line.level in ("D", "I") and not hits[index] and not _TROUBLE.search(line.text):
            ordinary += 1
    return went


def _chain_gone_on(own: Sequence[Line], chain: Chain, after: Sequence[bool], past: bool) -> bool:
    """Did the program live on after this traceback?

    Lines without times that follow it prove little: a program's buffered standard output is written at its exit, after
    the traceback. Lines with a later time do.
    """
    if past:
        return True
    if not after[chain.last]:
        return False
    before = max((line.at for line in own[: chain.first + 1] if line.at is not None), default=None)
    later = [line for line in own[chain.last + 1 :] if line.at is not None and not _TROUBLE.search(line.text)]
    if not later:
        return False
    return before is None or any(line.at is not None and line.at > before for line in later)


_LAUNCHER_SAYS = Lazy(r"ChildFailedError|failed \(exitcode: |Root Cause \(first observed|exits with return code")


def gave_up_on_a_peer(causes: Sequence[Cause]) -> bool:
    """Does nothing but a peer's going away say why it ended?"""
    return (
        bool(causes)
        and all(cause.standing >= Standing.ABORT for cause in causes)
        and any(cause.standing is Standing.CONSEQUENCE and cause.phrase in ABOUT_PEERS for cause in causes)
    )


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
        earlier = [other for other in peers if other.stream == cause.stream and other.order < cause.order]
        if earlier and not any(other.standing < Standing.OWN for other in reading.causes):
            # It died of the link first; the exception is what that looked like from the program.
            reading.causes.remove(cause)
            reading.weaker.append(cause)
    tail = "\n".join(line.text for line in reading.lines[-200:])
    reading.blames = blamed_ranks(tail)
    best = reading.best
    reading.peers_only = best is not None and best.standing >= Standing.PEERS
