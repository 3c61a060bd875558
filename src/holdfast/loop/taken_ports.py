"""Which rank of the job held a port that another one asked for: seen at the death, for then all ranks are stopped."""

from __future__ import annotations

import os

_SIGN = "ddress already in use"
TAIL_BYTES = 4096
"""So much of a dead worker's last words is looked through."""


class TakenPorts:
    """Of one machine's workers, in one attempt after the other."""

    def __init__(self) -> None:
        self._held: tuple[int, str] | None = None

    def died(self, words: str) -> None:
        """A worker has ended with these last words.

        It costs a look at the descriptors of this process's own descendants, and of no other process: what follows may
        be the stop of all ranks, and it waits.
        """
        if _SIGN not in words or self._held is not None:
            return
        from holdfast.act.linux import descendants
        from holdfast.loop.surroundings import port_in  # few deaths ask for it
        from holdfast.observe.checks import proc
        from holdfast.observe.checks.port_holder import about, find

        port = port_in(words)
        pid = find(port, sorted(descendants(os.getpid()))) if port is not None else None
        if port is None or pid is None:
            return
        # A worker that was forked with its imports done has the environment of what forked it.
        rank = proc.variable(pid, "RANK")
        who = f"rank {rank} of this job" if rank.isdigit() else f"{proc.command(pid)}, which this job started"
        self._held = port, f"{who} (pid {pid}{about(pid)})"

    def take(self) -> tuple[int, str] | None:
        """A port that was held at the first death for one, and by which rank; then the next attempt begins anew."""
        held, self._held = self._held, None
        return held
