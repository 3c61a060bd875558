"""What a worker's own words say of its end, read on its node: bounded, and never the log itself.

The node makes one `WorkerReading` a worker (`holdfast.explain.reading`); attribution and the rules of belief work
on these alone. A phrase and a wording's id stand for rows of the catalogue.
"""

from __future__ import annotations

import enum

from holdfast.model.base import At, Noun
from holdfast.model.exits import Evidence

READING_BYTES = 15 * 1024
"""A reading is at most so large as JSON. With the rest of its worker's evidence it stays below `WORKER_BYTES`."""
WORKER_BYTES = 16 * 1024
"""What one worker's evidence may cost on its way to the owner and in the journal."""


class Weight(enum.IntEnum):
    """What a possible cause is worth by where it stands; smaller is stronger."""

    EVENT = 1
    """The kernel, a scheduler or a container engine says so."""
    DEATH = 2
    """The exception that ended the program, and a narrow row knows it."""
    ENDING = 3
    """A first-hand line in the end of a log."""
    BROAD = 4
    """The exception that ended the program, and a broad row knows it."""
    CRASH = 5
    """A launcher or shell tells of a crash signal."""
    OWN = 6
    """The exception that ended the program; no row knows it."""
    WARNED = 7
    """A first-hand warning, or a broad line, in the end of a log."""
    PEERS = 8
    """Something between workers: first-hand for the link, second-hand for the cause."""
    ABORT = 9
    """The process aborted itself: that is how it ended, not why."""
    CONSEQUENCE = 10
    """Only says that something else went wrong."""


class Quote(Noun, frozen=True, kw_only=True):
    """One line of a log."""

    text: str
    """Bare: without what launchers and loggers put in front of it."""
    prefixed: str = ""
    """The same line as it stands in the file, where it differs."""
    number: int = 0
    """From 1, in its file."""
    source: str = ""
    """The file or stream."""
    moment: At | None = None
    """When it was written, in seconds since the epoch; None where the line tells no date."""
    rank: int | None = None
    """The rank that the line itself names as its writer."""

    @property
    def raw(self) -> str:
        """The line as it stands in the file."""
        return self.prefixed or self.text


class RaisedException(Noun, frozen=True, kw_only=True):
    """An exception that a log tells."""

    type: str
    message: str = ""
    """The first line of it."""
    words: str = ""
    """The message as far as it is surely the exception's own."""
    told: str = ""
    """The line that names it and the rest of the message, as they stand in the log."""
    frame: tuple[str, int, str] | None = None
    """The innermost frame of the user's own code: file, line, function."""
    outer: str = ""
    """The exception that left the program because of this one, where it is another."""


class UncaughtException(Noun, frozen=True, kw_only=True):
    """A C++ exception that nothing caught, as the runtime library told it before it aborted."""

    type: str
    what: str = ""
    """Its own words; empty where it has none."""
    text: str = ""
    """The lines that tell it."""
    source: str = ""
    """File and line."""


class EndNote(Noun, frozen=True, kw_only=True):
    """One process's end as a launcher or a shell told it."""

    line: Quote
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str = ""
    grown: str = ""
    """`16 MiB to 176 MiB`, where the lines before it show memory growing."""
    by: str = ""
    """Who says so: `Slurm`."""
    root: bool = False
    """The launcher names it as the first that failed."""
    error_file: str = ""
    """Where its exception was written."""


class Place(Noun, frozen=True, order=True):
    """Where in a worker's words a line stands: earlier is smaller."""

    text: int = 0
    """Of its texts (stderr, stdout, error file) the how manieth, from 0."""
    line: float = 0.0
    """The line's place in that text; a half for what follows it."""


class Clue(Noun, frozen=True, kw_only=True):
    """One possible cause, with where and how it stands."""

    weight: Weight
    phrase: str
    line: Quote
    place: Place = Place()
    stream: str = ""
    """Whose line it is, within one text."""
    wording: str = ""
    """The id of the wording that knows the line; empty where none does."""
    hint: bool = False
    """That wording is a broad one."""
    fields: dict[str, str] = {}
    """What the wording's pattern and the row's further patterns found."""
    raised: RaisedException | None = None
    naming: bool = False
    """`line` is the one that names `raised`."""
    rank: int | None = None
    doubtful: bool = False
    """Signs of progress without a time follow it: buffered output, or a program that lived on."""
    note: EndNote | None = None
    """Where only a launcher or shell told of it."""
    grown: str = ""
    """`16 MiB to 176 MiB`, where the lines before it show memory growing."""


class OwnMatch(Noun, frozen=True, kw_only=True):
    """The first line that counts for a pattern of a user's rows of another schema."""

    pattern: str
    line: Quote


class Tried(Noun, frozen=True, kw_only=True):
    """An address at which a rank looked for its peers in vain."""

    host: str
    port: str
    why: str = ""
    """The system's words: `No route to host`, `Name or service not known`; empty: nothing answered."""


class MeetingWords(Noun, frozen=True, kw_only=True):
    """What a rank said of the start of its group, which failed."""

    tried: tuple[Tried, ...] = ()
    awaits: int | None = None
    """The rank for whose word in the store it waited in vain."""
    key: str = ""
    """The name of that word without the rank."""
    joined: int | None = None
    """So many had come, as it counted."""
    of: int | None = None
    """Of so many."""
    at: str = ""
    """Where it was connected to the store: `10.0.0.1:29500`."""
    waited_s: float = 0.0
    interface: str = ""
    """The network interface that it was to use, and that has no address."""


class WorkerReading(Noun, frozen=True, kw_only=True):
    """What one worker's words say."""

    clues: tuple[Clue, ...] = ()
    """The strongest first."""
    weaker: tuple[Clue, ...] = ()
    """What else matched and was not believed."""
    notes: tuple[EndNote, ...] = ()
    ranks: tuple[int, ...] = ()
    """All ranks that its clues and notes name."""
    blames: tuple[int, ...] = ()
    """Ranks that its last words accuse."""
    own_matches: tuple[OwnMatch, ...] = ()
    lines: int = 0
    """So many were read."""
    end: Quote | None = None
    """The last of them that holds a word."""
    spoke: bool = False
    """Any of them holds a word."""
    tagged: int | None = None
    """The one rank that its lines are tagged with."""
    last_line: Evidence | None = None
    """The last line that it wrote, of stderr rather than of stdout."""
    grown: str = ""
    """As a clue's, of the last lines."""
    last_raised: RaisedException | None = None
    """The last exception that it told, of a worker that was not read: whether it raised what another one did."""
    crashed_in: str = ""
    """Python's own line of the thread that crashed, as faulthandler tells it: `main (train.py:12)`."""
    uncaught: UncaughtException | None = None
    given: bool = False
    """Only its log is known, from a file that was named by hand."""
    first_hand: bool = False
    """Its end has evidence of its own, and does not only say that a peer went away."""
    own_exception: bool = False
    """An exception of its own, and none about a peer, is the last that it said."""
    of_peers: bool = False
    """Its last words say that another rank went away or did not answer."""
    meeting: MeetingWords | None = None
    bug: str = ""
    """What broke while it was read: a bug of holdfast."""
