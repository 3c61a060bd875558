"""Writes the file of `--metrics-file`. A helper process writes it, so that a slow disk does not delay the owner.

Only one helper runs at a time, with a time limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import children
from holdfast.import_path import module_command

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News, Reactor

#: Minimum seconds from one start of the helper process to the next.
LEAST_S = 15.0
#: The shortest time between two starts of the helper process, as a multiple of the last helper's run time. Even a long
#: history then costs at most a twentieth of a core.
LOAD = 20.0
#: The metrics file is written again after this many seconds even without an event, because step counts change without
#: events.
FRESH_S = 60.0
LIMIT_S = 60.0
#: Time limit of the last helper process at the end of a run, in seconds.
LAST_S = 5.0
_WORD_BYTES = 4096


class MetricsFile:
    """Writes the metrics file of one run.

    `home`: the state directory with the journals to count. `path`: the file. `say`: prints a message.
    `unsaved_bytes()`: the bytes of this run's journal that are only in memory.
    """

    def __init__(
        self,
        home: Path,
        path: Path,
        reactor: Reactor,
        say: Callable[[str], None],
        unsaved_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._unsaved_bytes = unsaved_bytes
        self._home = home
        self._path = path
        self._reactor = reactor
        self._say = say
        self._child: children.Child | None = None
        self._words = -1
        self._began = 0.0
        self._next_at = 0.0
        self._wanted = False
        self._moment: DueCall | None = None
        self._last = False
        self._said = ""

    def changed(self) -> None:
        """Write the metrics file soon, because the metrics have changed."""
        self._wanted = True
        if self._child is None:
            self._at(max(self._reactor.now(), self._next_at))

    def finish(self, take: Callable[[News], None]) -> None:
        """Write the metrics file once more after the job's end, and wait a limited time for the helper process. `take`:
        handles events meanwhile.
        """
        until = self._reactor.now() + LAST_S
        self._wanted = self._last = True
        self._reactor.at(until, lambda now: None)
        if self._child is None:
            self._begin(self._reactor.now())
        while (self._child is not None or self._wanted) and self._reactor.now() < until:
            self._reactor.wait(take)
        if self._child is not None:
            self._trouble(f"it took longer than {LAST_S:g} s")
        self.close()

    def close(self) -> None:
        if self._moment is not None:
            self._moment.close()
            self._moment = None
        if self._child is not None:
            child = self._release()
            # Do not wait for the helper, because its disk access may hang. The guard kills it after the job.
            child.end(wait_s=0.0)

    # ------------------------------------------------------------------------------------------ private methods

    def _at(self, when: float) -> None:
        if self._moment is not None:
            self._moment.close()
        self._moment = self._reactor.at(when, self._begin)

    def _begin(self, now: float) -> None:
        self._moment = None
        if self._child is not None:
            self._trouble(f"it took longer than {LIMIT_S:g} s")
            self._release().end(wait_s=0.0)
        self._wanted = False
        self._began = now
        words, writing = os.pipe()
        os.set_blocking(words, False)
        # The helper runs in the user's working directory. With -P it does not import the user's modules in place of
        # ours.
        paths = (str(self._home), str(self._path))
        command = module_command("holdfast.metrics", *paths, str(self._unsaved_bytes()))
        try:
            self._child = children.start(command, output=writing)
        except OSError as error:
            os.close(words)
            self._trouble(error.strerror or str(error))
            self._rest(now)
            return
        finally:
            os.close(writing)
        self._words = words
        self._reactor.watch(self._child.pidfd, self._ended)
        self._at(now + LIMIT_S)

    def _ended(self, fd: int, now: float) -> None:
        try:
            told = os.read(self._words, _WORD_BYTES).decode(errors="replace").strip()
        except BlockingIOError:
            told = ""
        status = self._release().reap()
        if status:
            self._trouble(told.partition("\n")[0] or f"its writer ended with status {status}")
        else:
            self._said = ""
        self._rest(now)

    def _rest(self, now: float) -> None:
        """Schedule the next start of the helper process."""
        took = now - self._began
        self._next_at = self._began + max(LEAST_S, LOAD * took)
        if not self._last:
            self._at(self._next_at if self._wanted else max(self._next_at, now + FRESH_S))
        elif self._wanted:
            self._begin(now)

    def _release(self) -> children.Child:
        assert self._child is not None
        child, self._child = self._child, None
        self._reactor.forget(child.pidfd)
        os.close(self._words)
        return child

    def _trouble(self, why: str) -> None:
        """Print why the metrics file was not written, unless that was the last message too."""
        if why != self._said:
            self._said = why
            self._say(f"{self._path} (--metrics-file): not written: {why}; the job goes on")
