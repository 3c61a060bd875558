"""Ends a Python process so that it writes its stacks first: where no other tool may read them.

Which signal can an unmodified script take? PYTHONFAULTHANDLER=1 (the workers' environment has it) arms faulthandler for
SIGSEGV, SIGFPE, SIGABRT, SIGBUS and SIGILL. It writes all threads' stacks to stderr and then lets the signal kill the
process; `faulthandler.register` for a signal that a process survives needs a line in the script. So a stack costs the
process, and SIGABRT takes the place of the SIGTERM that would end it anyhow; and SIGABRT, not another of the five,
because only it means "asked to abort".
"""

from __future__ import annotations

import os
import signal

from holdfast.act.linux import handlers


def request_stacks(pid: int, *, shielded: bool = False) -> bool:
    """Send SIGABRT in place of SIGTERM. False, and no signal is sent, where that would do harm.

    The process must catch SIGABRT; it must not catch SIGTERM, or it has work to save; and it must not be stopped, for
    it would take the signal only when it continues. `shielded`: the handler of SIGTERM is holdfast's own `on_drain`.
    """
    caught, state = handlers(pid)
    if state in ("T", "t") or signal.SIGABRT not in caught or (signal.SIGTERM in caught and not shielded):
        return False
    try:
        _without_core(pid)
        os.kill(pid, signal.SIGABRT)
    except (OSError, ValueError):
        return False  # gone, or not ours to limit: SIGTERM then finds the same
    return True


def _without_core(pid: int) -> None:
    """Otherwise 100 GB of memory may be written as a core file. A limit of 1 byte also keeps the kernel from piping a
    core to a program."""
    import resource  # not needed before something hangs

    hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
    resource.prlimit(pid, resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))
