"""Handles requests to stop a running job: `*.pai.error` files of other components, and `holdfast stop`.

It watches the folder of the running attempt (inotify). A file `<component>.pai.error` with ACTION KILL and a REASON
stops the job. It is read a moment after the first write, because a component may write its lines one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.node import rare_parts
from holdfast.observe.folder_watch import FolderWatch
from holdfast.reactor import Reactor
from holdfast.safe_files import end_of_file
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue
    from holdfast.wire.control_socket import StopLine

SUFFIX = ".pai.error"
#: Seconds from the first line of a request until its file is read, because more lines may follow.
SETTLE_S = 0.25
MOST_FILES = 64
MOST_BYTES = 16 * 1024
NOTHING_TO_REPAIR = "Nothing to repair: start the job again when you want it to go on."


class StopFiles:
    """Obeys the stop files of the running attempt. `logs`: the folder of the `attempt-<n>` folders. `catalogue`: the
    user's exit rows, or None. `say`: prints a message.
    """

    def __init__(
        self,
        reactor: Reactor,
        logs: Path,
        catalogue: Catalogue | None,
        say: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._logs = logs
        self._catalogue = catalogue
        self._say = say
        self._folder = logs
        self._watch: FolderWatch | None = None
        self._due: float | None = None
        self._told: set[tuple[str, str]] = set()
        reactor.deadlines(self._next_wake, self._tick)

    def entered(self, phase: Phase, attempt: int, now: float) -> None:
        """Handle a new phase of the gang. Stop files are obeyed only in the phase RUNNING."""
        if phase is Phase.RUNNING:
            self.begin(attempt, now)
        else:
            self.close()

    def begin(self, attempt: int, now: float) -> None:
        """Watch the folder of a running attempt from now on. Read the files in it at once."""
        self.close()
        self._folder = self._logs / f"attempt-{attempt}"
        try:
            self._watch = FolderWatch(self._folder)
        except OSError as error:
            self._say(
                f"{self._folder}: cannot be watched ({error.strerror}): a component's *{SUFFIX} is not obeyed "
                "while this attempt runs; holdfast stop is"
            )
            return
        self._reactor.watch(self._watch.fileno(), self._ready)
        self._due = now

    def close(self) -> None:
        """Stop watching, because the attempt is being stopped or is over."""
        self._due = None
        if self._watch is not None:
            self._reactor.forget(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _ready(self, fd: int, now: float) -> None:
        if self._watch is not None and any(not name or name.endswith(SUFFIX) for name in self._watch.take()):
            self._due = self._due if self._due is not None else now + SETTLE_S

    def _next_wake(self) -> float | None:
        return self._due

    def _tick(self, now: float) -> list[ev.Event]:
        self._due = None
        try:
            names = sorted(path.name for path in self._folder.iterdir() if path.name.endswith(SUFFIX))[:MOST_FILES]
        except OSError:
            return []  # the folder was removed together with its stop files
        for name in names:
            if request := self._order(name, now):
                self.close()
                return [ev.StopRequested(request=request)]
        return []

    def _order(self, name: str, now: float) -> StopRequest | None:
        try:
            lines = end_of_file(self._folder / name, MOST_BYTES).decode(errors="replace").splitlines()
        except OSError as error:
            self._tell(name, f"{self._folder / name} cannot be read ({error.strerror}): it is not obeyed")
            return None
        requests = rare_parts.stop_file_lines
        said = requests.words_of(lines)
        order = requests.order_of(name.removesuffix(SUFFIX), said, self._catalogue or rare_parts.exit_rows.load())
        if order is None:
            if requests.asks_to_kill(said):
                self._tell(
                    name, f"{name} asks for a KILL without a reason: it is obeyed once it has an ERROR REASON line"
                )
            return None
        if order.trouble:
            self._tell(name, f"{name}: {order.trouble}; the stop is reported as {order.phrase}")
        return StopRequest(
            reason=order.reason,
            solution=order.solution,
            source=StopSource.COMPONENT,
            component=name,
            phrase=order.phrase,
            code=order.code,
            at=now,
        )

    def _tell(self, name: str, text: str) -> None:
        if (name, text) not in self._told:
            self._told.add((name, text))
            self._say(text)


def request_of(line: StopLine, catalogue: Catalogue | None, now: float) -> StopRequest:
    """Convert a request of `holdfast stop` to a stop request. Raises ValueError if its failure class or code is not
    allowed.
    """
    by_operator = rare_parts.stop_phrases.BY_OPERATOR
    phrase: str = by_operator
    code = None
    if line.phrase or line.code is not None:
        phrase, code = rare_parts.stop_phrases.choose(
            line.phrase, line.code, line.who, catalogue or rare_parts.exit_rows.load()
        )
    return StopRequest(
        reason=one_line(line.reason),
        solution=line.solution or (NOTHING_TO_REPAIR if phrase == by_operator else ""),
        phrase=phrase,
        code=code,
        who=one_line(line.who),
        at=now,
    )
