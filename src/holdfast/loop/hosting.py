"""Whether a run hosts its workers' rendezvous store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.loop.order import Launch

if TYPE_CHECKING:
    from holdfast.act.store.host import Store
    from holdfast.reactor import Reactor


def store_for(
    launch: Launch,
    reactor: Reactor,
    processes: Callable[[], list[int]],
    say: Callable[[str], None],
) -> Store | None:
    """What hosts the store; None where it would outlive no one: a single worker."""
    if launch.spec.world_size < 2:
        return None
    from holdfast.act.store.host import Store  # no start of one worker needs it

    store = Store(launch.spec, launch.environment, launch.cwd, reactor, processes, say)
    reactor.deadlines(store.next_wake, store.tick)
    return store
