"""Prints a message when an attempt cannot end because processes of ended ranks are still running."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.act.leftovers import Leftovers
from holdfast.explain.causes.left_running import waits_for
from holdfast.explain.text.secret_filter import without_secrets

#: Seconds before the message is printed. Shorter waits are normal, for example while an output filter prints its last
#: lines.
AFTER_S = 1.0


class LeftoverNotice:
    """Prints at most one message for each attempt about leftover processes of its ended ranks. `say`: prints a
    message.
    """

    def __init__(self, leftovers: Leftovers, say: Callable[[str], None]) -> None:
        self._leftovers = leftovers
        self._say = say
        self._told = False

    def next_wake(self) -> float | None:
        since = self._leftovers.waits_since()
        if since is None:
            self._told = False
            return None
        return None if self._told else since + AFTER_S

    def tick(self, now: float) -> None:
        self._told = True
        if waiting := self._leftovers.waiting(now):
            self._say(waits_for(without_secrets(waiting), self._leftovers.wait_s))
