"""Which rank held a port that another rank asked for: looked up at the death, before all ranks are stopped."""

from __future__ import annotations

import os

_SIGN = "ddress already in use"
#: How much of a dead worker's last output is searched.
TAIL_BYTES = 4096


class TakenPorts:
    """Looks at one machine's workers, one attempt after the other."""

    def __init__(self) -> None:
        self._held: tuple[int, str] | None = None

    def died(self, words: str) -> None:
        """A worker has ended with these last lines.

        It looks only at the descriptors of this process's own descendants: the stop of all ranks may have to wait for
        it.
        """
        if _SIGN not in words or self._held is not None:
            return
        from holdfast.act.linux import descendants
        from holdfast.node.missing_resources import port_in  # few deaths ask for it
        from holdfast.observe.checks import proc_files
        from holdfast.observe.checks.port_holder import about, find

        port = port_in(words)
        pid = find(port, sorted(descendants(os.getpid()))) if port is not None else None
        if port is None or pid is None:
            return
        # A worker forked from a process with its imports done has the environment of that process.
        rank = proc_files.variable(pid, "RANK")
        who = f"rank {rank} of this job" if rank.isdigit() else f"{proc_files.command(pid)}, which this job started"
        self._held = port, f"{who} (pid {pid}{about(pid)})"

    def take(self) -> tuple[int, str] | None:
        """The port that the first such death asked for, and the rank that held it; then forgotten, for the next
        attempt."""
        held, self._held = self._held, None
        return held
