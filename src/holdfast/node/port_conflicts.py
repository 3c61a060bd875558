"""Finds the rank that held a port which another rank wanted. It looks at the death, before all ranks are stopped."""

from __future__ import annotations

import os

from holdfast.act.linux import descendants

_SIGN = "ddress already in use"
#: The bytes of a dead worker's last output that are searched.
TAIL_BYTES = 4096


class TakenPorts:
    """Looks at one machine's workers, one attempt after another."""

    def __init__(self) -> None:
        self._held: tuple[int, str] | None = None

    def died(self, words: str) -> None:
        """Look up the port holder if a dead worker's last lines report a taken port.

        It inspects only descendants of this process, because the stop of all ranks may have to wait for it.
        """
        if _SIGN not in words or self._held is not None:
            return
        from holdfast.node.missing_resources import port_in  # imported late, because few deaths need it
        from holdfast.observe.checks import proc_files
        from holdfast.observe.checks.port_holder import about, find

        port = port_in(words)
        pid = find(port, sorted(descendants(os.getpid()))) if port is not None else None
        if port is None or pid is None:
            return
        # For a worker forked from a warm process, /proc shows that process's environment.
        rank = proc_files.variable(pid, "RANK")
        who = f"rank {rank} of this job" if rank.isdigit() else f"{proc_files.command(pid)}, which this job started"
        self._held = port, f"{who} (pid {pid}{about(pid)})"

    def take(self) -> tuple[int, str] | None:
        """Return the port that the first such death wanted and its holder, and forget them for the next attempt."""
        held, self._held = self._held, None
        return held
