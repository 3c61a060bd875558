"""Runs `holdfast run` and notes each of holdfast's own functions that is entered from a worker's death to the restart.

As a program: `python tests/project/walking.py NOTES run …`. It is a program of its own because a run forks, takes
signals and reaps what has become its child. `NOTES` gets one JSON line per call: its number, its caller's number, file,
function.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

#: Not from places.py, which a program in this folder cannot import.
PACKAGE = Path(__file__).parents[2] / "src" / "holdfast"
BEGIN = ("act/host.py", "LocalHost._died")
#: The first release after the death lets the first worker of the next attempt go.
END = ("act/host.py", "LocalHost._release")
#: From here on an idle run imports nothing more; the file of notes, with the suffix `.rehearsed`, is there then.
REHEARSED = ("node/explain_warmup.py", "ExplainWarmup._over")


class Call(NamedTuple):
    """A function that was entered."""

    number: int
    #: The number of the nearest call above it that is holdfast's own; -1 where it began before the death.
    caller: int
    file: str
    name: str

    @property
    def place(self) -> tuple[str, str]:
        return self.file, self.name


class Notes:
    """Everything that was entered, in order."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls

    @classmethod
    def read(cls, path: Path) -> Notes:
        return cls([Call(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()])

    def callers(self, call: Call) -> Iterator[Call]:
        """From its caller upwards."""
        while call.caller >= 0:
            call = self.calls[call.caller]
            yield call

    def figures(self) -> Figures:
        """How much runs. What each wait asks anew is left out: how many waits there are depends on the load."""
        calls = [call for call in self.calls if not self._waits(call)]
        switches = sum(one.file != other.file for one, other in pairwise(calls))
        return Figures(len({call.file for call in calls}), len({call.place for call in calls}), switches)

    def _waits(self, call: Call) -> bool:
        """The time, the next moments, and the reactor's own look."""
        own = call.file in ("clock.py", "reactor.py")
        return own or any(each.name.endswith("next_wake") for each in (call, *self.callers(call)))


class Figures(NamedTuple):
    """Of all that was entered."""

    files: int
    functions: int
    #: How often the next function that was entered stood in another file than the one before it.
    switches: int


class Tracer:
    """A profile function that writes the calls down when they are over."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._prefix = f"{PACKAGE}/"
        self._names: dict[CodeType, tuple[str, str] | None] = {}
        self._open: dict[FrameType, int] = {}
        self._calls: list[tuple[int, int, str, str]] = []
        self._begun = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return":
            self._open.pop(frame, None)
            if not self._begun and self._place(frame.f_code) == REHEARSED:
                self._notes.with_suffix(".rehearsed").touch()
            return
        if event != "call":
            return
        place = self._place(frame.f_code)
        if place is None or not (self._begun or place == BEGIN):
            return
        self._begun = True
        above = frame.f_back
        while above is not None and above not in self._open:
            above = above.f_back
        number = len(self._calls)
        self._calls.append((number, -1 if above is None else self._open[above], *place))
        self._open[frame] = number
        if place == END:
            sys.setprofile(None)
            self._notes.write_text("".join(f"{json.dumps(call)}\n" for call in self._calls), encoding="utf-8")

    def _place(self, code: CodeType) -> tuple[str, str] | None:
        if code not in self._names:
            ours = code.co_filename.startswith(self._prefix)
            self._names[code] = (code.co_filename[len(self._prefix) :], code.co_qualname) if ours else None
        return self._names[code]


if __name__ == "__main__":
    tracer = Tracer(Path(sys.argv.pop(1)))
    sys.argv[0] = "holdfast"
    sys.setprofile(tracer)
    from holdfast.cli import main

    main()
