"""Kills helper processes and reaps them later, without blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.children import Child

if TYPE_CHECKING:
    from holdfast.reactor import Reactor


def reap_later(reactor: Reactor, child: Child) -> None:
    """Kill the child, and reap it once its pidfd is readable."""

    def reap(fd: int, now: float) -> None:
        reactor.forget(fd)
        child.reap()

    reactor.forget(child.pidfd)
    reactor.watch(child.pidfd, reap)
    child.kill()
