"""Reads the messages that a node's guard sends to its child processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act.guard import WORD
from holdfast.act.guarded_children import OVER
from holdfast.model import events as ev
from holdfast.model.evidence import StopSource
from holdfast.reactor import CallbackPriority, Reactor

if TYPE_CHECKING:
    from holdfast.reactor import News

_WORDS = 64


def from_node(event: ev.Event, node: str) -> ev.Event:
    """Return the event to send to the owner.

    Add the node's name to the reason of a stop request that comes from a signal to this node's run.
    """
    if isinstance(event, ev.StopRequested) and event.request.source is StopSource.SIGNAL:
        request = event.request
        return replace(event, request=replace(request, reason=f"{node}: {request.reason}"))
    return event


class GuardWords:
    """The child's end of the pipe from its guard.

    heard: called as `heard(number, typed, now)` when the guard has received signal `number`. `typed`: whether the
        signal was typed at a terminal.
    over: called as `over(now)` when the other child of the guard has ended by itself.
    gone: called as `gone(now)` when the guard has died. Then this child must end all its processes.
    """

    def __init__(
        self,
        fd: int,
        reactor: Reactor,
        *,
        heard: Callable[[int, bool, float], News],
        over: Callable[[float], News],
        gone: Callable[[float], News],
    ) -> None:
        self._heard = heard
        self._over = over
        self._gone = gone
        self._watch = reactor.watch(fd, self._ready, turn=CallbackPriority.GUARD)

    def _ready(self, fd: int, now: float) -> News:
        told = os.read(fd, _WORDS * WORD)
        if not told:
            self._watch.close()
            return self._gone(now)
        events: list[ev.Event] = []
        for at in range(0, len(told), WORD):
            word = told[at : at + WORD]
            news = self._over(now) if word == OVER else self._heard(word[0], bool(word[1]), now)
            events += news or ()
        return events
