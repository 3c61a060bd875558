"""Helpers that are needed no more, from their kill until they are reaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.children import Child

if TYPE_CHECKING:
    from holdfast.reactor import Reactor


def reap_later(reactor: Reactor, child: Child) -> None:
    """Kill it; it is reaped when its pidfd is readable, and from then on forgotten."""

    def reap(fd: int, now: float) -> None:
        reactor.forget(fd)
        child.reap()

    reactor.forget(child.pidfd)
    reactor.watch(child.pidfd, reap)
    child.kill()
