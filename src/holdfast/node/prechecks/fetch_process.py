"""Runs the process that fetches a job's prerequisites, for a node or for `holdfast prepare`."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast import children
from holdfast.catalogue.exit_rows import load
from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.import_path import module_command
from holdfast.launch.fetch_request import data_directory, order_of
from holdfast.model.check_results import CheckLine
from holdfast.model.codec import encode
from holdfast.model.events import Event
from holdfast.model.fetch_messages import (
    FetchAgain,
    FetchBegan,
    FetchDone,
    FetchFailed,
    FetchMoved,
    FetchOrder,
    FetchTrouble,
    FetchWaits,
    FetchWord,
)
from holdfast.model.fetch_progress import bar, done, fetch_sentence, progress
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed, json_as

MOST_LINE_BYTES = 1 << 20
#: The process is killed this many seconds after its time limit. Normally it exits in time and reports why.
LATE_S = 1.0
TAIL_BYTES = 2048


class Fetched(Noun, frozen=True, kw_only=True):
    """The result of a fetch of prerequisites. `trouble`: None if every prerequisite is complete on this node."""

    trouble: FetchTrouble | None = None
    #: One line with the state of each prerequisite.
    lines: tuple[CheckLine, ...] = ()


class FetchRun:
    """One fetching process. Raises OSError if the process cannot be started.

    `order`: the prerequisites to fetch. `environment`: the process's variables. `heard`: called with each message of
    the process. `ended`: called once at its end. Both return the events that follow.
    """

    def __init__(
        self,
        order: FetchOrder,
        environment: Mapping[str, str],
        reactor: Reactor,
        heard: Callable[[FetchWord, float], list[Event]],
        ended: Callable[[Fetched, float], list[Event]],
    ) -> None:
        self._order = order
        self._reactor = reactor
        self._heard, self._ended = heard, ended
        self._lines = {thing.name: CheckLine(name=name_of(thing.name), state="waiting") for thing in order.things}
        self._trouble: FetchTrouble | None = None
        self._rest = b""
        self._tail = b""
        self._began = reactor.now()
        asking, self._asking = os.pipe()
        self._words, writing = os.pipe()
        self._errors, wrong = os.pipe()
        mine = (asking, self._asking, self._words, writing, self._errors, wrong)
        try:
            # With -P, modules in the user's working directory do not replace holdfast's.
            self._child: children.Child | None = children.start(
                module_command("holdfast.fetch"),
                output=writing,
                errors=wrong,
                given=asking,
                env=dict(environment),
            )
        except OSError:
            for fd in mine:
                os.close(fd)
            raise
        for fd in (asking, writing, wrong):
            os.close(fd)
        for fd in (self._asking, self._words, self._errors):
            os.set_blocking(fd, False)
        self._data = encode(order)
        reactor.watch(self._asking, self._ask, writable=True)
        reactor.watch(self._words, self._listen)
        reactor.watch(self._errors, self._complain)
        reactor.watch(self._child.pidfd, self._over)
        self._late = reactor.at(self._began + order.limit_s + LATE_S, self._too_late)

    def lines(self) -> tuple[CheckLine, ...]:
        """Return one line for the present state of each prerequisite."""
        return tuple(self._lines.values())

    def close(self) -> None:
        """Kill the process and all its children. `ended` is not called any more."""
        if self._child is None:
            return
        child, self._child = self._child, None
        self._release(child)
        child.end()

    # ------------------------------------------------------------------------------------------ private methods

    def _release(self, child: children.Child) -> None:
        self._late.close()
        self._reactor.forget(child.pidfd)
        for fd in (self._asking, self._words, self._errors):
            self._shut(fd)

    def _shut(self, fd: int) -> None:
        if fd >= 0 and self._reactor.watched(fd) is not None:
            self._reactor.forget(fd)
            os.close(fd)

    def _ask(self, fd: int, now: float) -> None:
        try:
            self._data = self._data[os.write(fd, self._data) :]
        except BrokenPipeError:
            self._data = b""  # nothing more to read: the process has ended, and its exit status shows why
        if not self._data:
            self._shut(fd)

    def _complain(self, fd: int, now: float) -> None:
        data = os.read(fd, 1 << 16)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if not data:
            self._shut(fd)

    def _listen(self, fd: int, now: float) -> list[Event]:
        data = os.read(fd, 1 << 16)
        if not data:
            self._shut(fd)
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MOST_LINE_BYTES]
        found: list[Event] = []
        for line in lines:
            try:
                word: FetchWord = json_as(line, FetchWord, most_bytes=MOST_LINE_BYTES)
            except Malformed:
                continue  # skip this line: it is no message, but output of a library
            self._take(word)
            found += self._heard(word, now)
        return found

    def _take(self, word: FetchWord) -> None:
        match word:
            case FetchBegan():
                self._note(word.name, "running", f"{word.uri} to {word.into}")
            case FetchMoved():
                self._note(word.name, "running", progress(word))
            case FetchWaits():
                self._note(word.name, "running", fetch_sentence(word).partition(": ")[2])
            case FetchAgain():
                why = f"{word.trouble.phrase}: {word.trouble.words}"
                self._note(word.name, "paused until the next try", why, tries=word.tried)
            case FetchDone():
                self._note(word.name, "passed", done(word), tries=word.tries, took_s=word.took_s)
            case FetchFailed():
                self._trouble = word.trouble
                why = f"{word.trouble.phrase}: {word.trouble.words}"
                self._note(word.trouble.name, "failed", why, tries=word.tries)

    def _note(self, name: str, state: str, message: str, *, tries: int = 0, took_s: float = 0.0) -> None:
        before = self._lines.get(name)
        if before is not None:
            tries = tries or before.tries
            self._lines[name] = CheckLine(
                name=before.name, state=state, message=message, tries=tries, took_s=round(took_s, 3)
            )

    def _over(self, fd: int, now: float) -> list[Event]:
        child, self._child = self._child, None
        if child is None:
            return []
        found: list[Event] = []
        for pipe in (self._words, self._errors):
            # Read the last messages, which the pipe keeps after the process's exit.
            while self._reactor.watched(pipe) is not None and _readable(pipe):
                if pipe == self._words:
                    found += self._listen(pipe, now)
                else:
                    self._complain(pipe, now)
        self._release(child)
        status = child.reap()
        if status != 0 and self._trouble is None:
            # Do not blame the download's source, because the process would have reported that before its exit.
            self._fail(Phrase.UNEXPLAINED, self._how(status))
        return [*found, *self._finish(now)]

    def _how(self, status: int | None) -> str:
        words = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        what = "vanished" if status is None else f"died of signal {-status}" if status < 0 else f"ended with {status}"
        return f"the fetching process {what}" + (f": {words}" if words else "")

    def _too_late(self, now: float) -> list[Event]:
        self.close()
        self._fail(Phrase.DOWNLOAD_TIMED_OUT, f"it was not there after {self._order.limit_s:g} s, and was stopped")
        return self._finish(now)

    def _fail(self, phrase: Phrase, words: str) -> None:
        """Record a failure that the fetching process could not report."""
        name = next((thing.name for thing in self._order.things if self._lines[thing.name].state != "passed"), "(none)")
        self._take(FetchFailed(trouble=FetchTrouble(name=name, phrase=phrase, words=words)))

    def _finish(self, now: float) -> list[Event]:
        lines = tuple(
            line if line.state in ("passed", "failed") else CheckLine(name=line.name, state="not run")
            for line in self._lines.values()
        )
        return self._ended(Fetched(trouble=self._trouble, lines=lines), now)


def name_of(thing: str) -> str:
    """Return the name of a prerequisite in a list of checks."""
    return f"prerequisite {thing}"


def _readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


SAID_EVERY_S = 10.0


class NotFetched(HoldfastError):
    """Raised if a prerequisite could not be fetched. Nothing of it is used."""

    def __init__(self, trouble: FetchTrouble) -> None:
        row = load().row(trouble.phrase)
        self.trouble = trouble
        self.phrase = trouble.phrase
        self.solution = trouble.solution or row.solution
        self.exit_status = row.code
        super().__init__(f"prerequisite {trouble.name}: {trouble.phrase}: {trouble.words}", hint=self.solution)


def fetch_here(
    spec: JobSpec,
    exchange: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    draw: Callable[[str], None] | None = None,
    width: int = 80,
) -> None:
    """Fetch all prerequisites of a job into the exchange directory. Raises NotFetched, BadUsage, OSError.

    `say`: prints a line. `draw`: redraws one terminal line of `width` columns; None: a line is printed every 10 s.
    """
    reactor = Reactor(Clock().now)
    order = order_of(
        spec,
        environment,
        node="",
        limit_s=spec.timers.fetch_s,
        directory=data_directory(environment, exchange),
        who=f"holdfast prepare for job {spec.name}",
    )
    end: list[Fetched] = []
    said_at = reactor.now()

    def heard(word: FetchWord, now: float) -> list[Event]:
        nonlocal said_at
        if not isinstance(word, FetchMoved):
            if draw is not None:
                draw("")
            if not isinstance(word, FetchFailed):  # do not print the failure here, because the command prints it
                say(fetch_sentence(word))
        elif draw is not None:
            draw(bar(word, width))
        elif now >= said_at + SAID_EVERY_S:
            said_at = now
            say(fetch_sentence(word))
        return []

    def ended(fetched: Fetched, now: float) -> list[Event]:
        end.append(fetched)
        return []

    run = FetchRun(order, environment, reactor, heard, ended)
    try:
        while not end:
            reactor.wait()
    finally:
        run.close()
        reactor.close()
    if (trouble := end[0].trouble) is not None:
        raise NotFetched(trouble)
