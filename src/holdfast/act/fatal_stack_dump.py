"""Ends a Python process so that it writes its stacks first, for machines on which no other tool may read them.

This works with an unmodified script. PYTHONFAULTHANDLER=1, which holdfast sets for workers, enables faulthandler for
SIGSEGV, SIGFPE, SIGABRT, SIGBUS and SIGILL. It writes all threads' stacks to stderr, and then the signal kills the
process. (`faulthandler.register`, for a signal that a process survives, needs a line in the script.) As the dump kills
the process, SIGABRT is sent in place of the SIGTERM that would end it anyway. SIGABRT is the only one of the five
signals that means a requested abort.
"""

from __future__ import annotations

import os
import signal

from holdfast.act.linux import handlers


def request_stacks(pid: int, *, shielded: bool = False) -> bool:
    """Send SIGABRT in place of SIGTERM. Return False, without a signal, if SIGABRT would do harm.

    The process must catch SIGABRT. It must not catch SIGTERM, since it may then have work to save. It must not be
    stopped, since a stopped process handles the signal only when it continues. `shielded`: its SIGTERM handler is
    holdfast's `on_drain`, which saves nothing.
    """
    caught, state = handlers(pid)
    if state in ("T", "t") or signal.SIGABRT not in caught or (signal.SIGTERM in caught and not shielded):
        return False
    try:
        _without_core(pid)
        os.kill(pid, signal.SIGABRT)
    except (OSError, ValueError):
        return False  # it has ended, or may not be limited: the caller's SIGTERM meets the same error
    return True


def _without_core(pid: int) -> None:
    """Forbid a core file, which could be 100 GB. A limit of 1 byte also keeps the kernel from piping a core to a
    program."""
    import resource  # imported late: only a hang needs it

    hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
    resource.prlimit(pid, resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))
