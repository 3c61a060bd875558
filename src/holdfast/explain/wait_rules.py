"""Decides for what a stack waits, with a table of frames of known libraries.

A row of the table matches a frame's function and file. Frames are searched from the innermost outwards. A strong row in
an outer frame of the library takes precedence over a weak row (a lock, a sleep), because a collective that polls sleeps
too. The search ends at the first frame of the user's own code: a wait in user code that a library calls (a hook in the
backward pass) is not the library's. Beyond that frame only the name of a collective counts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from holdfast.explain.wait_facts import CALLS, CHANNELS, ROWS
from holdfast.model.noun_base import Noun

#: Number of innermost Python frames that are searched: wrappers and loggers may lie between a collective and its wait.
DEPTH = 8


class WaitTarget(enum.StrEnum):
    """The target of a rank's wait."""

    #: Other ranks, which do not come.
    PEERS = "peers"
    #: Work that is queued on an accelerator. It may be a collective, so it does not distinguish a rank from the others.
    DEVICE = "device"
    DISK = "disk"
    CHILD = "child"
    LOCK = "lock"
    PERSON = "person"
    #: An answer from outside the job.
    SERVICE = "service"
    #: A thread or task of the same process.
    THREAD = "thread"
    #: A sleep, or an event that only the rank's own code can cause.
    ITSELF = "itself"


class WaitPattern(Noun, frozen=True, kw_only=True):
    """One row of the table."""

    function: re.Pattern[str]
    file: re.Pattern[str] | None
    waits: WaitTarget
    #: The end of the sentence "it waits for …", such as `its data loader's workers`.
    what: str
    #: The reason for the row.
    why: str
    weak: bool = False
    #: Whether it also counts for a rank that uses the CPU at the frame in every look, and not only for an idle rank.
    spins: bool = True
    #: Whether it also counts if frames of the user's code are further in.
    through: bool = False


class Wait(Noun, frozen=True, kw_only=True):
    """The wait that a stack shows."""

    waits: WaitTarget
    what: str
    #: The index of the frame that shows the wait; -1: the kernel shows it.
    index: int = -1
    spins: bool = False
    weak: bool = False


_FRAME = re.compile(r"^(?P<function>[^ ]+|.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$", re.DOTALL)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |\.so(?:[.\d]*)?$")
_NATIVE = re.compile(r"\.so(?:[.\d]*)?$|^[^/.]*$|/[^/.]+$|/python[\d.]*$|^python[\d.]*$")


class WaitFrame:
    """One frame, parsed into function, file and line."""

    __slots__ = ("file", "function", "line", "text")

    def __init__(self, text: str) -> None:
        found = _FRAME.match(text)
        self.text = text
        self.function = found["function"] if found else text
        self.file = found["file"] if found else ""
        self.line = int(found["line"]) if found and found["line"] else 0

    @property
    def place(self) -> str:
        """File name and line number: `train.py:12`."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if self.line else name

    @property
    def native(self) -> bool:
        """Whether it is a frame of machine code, in a library or the interpreter."""
        return not self.line and bool(_NATIVE.search(self.file))

    @property
    def ours(self) -> bool:
        """Whether it is a frame of the user's code, not of a library or the interpreter."""
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
    """Return the table, which is compiled at its first use."""
    global _rows  # compiled once
    _rows = _rows or _made()
    return _rows


def row_of(frame: WaitFrame) -> WaitPattern | None:
    """Return the first row that matches the frame; None: none does."""
    # The function of a Python frame may have a class before it: `Condition.wait`.
    name = frame.function if frame.native else frame.function.rpartition(".")[2]
    for row in rows():
        if row.function.search(name) and (row.file is None or row.file.search(frame.file)):
            return row
    return None


def wait_of(frames: Sequence[str]) -> Wait | None:
    """Return the wait that a stack shows, its innermost frame first; None if no row matches."""
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
                # The outermost weak row of the same target tells more: `Future.result` than its `Condition.wait`.
                weak = wait if weak is None or weak.waits is row.waits else weak
            elif found is None or (found.waits is WaitTarget.PEERS and row.through):
                # The outermost frame of a collective is the one that the user's code calls.
                found = wait if found is None or row.waits is WaitTarget.PEERS else found
        if frame.ours:
            inside = False
    return found or weak


def call_of(waits_in: str, file: str) -> Wait | None:
    """Return the wait that a system call (`waits_in`, with its wait channel) and its file show; None: unknown."""
    for call, target, waits, what, _ in CALLS:
        if re.match(call, waits_in) and re.search(target, file):
            return Wait(waits=WaitTarget(waits), what=what)
    return None


def channel_of(waits_in: str) -> Wait | None:
    """Return the wait of a thread in state D, from the kernel function in which it sleeps; None: unknown."""
    for channel, waits, what, _ in CHANNELS:
        if re.search(channel, waits_in):
            return Wait(waits=WaitTarget(waits), what=what)
    return None
