"""What a frame waits for: a table of facts about libraries, and the rules by which a stack is read with it.

A row has a frame's function and file, what it waits for, and the argument. Rows are searched from the innermost frame
outwards. A weak row (a lock, a sleep) gives way to a strong one in the library's frames around it: a collective that
polls sleeps too. The search ends at the first frame of the user's own code, since a wait that the user's code makes
inside a library's call (a hook in the backward pass) is not the library's; only a collective's name counts beyond it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from holdfast.explain.wait_facts import CALLS, CHANNELS, ROWS
from holdfast.model.noun_base import Noun

#: Innermost frames of Python in which a collective's name counts: wrappers and loggers lie between it and the wait.
DEPTH = 8


class WaitTarget(enum.StrEnum):
    """What a rank that stands waits for."""

    #: Other ranks: it stands because they do not come.
    PEERS = "peers"
    #: Work queued on an accelerator, which may be a collective: alone it does not distinguish a rank from the others.
    DEVICE = "device"
    DISK = "disk"
    CHILD = "child"
    LOCK = "lock"
    PERSON = "person"
    #: An answer from outside the job.
    SERVICE = "service"
    #: A thread or task of its own process.
    THREAD = "thread"
    #: It sleeps, or waits for an event that only its own code can bring.
    ITSELF = "itself"


class WaitPattern(Noun, frozen=True, kw_only=True):
    """One fact about a frame."""

    function: re.Pattern[str]
    file: re.Pattern[str] | None
    waits: WaitTarget
    #: `a row of its data loader's workers`: the end of "it waits for …".
    what: str
    #: The argument for the row.
    why: str
    weak: bool = False
    #: Counts also for a rank that burns CPU at the frame in every look; else only for one that uses none.
    spins: bool = True
    #: Counts also with frames of the user's code further in.
    through: bool = False


class Wait(Noun, frozen=True, kw_only=True):
    """What a stack waits for."""

    waits: WaitTarget
    what: str
    #: The index of the frame that shows it; -1 where the kernel shows it.
    index: int = -1
    spins: bool = False
    weak: bool = False


_FRAME = re.compile(r"^(?P<function>[^ ]+|.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$", re.DOTALL)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |\.so(?:[.\d]*)?$")
_NATIVE = re.compile(r"\.so(?:[.\d]*)?$|^[^/.]*$|/[^/.]+$|/python[\d.]*$|^python[\d.]*$")


class WaitFrame:
    """One frame, taken apart."""

    __slots__ = ("file", "function", "line", "text")

    def __init__(self, text: str) -> None:
        found = _FRAME.match(text)
        self.text = text
        self.function = found["function"] if found else text
        self.file = found["file"] if found else ""
        self.line = int(found["line"]) if found and found["line"] else 0

    @property
    def place(self) -> str:
        """`train.py:12`."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if self.line else name

    @property
    def native(self) -> bool:
        """Whether it is a native frame: a library's or the interpreter's."""
        return not self.line and bool(_NATIVE.search(self.file))

    @property
    def ours(self) -> bool:
        """It is of the user's code, not of a library or the interpreter."""
        return bool(self.file) and not self.native and not _LIBRARY.search(self.file)


def _made() -> tuple[WaitPattern, ...]:
    return tuple(
        WaitPattern(
            function=re.compile(function),
            file=re.compile(file) if file else None,
            waits=WaitTarget(waits),
            what=what,
            why=why,
            weak="weak" in flags,
            spins="idle" not in flags,
            through="through" in flags,
        )
        for function, file, waits, what, flags, why in ROWS
    )


_rows: tuple[WaitPattern, ...] = ()


def rows() -> tuple[WaitPattern, ...]:
    """The table, compiled at its first use."""
    global _rows  # compiled once
    _rows = _rows or _made()
    return _rows


def row_of(frame: WaitFrame) -> WaitPattern | None:
    """The first row that matches the frame."""
    # Python's frames may have their class before them: `Condition.wait`.
    name = frame.function if frame.native else frame.function.rpartition(".")[2]
    for row in rows():
        if row.function.search(name) and (row.file is None or row.file.search(frame.file)):
            return row
    return None


def wait_of(frames: Sequence[str]) -> Wait | None:
    """What a stack waits for, innermost frame first; None where no row matches."""
    weak: Wait | None = None
    index, python, inside = -1, 0, True
    found: Wait | None = None
    for index, text in enumerate(frames):
        frame = WaitFrame(text)
        python += not frame.native
        if python > DEPTH:
            break
        row = row_of(frame)
        if row is not None and (inside or row.through):
            wait = Wait(waits=row.waits, what=row.what, index=index, spins=row.spins, weak=row.weak)
            if row.weak:
                # `Future.result` says more than the `Condition.wait` inside of it.
                weak = wait if weak is None or weak.waits is row.waits else weak
            elif found is None or (found.waits is WaitTarget.PEERS and row.through):
                # Of a collective's own frames the outermost is the one that the user's code calls.
                found = wait if found is None or row.waits is WaitTarget.PEERS else found
        if frame.ours:
            inside = False
    return found or weak


def call_of(waits_in: str, file: str) -> Wait | None:
    """What the kernel shows: the system call with its wait channel, and its file."""
    for call, target, waits, what, _ in CALLS:
        if re.match(call, waits_in) and re.search(target, file):
            return Wait(waits=WaitTarget(waits), what=what)
    return None


def channel_of(waits_in: str) -> Wait | None:
    """What a thread in state D waits for, by the kernel's function."""
    for channel, waits, what, _ in CHANNELS:
        if re.search(channel, waits_in):
            return Wait(waits=WaitTarget(waits), what=what)
    return None
