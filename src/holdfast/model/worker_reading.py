"""The facts read from a worker's logs, on the worker's node. Their size is bounded, and the logs themselves stay on the
node.

The node makes one `WorkerReading` per worker (`holdfast.explain.logs.log_reader`). Attribution and the explanation
rules use only these readings. A phrase names a row of the exit catalogue, and a wording's id names a pattern of that
row.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence
from holdfast.model.noun_base import At, Noun

#: Maximum size of a `WorkerReading` as JSON, in bytes. It leaves room for the worker's other evidence below
#: `WORKER_BYTES`.
READING_BYTES = 15 * 1024
#: Maximum size of one worker's evidence in a message and in the journal, in bytes.
WORKER_BYTES = 16 * 1024


class Weight(enum.IntEnum):
    """How strongly a log line points to the cause of a worker's end.

    It depends on the line's kind and its place in the log. A smaller value is stronger.
    """

    #: The line was written by the kernel, a scheduler or a container engine.
    EVENT = 1
    #: The line is the exception that ended the program, and a narrow (exact) row of the catalogue matches it.
    DEATH = 2
    #: The line is an error of the process itself among the last lines of a log.
    ENDING = 3
    #: The line is the exception that ended the program, and a broad row of the catalogue matches it, which many causes
    #: share.
    BROAD = 4
    #: The line is the report of a launcher or shell about a crash signal.
    CRASH = 5
    #: The line is the exception that ended the program, and no row of the catalogue matches it.
    OWN = 6
    #: The line is a warning of the process itself, or a broad row matches it, among the last lines of a log.
    WARNED = 7
    #: The line reports a failed connection between workers. It proves that the link failed, but not why.
    PEERS = 8
    #: The line reports that the process aborted itself. It shows how the process ended, not why.
    ABORT = 9
    #: The line only reports that something else failed.
    CONSEQUENCE = 10


class QuotedLine(Noun, frozen=True, kw_only=True):
    """One line of a log, as quoted in evidence."""

    #: The text of the line, without the prefixes of launchers and loggers.
    text: str
    #: The line as written in the file, if it differs from `text`; else empty.
    prefixed: str = ""
    #: The line's number in its file, counted from 1.
    number: int = 0
    #: The name of the file or stream from which the line comes.
    source: str = ""
    #: When the line was written, in seconds since the epoch; None: the line has no time.
    moment: At | None = None
    #: The rank that wrote the line, if the line names it; else None.
    rank: int | None = None

    @property
    def raw(self) -> str:
        """The line as written in the file."""
        return self.prefixed or self.text


class RaisedException(Noun, frozen=True, kw_only=True):
    """A Python exception in a log."""

    type: str
    #: The first line of the exception's message.
    message: str = ""
    #: The part of the exception's message that certainly belongs to it, not to other output.
    words: str = ""
    #: The log line with the exception's name and the rest of its message, as written in the log.
    told: str = ""
    #: The innermost stack frame in the user's own code: file, line, function.
    frame: tuple[str, int, str] | None = None
    #: The exceptions that were raised because of this one, the outermost first. Each but the first begins with its link
    #: to the one before: `because` or `while handling`.
    above: tuple[str, ...] = ()
    #: The link from the last exception in `above` to this one: `because` or `while handling`.
    link: str = ""
    #: The exceptions that led to this one, each with its link; the innermost last.
    below: tuple[str, ...] = ()


class UncaughtException(Noun, frozen=True, kw_only=True):
    """An uncaught C++ exception, as the runtime library printed it before it aborted."""

    type: str
    #: The exception's message (`what()`); empty if it has none.
    what: str = ""
    #: The lines of the log that describe the exception.
    text: str = ""
    #: The place in the program's source that the log names: file and line.
    source: str = ""


class EndNote(Noun, frozen=True, kw_only=True):
    """The end of one process, as a line of a launcher or a shell reports it."""

    line: QuotedLine
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    #: The growth of memory in the log lines before the report, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""
    #: The program that reported the process's end: `Slurm`.
    by: str = ""
    #: Whether the launcher names this process as the first one that failed.
    root: bool = False
    #: The path of the file in which the process stored its exception.
    error_file: str = ""


class LinePlace(Noun, frozen=True, order=True):
    """The place of a line in a worker's logs. A place that is read earlier compares as smaller."""

    #: The index of the worker's log text (stderr, stdout, error file), from 0.
    text: int = 0
    #: The line's number in that text. A clue that belongs between two lines has the first line's number plus a half.
    line: float = 0.0


class Clue(Noun, frozen=True, kw_only=True):
    """One possible cause of a worker's end, found in its logs, with its place and its weight."""

    weight: Weight
    phrase: str
    line: QuotedLine
    place: LinePlace = LinePlace()
    #: The name of the line's writer, if several processes have written to the text.
    stream: str = ""
    #: The id of the pattern (wording) that matches the line; empty: no pattern matches.
    wording: str = ""
    #: Whether the matching pattern is broad, so that the match is only a hint of the cause.
    hint: bool = False
    #: Name → text of the groups that the matching pattern and the row's further patterns captured.
    fields: dict[str, str] = {}
    raised: RaisedException | None = None
    #: Whether `line` is the line that names the exception `raised`.
    naming: bool = False
    rank: int | None = None
    #: Whether lines that look like progress, but have no time, follow this line. They may be buffered output, or the
    #: program may have survived the error.
    doubtful: bool = False
    #: The report of a launcher or shell about the process's end, if nothing else reported it; else None.
    note: EndNote | None = None
    #: The growth of memory in the log lines before the clue, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""


class OwnMatch(Noun, frozen=True, kw_only=True):
    """The first log line that matches a pattern of the user's rows in OpenPAI's format."""

    pattern: str
    line: QuotedLine


class UnreachedPeer(Noun, frozen=True, kw_only=True):
    """An address of the peers that a rank could not reach."""

    host: str
    port: str
    #: The system's error for the connection: `No route to host`, `Name or service not known`; empty: the peer never
    #: answered.
    why: str = ""


class FailedRendezvous(Noun, frozen=True, kw_only=True):
    """A failed start of the process group (rendezvous), as one rank's log reports it."""

    tried: tuple[UnreachedPeer, ...] = ()
    #: The rank whose key never appeared in the rendezvous store.
    awaits: int | None = None
    #: The name of the missing key in the rendezvous store, without the rank in it.
    key: str = ""
    #: The number of ranks that had joined the rendezvous, as this rank counted them.
    joined: int | None = None
    #: The number of ranks that this rank expected at the rendezvous.
    of: int | None = None
    #: The address of the rendezvous store to which the rank was connected: `10.0.0.1:29500`.
    at: str = ""
    waited_s: float = 0.0
    #: The network interface that the rank was configured to use, if it has no address; else empty.
    interface: str = ""


class WorkerReading(Noun, frozen=True, kw_only=True):
    """The facts that a node reads from one worker's logs."""

    #: The possible causes of the worker's end, the strongest first.
    clues: tuple[Clue, ...] = ()
    #: Further possible causes that matched, but are too weak to decide.
    weaker: tuple[Clue, ...] = ()
    notes: tuple[EndNote, ...] = ()
    #: All ranks that the clues and the reports of launchers name.
    ranks: tuple[int, ...] = ()
    #: The ranks that the worker's last lines name as the cause.
    blames: tuple[int, ...] = ()
    own_matches: tuple[OwnMatch, ...] = ()
    #: The number of log lines that were read.
    lines: int = 0
    #: The last line of the logs that is not blank.
    end: QuotedLine | None = None
    #: Whether the logs have any line that is not blank.
    spoke: bool = False
    #: The rank that the prefixes of the log lines name, if all name the same rank; else None.
    tagged: int | None = None
    #: The last line that the worker wrote, preferably on stderr.
    last_line: Evidence | None = None
    #: The growth of memory in the worker's last lines, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""
    #: The last exception in logs that were only partly read. It is compared with the exceptions of other workers.
    last_raised: RaisedException | None = None
    #: The function in which the crashed thread was, as faulthandler printed it: `main (train.py:12)`.
    crashed_in: str = ""
    uncaught: UncaughtException | None = None
    #: Whether only the worker's log is known and no exit, because the user passed a log file to `holdfast explain`.
    given: bool = False
    #: Whether the worker's log explains the worker's own end, and does not only report a lost peer.
    first_hand: bool = False
    #: Whether the worker's last exception is about the worker itself, not about a peer.
    own_exception: bool = False
    #: Whether the worker's last lines report that another rank is lost or did not answer in time.
    of_peers: bool = False
    meeting: FailedRendezvous | None = None
    #: The error that holdfast itself had while it read the logs; empty: no error.
    bug: str = ""
