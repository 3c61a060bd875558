"""Watches the outer process, which started this task. The job is stopped when it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.reactor import Reactor

NONE = "none"
_HINT = "holdfast run --outer PID|FIFO|none …"


def outer_of(text: str | None, origin: str) -> str | None:
    """Validate the value of `--outer`: the process whose end stops the job. Return None if the user named none.

    `origin`: the option or variable, for messages. Raises `BadUsage`. `text`: the value as typed; None: not set.
    """
    if text in (None, "", NONE):
        return None
    assert text is not None
    if text.isascii() and text.isdigit():
        if not Path("/proc", text).exists() or text == "0":
            raise BadUsage(f"{origin}: there is no process {text}", hint=_HINT)
        return text
    if not Path(text).is_fifo():
        raise BadUsage(f"{origin} {text}: expected the number of a process, a FIFO, or none", hint=_HINT)
    return str(Path(text).absolute())


class OuterWatch:
    """Stops the job when the outer process ends. `outer`: the process's pid, or the path of a FIFO that the process
    holds open for writing.
    """

    def __init__(self, outer: str, reactor: Reactor, say: Callable[[str], None]) -> None:
        self._who = _who(outer)
        try:
            fd = os.pidfd_open(int(outer)) if outer.isdigit() else os.open(outer, os.O_RDONLY | os.O_NONBLOCK)
        except ProcessLookupError:
            reactor.at(reactor.now(), self._gone)
            return
        except OSError as error:
            say(f"{self._who} cannot be watched ({error.strerror}): the job does not end with it")
            return
        self._watch = reactor.watch(fd, self._ready)
        self._reads = not outer.isdigit()

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        if self._reads and os.read(fd, 4096):
            return []
        self._watch.close()
        os.close(fd)
        return self._gone(now)

    def _gone(self, now: float) -> list[ev.Event]:
        request = StopRequest(
            reason=f"{self._who}, by which this task was started, is gone",
            solution="Nothing to repair in the job: look why that process ended (its own log, the kernel's log).",
            source=StopSource.SUPERVISOR,
            at=now,
        )
        return [ev.StopRequested(request=request)]


def _who(outer: str) -> str:
    if not outer.isdigit():
        return f"the writer of {outer}"
    try:
        name = Path("/proc", outer, "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = ""
    return f"the process {outer} ({name})" if name else f"the process {outer}"
