"""The meaning of a worker's own log lines, read on its node: bounded, and never the log itself.

The node makes one `WorkerReading` a worker (`holdfast.explain.log_reader`); attribution and the rules of belief work on
these alone. A phrase and a wording's id stand for rows of the catalogue.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence
from holdfast.model.noun_base import At, Noun

READING_BYTES = 15 * 1024
"""Bytes of a reading as JSON, at most. With the rest of its worker's evidence it stays below `WORKER_BYTES`."""
WORKER_BYTES = 16 * 1024
"""Bytes that one worker's evidence may take on the wire and in the journal."""


class Weight(enum.IntEnum):
    """How strong a possible cause is at its place in the log; a smaller value is stronger."""

    EVENT = 1
    """A statement of the kernel, a scheduler or a container engine."""
    DEATH = 2
    """The exception that ended the program, matched by a narrow row."""
    ENDING = 3
    """A first-hand line in the end of a log."""
    BROAD = 4
    """The exception that ended the program, matched by a broad row."""
    CRASH = 5
    """A crash signal that a launcher or shell reports."""
    OWN = 6
    """The exception that ended the program, matched by no row."""
    WARNED = 7
    """A first-hand warning, or a broad line, in the end of a log."""
    PEERS = 8
    """Trouble between workers: first-hand about the link, second-hand about the cause."""
    ABORT = 9
    """The process aborted itself: this is how it ended, not why."""
    CONSEQUENCE = 10
    """The line only reports that something else failed."""


class QuotedLine(Noun, frozen=True, kw_only=True):
    """One line of a log."""

    text: str
    """Without the prefixes of launchers and loggers."""
    prefixed: str = ""
    """The same line as written in the file, where it differs."""
    number: int = 0
    """The line's number in its file, from 1."""
    source: str = ""
    """The file or stream."""
    moment: At | None = None
    """When it was written, in seconds since the epoch; None where the line has no date."""
    rank: int | None = None
    """The rank that the line itself names as its writer."""

    @property
    def raw(self) -> str:
        """The line as written in the file."""
        return self.prefixed or self.text


class RaisedException(Noun, frozen=True, kw_only=True):
    """An exception in a log."""

    type: str
    message: str = ""
    """The first line of it."""
    words: str = ""
    """The message, as far as it surely belongs to the exception."""
    told: str = ""
    """The line that names it and the rest of the message, as written in the log."""
    frame: tuple[str, int, str] | None = None
    """The innermost frame of the user's own code: file, line, function."""
    outer: str = ""
    """The exception that left the program because of this one, where it is a different one."""


class UncaughtException(Noun, frozen=True, kw_only=True):
    """An uncaught C++ exception, as the runtime library printed it before it aborted."""

    type: str
    what: str = ""
    """Its message; empty where it has none."""
    text: str = ""
    """The lines that show it."""
    source: str = ""
    """The place in the program: file and line."""


class EndNote(Noun, frozen=True, kw_only=True):
    """One process's end as a launcher or a shell reported it."""

    line: QuotedLine
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    grown: str = ""
    """`16 MiB to 176 MiB`, where the lines before it show growing memory."""
    by: str = ""
    """The program that reported it: `Slurm`."""
    root: bool = False
    """The launcher names it as the first that failed."""
    error_file: str = ""
    """The file with its exception."""


class LinePlace(Noun, frozen=True, order=True):
    """The place of a line in a worker's logs: earlier is smaller."""

    text: int = 0
    """The index of the text among its texts (stderr, stdout, error file), from 0."""
    line: float = 0.0
    """The line's place in that text; a half is added for what follows it."""


class Clue(Noun, frozen=True, kw_only=True):
    """One possible cause, with its place and its weight."""

    weight: Weight
    phrase: str
    line: QuotedLine
    place: LinePlace = LinePlace()
    stream: str = ""
    """The writer of the line, within one text."""
    wording: str = ""
    """The id of the wording that matches the line; empty where none does."""
    hint: bool = False
    """Whether that wording is a broad one."""
    fields: dict[str, str] = {}
    """The groups of the wording's pattern and of the row's further patterns."""
    raised: RaisedException | None = None
    naming: bool = False
    """`line` is the one that names `raised`."""
    rank: int | None = None
    doubtful: bool = False
    """Signs of progress without a time follow it: buffered output, or a program that survived."""
    note: EndNote | None = None
    """The end, where only a launcher or shell reported it."""
    grown: str = ""
    """`16 MiB to 176 MiB`, where the lines before it show growing memory."""


class OwnMatch(Noun, frozen=True, kw_only=True):
    """The first line that counts for a pattern of a user's rows of another schema."""

    pattern: str
    line: QuotedLine


class UnreachedPeer(Noun, frozen=True, kw_only=True):
    """An address at which a rank looked for its peers in vain."""

    host: str
    port: str
    why: str = ""
    """The system's error: `No route to host`, `Name or service not known`; empty: there was no answer."""


class FailedRendezvous(Noun, frozen=True, kw_only=True):
    """A rank's account of the start of its group, which failed."""

    tried: tuple[UnreachedPeer, ...] = ()
    awaits: int | None = None
    """The rank for whose key in the store it waited in vain."""
    key: str = ""
    """The name of that key without the rank."""
    joined: int | None = None
    """How many had joined, as it counted."""
    of: int | None = None
    """How many it expected."""
    at: str = ""
    """The address of the store that it was connected to: `10.0.0.1:29500`."""
    waited_s: float = 0.0
    interface: str = ""
    """The network interface that it was to use, and that has no address."""


class WorkerReading(Noun, frozen=True, kw_only=True):
    """The meaning of one worker's logs."""

    clues: tuple[Clue, ...] = ()
    """The strongest first."""
    weaker: tuple[Clue, ...] = ()
    """Further clues that matched and were not believed."""
    notes: tuple[EndNote, ...] = ()
    ranks: tuple[int, ...] = ()
    """All ranks that its clues and notes name."""
    blames: tuple[int, ...] = ()
    """Ranks that its last lines accuse."""
    own_matches: tuple[OwnMatch, ...] = ()
    lines: int = 0
    """How many lines were read."""
    end: QuotedLine | None = None
    """The last line with any text."""
    spoke: bool = False
    """Whether any line has any text."""
    tagged: int | None = None
    """The one rank in the tags of its lines."""
    last_line: Evidence | None = None
    """The last line that it wrote, from stderr rather than stdout."""
    grown: str = ""
    """The writer, as for a clue, of the last lines."""
    last_raised: RaisedException | None = None
    """The last exception of a worker that was not read: for a comparison with the exception of another one."""
    crashed_in: str = ""
    """Python's line of the thread that crashed, from faulthandler: `main (train.py:12)`."""
    uncaught: UncaughtException | None = None
    given: bool = False
    """Only its log is known, from a file that the user named."""
    first_hand: bool = False
    """Its end has evidence of its own, and does not only report a lost peer."""
    own_exception: bool = False
    """Its last exception is its own, and not about a peer."""
    of_peers: bool = False
    """Its last lines report that another rank is lost or did not answer."""
    meeting: FailedRendezvous | None = None
    bug: str = ""
    """An error of holdfast itself while reading it."""
