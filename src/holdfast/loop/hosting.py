"""Whether a run hosts its workers' rendezvous store."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.loop.order import Launch
from holdfast.loop.supervisor import Supervisor

if TYPE_CHECKING:
    from holdfast.act.store.host import Store


def store_for(
    launch: Launch,
    supervisor: Supervisor,
    selector: selectors.BaseSelector,
    processes: Callable[[], list[int]],
    say: Callable[[str], None],
) -> Store | None:
    """The station that hosts the store, attached; None where it would outlive no one: a single worker."""
    if launch.spec.world_size < 2:
        return None
    from holdfast.act.store.host import Store  # no start of one worker needs it

    store = Store(launch.spec, launch.environment, launch.cwd, selector, processes, say)
    supervisor.attach(store, store)
    return store
