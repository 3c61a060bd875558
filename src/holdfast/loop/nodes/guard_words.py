"""What the guard of a node says to one of its children."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.act.guard import WORD
from holdfast.act.wards import OVER
from holdfast.reactor import Reactor, Turn

if TYPE_CHECKING:
    from holdfast.model.events import Event
    from holdfast.reactor import News

_WORDS = 64


class GuardWords:
    """The child's end of its pipe.

    `heard(number, typed, now)`: the guard got a signal. `over(now)`: the other child has ended by itself.
    `gone(now)`: the guard is dead, and so must everything be.
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
        self._watch = reactor.watch(fd, self._ready, turn=Turn.GUARD)

    def _ready(self, fd: int, now: float) -> News:
        told = os.read(fd, _WORDS * WORD)
        if not told:
            self._watch.close()
            return self._gone(now)
        events: list[Event] = []
        for at in range(0, len(told), WORD):
            word = told[at : at + WORD]
            news = self._over(now) if word == OVER else self._heard(word[0], bool(word[1]), now)
            events += news or ()
        return events
