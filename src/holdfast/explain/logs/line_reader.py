"""Reads the lines of one writer (a process, as far as the log shows), and finds clues to the cause, with their weights.

The reader works in four steps: match each line with the catalogue; parse the exceptions; find the lines after which the
writer continued its work; and decide which clues count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import ExitRow, Strength
from holdfast.explain.logs.clue_ranking import (
    FATAL,
    from_launcher,
    is_wrapper,
    of_chain,
    original,
    strongest,
    weight_of_exception,
    weight_of_line,
)
from holdfast.explain.logs.job_flow import JobFlow
from holdfast.explain.logs.line_roles import may_cause, role_of
from holdfast.explain.logs.log_lines import Line
from holdfast.explain.logs.peer_errors import speaks_of_peers
from holdfast.explain.logs.raw_log_lines import is_bar
from holdfast.explain.logs.row_matcher import Hit, Matcher
from holdfast.explain.logs.tracebacks import Chain, Raised, chains
from holdfast.lazy_pattern import Lazy
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, LinePlace, QuotedLine, RaisedException, Weight

# ruff: noqa: E501 - one alternative of a pattern per line, even if long
_PROGRESS = Lazy(
    r"(?i)(?<![\w.])(?:global[_ ]?)?(?:step|iter(?:ation)?s?|epoch|batch|update|trained|eval(?:uated)?)\b\s*[:=#\[(]?\s*\d+"
    r"|['\"]?\b(?:train_|lm_)?loss['\"]?\s*[:=]?\s*\d+\.\d|it/s\b|s/it\b|tokens?/s(?:ec)?\b|samples?/s|throughput\s*[:=(]|elapsed time per iteration"
    r"|\" 200 OK\b|\b200 OK$|checkpoint saved|saved checkpoint|saving checkpoint (?:to|at)"
)
_TROUBLE = Lazy(
    r"(?i)error|fail|exception|abort|kill|shut|stop|exit|clos|clean|destroy|terminat|cancel|retry|traceback|signal|fatal|crash"
    r"|core dump|timed? ?out|dead|lost|warn|dump|backtrace|unhealthy|drain|\.(?:cc|cpp|cu|h):\d+ -> \d"
)


#: Number of lines before and after a catalogue match in which the patterns of the row's `fields` are searched.
_CONTEXT_LINES = 10
#: Maximum number of lines to keep of an exception's message.
_MESSAGE_LINES = 12
#: Limit on the linked exceptions above and below the one that explains the end.
_MOST_LINKS = 5
#: This many progress lines after a line prove that the writer continued its work.
_WENT_ON = 1
#: This many ordinary log lines after a line prove that the writer continued its work.
_WENT_ON_ORDINARY = 3
#: After a line that is normally fatal, this many times as many lines must follow to prove that the writer continued:
#: a progress bar may be drawn once more, and other ranks go on until they need the dead rank.
_WENT_FAR = 10


#: Exceptions that only report that other exceptions were raised.
_NO_CAUSE = ("ExceptionGroup", "BaseExceptionGroup", "ChildFailedError")


class Text:
    """One log text of a worker, as lines. It caches which of the catalogue's conditions on nearby lines (`beside`)
    hold.
    """

    def __init__(
        self, lines: Sequence[Line], matcher: Matcher, source: str, number: int, rank: int | None, *, past: bool
    ) -> None:
        """Prepare the text for reading.

        source: the name of the file.
        number: the index of the text among the worker's texts.
        rank: the rank for lines that name no rank.
        past: whether the program showed progress after the whole text.
        """
        self.lines = lines
        self.matcher = matcher
        self.source = source
        self.rank = rank
        self.past = past
        self.places = {id(line): LinePlace(text=number, line=index) for index, line in enumerate(lines)}
        self.beside = NeighbourLines([line.text for line in lines], matcher)


class NeighbourLines:
    """The lines around a catalogue match, in which the row's conditions `beside`, `within` and `unless` are searched.

    Results are cached.
    """

    def __init__(self, texts: Sequence[str], matcher: Matcher) -> None:
        self._texts = texts
        self._matcher = matcher
        self._told: dict[str, bool] = {}

    def has(self, pattern: str) -> bool:
        if (told := self._told.get(pattern)) is None:
            told = self._told[pattern] = self._matcher.has(pattern, self._texts)
        return told


class StreamReader:
    """Reads the lines of one writer within a text.

    `clues`: clues that may be the cause. `weaker`: clues after which the program continued.
    """

    def __init__(self, text: Text, stream: str, own: list[Line]) -> None:
        self.clues: list[Clue] = []
        self.weaker: list[Clue] = []
        self._text = text
        self._matcher = text.matcher
        self._stream = stream
        self.own = own
        self._number = {id(line): index for index, line in enumerate(own)}
        self._chains = chains(own)
        self._blocks = self._blocks_of_chains()
        self._hits = [self._hits_in(line, index) for index, line in enumerate(own)]
        #: For each line: whether it shows the program at work, and whether it is another plain line of a logger.
        self.working = [_is_progress(line, hits) for line, hits in zip(own, self._hits, strict=True)]
        self.ordinary = [
            not works and line.level in ("D", "I") and not hits and not _TROUBLE.search(line.text)
            for line, hits, works in zip(own, self._hits, self.working, strict=True)
        ]
        #: For each line: whether the writer continued its work after it.
        self.gone_on = _going_on(self.working, self.ordinary)
        self._gone_far = _going_on(self.working, self.ordinary, _WENT_FAR)
        self._times = _Times(own)
        #: Index of a line → the chain of exceptions and the exception to which the line belongs.
        self._covered: dict[int, tuple[Chain, Raised]] = {}

    def read(self, flow: JobFlow) -> None:
        self._flow = flow
        for chain in self._chains:
            for raised in chain.raised:
                self._cover(chain, raised)
        for chain in self._chains:
            if not chain.ignored:
                self._read_chain(chain)
        for index in range(len(self.own)):
            self._read_line(index)

    def _blocks_of_chains(self) -> dict[int, NeighbourLines]:
        """Map the index of each line in a chain of exceptions to all lines of that chain."""
        blocks: dict[int, NeighbourLines] = {}
        for chain in self._chains:
            span = range(chain.first, chain.last + 1)
            blocks.update(dict.fromkeys(span, NeighbourLines([self.own[index].raw for index in span], self._matcher)))
        return blocks

    def _hits_in(self, line: Line, index: int) -> list[Hit]:
        found = self._matcher.line(line.text)
        for other in (line.logged, line.raw):
            if other and other != line.text:
                known = {hit.wording.id for hit in found}
                found += [hit for hit in self._matcher.line(other) if hit.wording.id not in known]
        return list(self._allowed(found, index))

    def _allowed(self, found: Sequence[Hit], index: int) -> Iterator[Hit]:
        """Yield the catalogue matches whose conditions hold.

        If a chain of exceptions contains the line, `within` and `unless` are searched in that chain.
        """
        everywhere = self._text.beside
        block = self._blocks.get(index, everywhere)
        for hit in found:
            wording = hit.wording
            if wording.beside and not everywhere.has(wording.beside):
                continue
            if wording.strength is Strength.ADVICE and not wording.beside:
                continue
            if wording.within and not block.has(wording.within):
                continue
            if not (wording.unless and block.has(wording.unless)):
                yield hit

    def _cover(self, chain: Chain, raised: Raised) -> None:
        for index in range(raised.first, raised.last + 1):
            self._covered[index] = (chain, raised)
        # Three kinds of exceptions are matched by another text. An AssertionError without a message: by its source
        # line. An exception without a final line: by the `raise` line. An exception that a terminal wrapped: by its
        # joined lines.
        source = raised.message.startswith("assert ") and raised.message not in raised.line.text
        whole = raised.guessed or source or raised.line.text[:1].isspace()
        text = f"{raised.type}: {raised.message}" if whole else raised.unwrapped
        if text:
            index = self._number[id(raised.line)]
            known = {hit.wording.id for hit in self._hits[index]}
            told = [hit for hit in self._matcher.line(text) if hit.wording.id not in known]
            self._hits[index] += self._allowed(told, index)

    def _read_chain(self, chain: Chain) -> None:
        picked = of_chain(chain, self._number, self._hits)
        if picked is not None:
            raised, index, hit = picked
            clue = self._clue(weight_of_exception(hit, self.own[index]), hit.row, index, hit, raised)
        elif is_wrapper(chain.outer) or from_launcher(chain):
            return
        else:
            clue = self._of_no_row(original(chain))
        clue = replace(clue, doubtful=self.gone_on[chain.last])
        lived_on = self._text.past or (self.gone_on[chain.last] and self._times.gone_on(chain))
        lived_on = lived_on or self._flow.in_earlier_run(chain.outer.line)
        (self.weaker if lived_on else self.clues).append(clue)

    def _of_no_row(self, raised: Raised) -> Clue:
        """Make a clue for an exception for which the catalogue has no row."""
        index = self._number[id(raised.line)]
        about_peers = speaks_of_peers(f"{raised.type}: {raised.message}")
        row = self._matcher.catalogue.row(Phrase.PEER_LOST if about_peers else Phrase.USER_EXCEPTION)
        weight = Weight.CONSEQUENCE if about_peers else Weight.OWN
        first_hand = (hit for hit in self._hits[index] if hit.wording.strength is Strength.FIRST_HAND)
        own_words = next((hit for hit in first_hand if hit.row is row), None)
        return self._clue(weight, row, index, own_words, raised)

    def _read_line(self, index: int) -> None:
        line, hits = self.own[index], self._hits[index]
        if not hits:
            return
        if (covered := self._covered.get(index)) is not None:
            chain, raised = covered
            # In a traceback only the exception's message counts, which `_read_chain` reads. The frames are code.
            if chain.ignored or line in raised.lines or index < raised.last:
                return
        best = strongest(hits, exception=False)
        if best is None:
            return
        went = (
            self._gone_far
            if best.row.phrase in FATAL and best.wording.strength is Strength.FIRST_HAND
            else self.gone_on
        )
        fatal = went is self._gone_far
        weight = weight_of_line(best, line, went[index], self._text.past)
        if weight not in (None, Weight.EVENT) and not fatal and self._survived(best, line):
            weight = None
        if weight is None:
            self.weaker.append(self._clue(Weight.WARNED, best.row, index, best))
        else:
            self.clues.append(self._clue(weight, best.row, index, best))

    def _survived(self, hit: Hit, line: Line) -> bool:
        """Return whether the line is no cause, because of its role in the log or because the job went on after it."""
        flow = self._flow
        role = role_of(hit.text, hit.start, line.level)
        if flow.in_earlier_run(line) or flow.is_standing(line) or not may_cause(role, followed=flow.followed(line)):
            return True
        # Ranks wait for each other, so some go on for a while after one has failed. Other processes do not.
        enough = _WENT_ON * _WENT_FAR if line.rank is not None or not line.stream else _WENT_ON_ORDINARY
        return flow.progress_after(line) >= enough

    def _clue(self, weight: Weight, row: ExitRow, index: int, hit: Hit | None, raised: Raised | None = None) -> Clue:
        line = self.own[index]
        return Clue(
            weight=weight,
            phrase=row.phrase,
            line=quote(line),
            place=self._text.places[id(line)],
            stream=self._stream,
            wording=hit.wording.id if hit else "",
            hint=hit is not None and hit.wording.strength is Strength.HINT,
            fields=self._fields(row, index, hit, raised),
            raised=_exception(raised, self._linked(raised)) if raised is not None else None,
            naming=raised is not None and line is raised.line,
            rank=line.rank if line.rank is not None else self._text.rank,
        )

    def _linked(self, raised: Raised) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        """Return three things: the exceptions that were raised because of `raised` (outermost first), the kind of link
        between them and `raised`, and the exceptions that led to `raised`.

        Outer exceptions that only report the end of another process are left out.
        """
        covered = self._covered.get(self._number[id(raised.line)])
        if covered is None or any(each.short in _NO_CAUSE for each in covered[0].raised):
            return (), "", ()  # Exceptions of a group are independent: none is the cause of another.
        chain = covered[0]
        at = next(index for index, each in enumerate(chain.raised) if each is raised)
        top = next((index for index in range(len(chain.raised) - 1, at, -1) if not is_wrapper(chain.raised[index])), at)
        texts = [_first_line(each) for each in chain.raised]
        outer = tuple(
            texts[index] if index == top else f"{chain.link(index)} {texts[index]}" for index in range(top, at, -1)
        )
        inner = tuple(f"{chain.link(index)} {texts[index]}" for index in range(at - 1, -1, -1))
        link = chain.link(at) if top > at else ""
        return _cut(outer), link, inner[-_MOST_LINKS:]

    def _fields(self, row: ExitRow, index: int, hit: Hit | None, raised: Raised | None) -> dict[str, str]:
        """Return the fields that the row's patterns find in the lines around a catalogue match.

        The match's own fields take precedence.
        """
        found: dict[str, str] = {}
        if row.fields:
            around = self.own[max(0, index - _CONTEXT_LINES) : index + _CONTEXT_LINES + 1]
            texts = [line.text for line in (around if raised is None else [*raised.lines, *around])]
            for pattern in row.fields:
                for name, value in self._matcher.fields(pattern, texts).items():
                    found.setdefault(name, value)
        return found | (hit.fields if hit else {})


def quote(line: Line) -> QuotedLine:
    """Convert a line to the form that is sent to the owner."""
    return QuotedLine(
        text=line.text,
        prefixed=line.raw if line.raw != line.text else "",
        number=line.number,
        source=line.source,
        moment=line.moment,
        rank=line.rank,
    )


def _cut(outer: tuple[str, ...]) -> tuple[str, ...]:
    return outer if len(outer) <= _MOST_LINKS else (outer[0], *outer[1 - _MOST_LINKS :])


def _first_line(raised: Raised) -> str:
    message = raised.message.partition("\n")[0]
    return f"{raised.type}: {message}" if message else raised.type


def _exception(raised: Raised, linked: tuple[tuple[str, ...], str, tuple[str, ...]]) -> RaisedException:
    above, link, below = linked
    return RaisedException(
        above=above,
        link=link,
        below=below,
        type=raised.type,
        message=raised.message.partition("\n")[0],
        words=raised.words,
        told="\n".join(line.text for line in raised.told[:_MESSAGE_LINES]),
        frame=raised.user_frame,
    )


def _is_progress(line: Line, hits: list[Hit]) -> bool:
    text = line.text
    return not hits and bool(_PROGRESS.search(text) or is_bar(text)) and not _TROUBLE.search(text)


def _going_on(working: Sequence[bool], ordinary: Sequence[bool], times: int = 1) -> list[bool]:
    """Return for each line of a writer whether the writer continued its work afterwards.

    `times`: factor on the number of lines that prove this.
    """
    went = [False] * len(working)
    progress = plain = 0
    for index in range(len(working) - 1, -1, -1):
        went[index] = progress >= _WENT_ON * times or plain >= _WENT_ON_ORDINARY * times
        progress += working[index]
        plain += ordinary[index]
    return went


class _Times:
    """The times of a writer's lines. They are precomputed, so that each exception can be checked quickly."""

    def __init__(self, own: Sequence[Line]) -> None:
        #: For each line: the latest time in the lines up to this line.
        self._until: list[float | None] = []
        last: float | None = None
        for line in own:
            if line.at is not None:
                last = line.at if last is None else max(last, line.at)
            self._until.append(last)
        #: For each line: the latest time in the lines from this line on, without lines that report trouble.
        self._after: list[float | None] = [None] * (len(own) + 1)
        last = None
        for index in range(len(own) - 1, -1, -1):
            at = own[index].at
            if at is not None and (last is None or at > last) and not _TROUBLE.search(own[index].text):
                last = at
            self._after[index] = last

    def gone_on(self, chain: Chain) -> bool:
        """Return whether the program survived this traceback.

        Lines with a later time prove that it did. Later lines without times prove little, because a program writes its
        buffered standard output when it exits, after the traceback.
        """
        later = self._after[chain.last + 1]
        before = self._until[chain.first]
        return later is not None and (before is None or later > before)
