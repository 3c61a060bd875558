"""The facts that a node has read from a worker's logs. Their size is bounded, and the logs stay on the node.

The node makes one `WorkerReading` per worker (`holdfast.explain.logs.log_reader`). Attribution and the explanation
rules use only these readings. A phrase names a row of the exit catalogue, and a wording's id names a pattern of that
row.
"""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Evidence
from holdfast.model.noun_base import At, Noun

#: Maximum size of a `WorkerReading` as JSON, in bytes. Below `WORKER_BYTES` it leaves room for the worker's other
#: evidence.
READING_BYTES = 15 * 1024
#: Maximum size of one worker's evidence in a message and in the journal, in bytes.
WORKER_BYTES = 16 * 1024


class Weight(enum.IntEnum):
    """How strongly a log line points to the cause of a worker's end; smaller is stronger.

    It depends on the kind of the line and its place in the log.
    """

    #: The line was written by the kernel, a scheduler or a container engine.
    EVENT = 1
    #: The line is the exception that ended the program, and an exact (narrow) row of the catalogue matches it.
    DEATH = 2
    #: The line is an error of the process, among the last lines of a log.
    ENDING = 3
    #: The line is the exception that ended the program, and a broad row of the catalogue matches it. Many causes share
    #: such a row.
    BROAD = 4
    #: The line is a launcher's or shell's report about a crash signal.
    CRASH = 5
    #: The line is the exception that ended the program, and no row of the catalogue matches it.
    OWN = 6
    #: The line is a warning of the process, or a broad row matches it, among the last lines of a log.
    WARNED = 7
    #: The line is about a failed connection between workers. It shows that the link failed, but not why.
    PEERS = 8
    #: The line says that the process aborted itself. It shows how the process ended, but not why.
    ABORT = 9
    #: The line only says that something else failed.
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
    #: The part of the exception's message that is certainly not other output.
    words: str = ""
    #: The log line with the exception's name and its message's rest, as in the log.
    told: str = ""
    #: The innermost stack frame in the user's own code: file, line, function.
    frame: tuple[str, int, str] | None = None
    #: The exceptions that this one led to, the outermost first. Each but the first begins with its link to the one
    #: before: `because` or `while handling`.
    above: tuple[str, ...] = ()
    #: The link from the last exception in `above` to this one: `because` or `while handling`.
    link: str = ""
    #: The exceptions that led to this one, each with its link; the innermost last.
    below: tuple[str, ...] = ()


class UncaughtException(Noun, frozen=True, kw_only=True):
    """An uncaught C++ exception, as the runtime library printed it before the abort."""

    type: str
    #: The exception's message (`what()`); empty if it has none.
    what: str = ""
    #: The lines of the log that describe the exception.
    text: str = ""
    #: The place in the program's source that the log names: file and line.
    source: str = ""


class EndNote(Noun, frozen=True, kw_only=True):
    """The end of a process in a launcher's or shell's line."""

    line: QuotedLine
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    #: The growth of memory in the log lines before the report, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""
    #: The program that reported the process's end: `Slurm`.
    by: str = ""
    #: Whether the launcher calls this process the first one that failed.
    root: bool = False
    #: The path of the file in which the process stored its exception.
    error_file: str = ""


class EndKind(enum.StrEnum):
    """How a log ends, if it ends well."""

    SUCCESS = "success"
    #: A server was asked to stop, and stopped in order.
    SHUT_DOWN = "shut_down"


class OrderlyEnd(Noun, frozen=True, kw_only=True):
    """The statement with which a log ends well."""

    line: QuotedLine
    kind: EndKind = EndKind.SUCCESS
    #: The program that states it, such as `Slurm`; empty: the program itself.
    by: str = ""
    #: Whether the statement is about the whole job, and not about one process.
    whole: bool = False


class LinePlace(Noun, frozen=True, order=True):
    """The place of a line in a worker's logs. Places sort in the order of reading."""

    #: The index of the worker's log text (stderr, stdout, error file), from 0.
    text: int = 0
    #: The line's number in that text. A clue between two lines has the first line's number plus a half.
    line: float = 0.0


class Clue(Noun, frozen=True, kw_only=True):
    """One possible cause of a worker's end, found in its logs, with its place and its weight."""

    weight: Weight
    phrase: str
    line: QuotedLine
    place: LinePlace = LinePlace()
    #: The writer of the line, if several processes have written to the text.
    stream: str = ""
    #: The id of the pattern (wording) that matches the line; empty: no pattern matches.
    wording: str = ""
    #: Whether the matching pattern is broad. The match is then only a hint of the cause.
    hint: bool = False
    #: Name → text of each group in the matching pattern and in the row's further patterns.
    fields: dict[str, str] = {}
    raised: RaisedException | None = None
    #: Whether `line` is the line that names the exception `raised`.
    naming: bool = False
    rank: int | None = None
    #: Whether later lines look like progress, but have no time. They may be buffered output, or the program may have
    #: survived the error.
    doubtful: bool = False
    #: A launcher's or shell's report about the process's end, if there is no other report; else None.
    note: EndNote | None = None
    #: The growth of memory in the log lines before the clue, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""


class OwnMatch(Noun, frozen=True, kw_only=True):
    """The first log line that matches a user's row in OpenPAI's format."""

    pattern: str
    line: QuotedLine


class UnreachedPeer(Noun, frozen=True, kw_only=True):
    """An address of a peer that a rank could not reach."""

    host: str
    port: str
    #: The system's error: `No route to host`, `Name or service not known`; empty: the peer never answered.
    why: str = ""


class FailedRendezvous(Noun, frozen=True, kw_only=True):
    """A failed rendezvous (start of the process group), from one rank's log."""

    tried: tuple[UnreachedPeer, ...] = ()
    #: The rank whose key never appeared in the rendezvous store.
    awaits: int | None = None
    #: The name of the missing key in the rendezvous store, without the rank in it.
    key: str = ""
    #: The number of ranks at the rendezvous, by this rank's count.
    joined: int | None = None
    #: The number of ranks that this rank expected there.
    of: int | None = None
    #: The address of the rank's rendezvous store: `10.0.0.1:29500`.
    at: str = ""
    waited_s: float = 0.0
    #: The network interface for the rank, if it has no address; else empty.
    interface: str = ""


class WorkerReading(Noun, frozen=True, kw_only=True):
    """The facts that a node reads from one worker's logs."""

    #: The possible causes of the worker's end, the strongest first.
    clues: tuple[Clue, ...] = ()
    #: Further matching causes that are too weak to decide.
    weaker: tuple[Clue, ...] = ()
    notes: tuple[EndNote, ...] = ()
    #: All ranks that the clues and the launchers' reports name.
    ranks: tuple[int, ...] = ()
    #: The ranks that the worker's last lines blame.
    blames: tuple[int, ...] = ()
    own_matches: tuple[OwnMatch, ...] = ()
    #: The number of log lines that were read.
    lines: int = 0
    #: The last line of the logs that is not blank.
    end: QuotedLine | None = None
    #: Whether the logs have any line that is not blank.
    spoke: bool = False
    #: The rank in the prefixes of the log lines, if all have the same; else None.
    tagged: int | None = None
    #: The last line that the worker wrote, preferably on stderr.
    last_line: Evidence | None = None
    #: The growth of memory in the worker's last lines, as `16 MiB to 176 MiB`; empty: no growth is logged.
    grown: str = ""
    #: The last exception in logs that were read only in part. It is compared with other workers' exceptions.
    last_raised: RaisedException | None = None
    #: The function of the crashed thread, from faulthandler: `main (train.py:12)`.
    crashed_in: str = ""
    uncaught: UncaughtException | None = None
    #: Whether the worker is a log file of `holdfast explain`, so that there is no exit.
    given: bool = False
    #: Whether the log explains the worker's own end, and not only the loss of a peer.
    first_hand: bool = False
    #: Whether the worker's last exception is about the worker itself, not about a peer.
    own_exception: bool = False
    #: Whether the worker's last lines say that another rank is lost or did not answer in time.
    of_peers: bool = False
    meeting: FailedRendezvous | None = None
    #: The statement with which the logs end well; None: they end in another way, or in the middle.
    orderly: OrderlyEnd | None = None
    #: The line with which `holdfast run` ended its report, if the log holds one, and the class in it.
    verdict: tuple[str, QuotedLine] | None = None
    #: The error of holdfast itself while it read the logs; empty: there was none.
    bug: str = ""
