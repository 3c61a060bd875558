"""Raises this process's soft limit of open files for a job, and restores the user's limit for workers."""

from __future__ import annotations

import resource

#: The user's limits (soft, hard) before the soft limit was raised; None if it was not raised.
_of_the_user: tuple[int, int] | None = None


def make_room(needed: int) -> int:
    """Raise the soft limit to `needed`, or to the hard limit if that is lower. Return the resulting soft limit."""
    global _of_the_user
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed if soft == resource.RLIM_INFINITY else soft
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _of_the_user = soft, hard
    return wanted


def restore() -> None:
    """Restore the user's limit. A forked child calls this."""
    if _of_the_user is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _of_the_user)
