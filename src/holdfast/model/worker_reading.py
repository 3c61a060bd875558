"""The reading of a worker's logs, made on the worker's node. Its size is bounded, and the logs themselves stay there.

The node makes one `WorkerReading` per worker (`holdfast.explain.logs.log_reader`). Attribution and the explanation
rules use only these readings. A phrase names a row of the catalogue, and a wording's id names a wording of that row.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence
from holdfast.model.noun_base import At, Noun

#: Maximum size of a reading as JSON, in bytes. It leaves room for the worker's other evidence below `WORKER_BYTES`.
READING_BYTES = 15 * 1024
#: Maximum size of one worker's evidence in a message and in the journal, in bytes.
WORKER_BYTES = 16 * 1024


class Weight(enum.IntEnum):
    """The strength of a possible cause, which depends on its place in the log. A smaller value is stronger."""

    #: A statement of the kernel, a scheduler or a container engine.
    EVENT = 1
    #: The exception that ended the program; a narrow row of the catalogue matches it.
    DEATH = 2
    #: An error of the process itself in the last lines of a log.
    ENDING = 3
    #: The exception that ended the program; a broad row of the catalogue matches it.
    BROAD = 4
    #: A crash signal that a launcher or shell reports.
    CRASH = 5
    #: The exception that ended the program; no row of the catalogue matches it.
    OWN = 6
    #: A warning of the process itself, or a line that a broad row matches, among the last lines of a log.
    WARNED = 7
    #: A failed connection between workers: it proves that the link failed, but not why.
    PEERS = 8
    #: The process aborted itself: the line shows how it ended, not why.
    ABORT = 9
    #: A line that only reports the failure of another part.
    CONSEQUENCE = 10


class QuotedLine(Noun, frozen=True, kw_only=True):
    """One line of a log."""

    #: The text without the prefixes of launchers and loggers.
    text: str
    #: The line as written in the file, if it differs from `text`; else empty.
    prefixed: str = ""
    #: The line's number in its file, counted from 1.
    number: int = 0
    #: The file or stream that has the line.
    source: str = ""
    #: When the line was written, in seconds since the epoch; None: the line has no date.
    moment: At | None = None
    #: The rank that the line names as its writer; None: the line names no rank.
    rank: int | None = None

    @property
    def raw(self) -> str:
        """The line as written in the file."""
        return self.prefixed or self.text


class RaisedException(Noun, frozen=True, kw_only=True):
    """A Python exception in a log."""

    type: str
    #: The first line of the message.
    message: str = ""
    #: The part of the message that is certain to belong to the exception.
    words: str = ""
    #: The line that names the exception and the rest of its message, as written in the log.
    told: str = ""
    #: The innermost frame of the user's own code: file, line, function.
    frame: tuple[str, int, str] | None = None
    #: The exceptions that were raised from this one, the outermost first; all but the first begin with their link:
    #: `because` or `while handling`.
    above: tuple[str, ...] = ()
    #: The link from the last of `above` to this exception.
    link: str = ""
    #: The exceptions from which this one was raised, each with its link; the innermost last.
    below: tuple[str, ...] = ()


class UncaughtException(Noun, frozen=True, kw_only=True):
    """An uncaught C++ exception, as the runtime library printed it before it aborted."""

    type: str
    #: The message of the exception; empty if it has none.
    what: str = ""
    #: The lines of the log about it.
    text: str = ""
    #: The place in the program: file and line.
    source: str = ""


class EndNote(Noun, frozen=True, kw_only=True):
    """The end of one process as a launcher or a shell reported it."""

    line: QuotedLine
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    #: `16 MiB to 176 MiB`, if the log lines before the report show growing memory; else empty.
    grown: str = ""
    #: The program that reported the end: `Slurm`.
    by: str = ""
    #: Whether the launcher names this process as the first that failed.
    root: bool = False
    #: The path of the file with the process's exception.
    error_file: str = ""


class LinePlace(Noun, frozen=True, order=True):
    """The place of a line in a worker's logs. Places compare in reading order."""

    #: The index of the worker's text (stderr, stdout, error file), from 0.
    text: int = 0
    #: The line's number in the worker's text. An item that belongs after a line has this number plus a half.
    line: float = 0.0


class Clue(Noun, frozen=True, kw_only=True):
    """One possible cause, with its place and its weight."""

    weight: Weight
    phrase: str
    line: QuotedLine
    place: LinePlace = LinePlace()
    #: The name of the line's writer within one text.
    stream: str = ""
    #: The id of the wording that matches the line; empty: no wording matches.
    wording: str = ""
    #: Whether that wording is broad, so that a match is only a hint of the cause.
    hint: bool = False
    #: The matched groups of the wording's pattern and of the row's further patterns, by name.
    fields: dict[str, str] = {}
    raised: RaisedException | None = None
    #: Whether `line` is the line that names `raised`.
    naming: bool = False
    rank: int | None = None
    #: Whether lines without a time that look like progress follow this line. They may be buffered output, or the
    #: program may have survived.
    doubtful: bool = False
    #: The report of the process's end, if only a launcher or shell reported it.
    note: EndNote | None = None
    #: `16 MiB to 176 MiB`, if the log lines before the clue show growing memory; else empty.
    grown: str = ""


class OwnMatch(Noun, frozen=True, kw_only=True):
    """The first line that matches a pattern of a user's rows in another schema."""

    pattern: str
    line: QuotedLine


class UnreachedPeer(Noun, frozen=True, kw_only=True):
    """An address at which a rank could not reach its peers."""

    host: str
    port: str
    #: The system's error: `No route to host`, `Name or service not known`; empty: the peer never answered.
    why: str = ""


class FailedRendezvous(Noun, frozen=True, kw_only=True):
    """A failed start of the process group, as one rank's log reports it."""

    tried: tuple[UnreachedPeer, ...] = ()
    #: The rank whose key in the store never arrived.
    awaits: int | None = None
    #: The name of the missing key, without the rank in it.
    key: str = ""
    #: The number of ranks that had joined, as this rank counted them.
    joined: int | None = None
    #: The number of ranks that this rank expected.
    of: int | None = None
    #: The address of the store to which the rank was connected: `10.0.0.1:29500`.
    at: str = ""
    waited_s: float = 0.0
    #: The network interface that the rank was configured to use, but that has no address; else empty.
    interface: str = ""


class WorkerReading(Noun, frozen=True, kw_only=True):
    """The facts that a node reads from one worker's logs."""

    #: The possible causes, the strongest first.
    clues: tuple[Clue, ...] = ()
    #: Further clues that matched but are too weak to decide.
    weaker: tuple[Clue, ...] = ()
    notes: tuple[EndNote, ...] = ()
    #: All ranks that the clues and the launchers' notes name.
    ranks: tuple[int, ...] = ()
    #: The ranks that the worker's last lines blame.
    blames: tuple[int, ...] = ()
    own_matches: tuple[OwnMatch, ...] = ()
    #: The number of lines that were read.
    lines: int = 0
    #: The last line that is not blank.
    end: QuotedLine | None = None
    #: Whether any line is not blank.
    spoke: bool = False
    #: The rank in the tags of the lines, if all tags have the same rank.
    tagged: int | None = None
    #: The last line that the worker wrote. A line of stderr is preferred to one of stdout.
    last_line: Evidence | None = None
    #: `16 MiB to 176 MiB`, if the worker's last lines show growing memory; else empty.
    grown: str = ""
    #: The last exception in logs that were only partly read. It is compared with another worker's exception.
    last_raised: RaisedException | None = None
    #: Where the crashed thread was, as faulthandler printed it: `main (train.py:12)`.
    crashed_in: str = ""
    uncaught: UncaughtException | None = None
    #: Whether only the worker's log is known, because the user passed a log file.
    given: bool = False
    #: Whether the worker's log explains its own end, and does not only report a lost peer.
    first_hand: bool = False
    #: Whether the worker's last exception is about itself and not about a peer.
    own_exception: bool = False
    #: Whether the worker's last lines report that another rank is lost or did not answer.
    of_peers: bool = False
    meeting: FailedRendezvous | None = None
    #: The error in holdfast while it read the logs; empty: no error.
    bug: str = ""
