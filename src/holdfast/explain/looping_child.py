"""Decides whether a child process that uses the CPU, and for which a rank waits, works or loops for ever. Pure.

The child's stack is not known. A child that works does one of these sooner or later: it reads or writes, starts
processes, uses more than one core, or exits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.model.evidence import RankSnapshot, ThreadState

#: Limit on the CPU use of the whole tree, in cores: a looping thread uses one core, and its parent almost none.
MOST_CORES = 1.2
#: Resolution of the kernel's CPU times, in seconds.
_TICK_S = 0.01
#: Limit on input and output of the rank's whole tree, in bytes per second. A parent that polls a pipe once a second
#: stays below it.
STILL_BYTES_PER_S = 1024
#: Programs that may compute for minutes without reading or writing: a rank that waits for one does not hang.
_AT_WORK = frozenset(
    {
        "as", "cc1", "cc1plus", "cicc", "clang", "clang++", "collect2", "cudafe++", "fatbinary", "gzip", "hipcc", "ld",
        "ld.gold", "ld.lld", "lld", "lto1", "lto-wrapper", "nvcc", "nvlink", "pigz", "ptxas", "rustc", "tar", "unzip",
        "xz", "zstd",
    }
)  # fmt: skip


def looping_child(shots: Sequence[RankSnapshot]) -> ThreadState | None:
    """Return the child of a rank that may loop for ever, from the last look; None if its children work or are idle.

    shots: the rank's snapshots in time order.
    """
    children = [_children(shot) for shot in shots]
    if len(shots) < 2 or not children[-1] or len({frozenset(one) for one in children}) > 1:
        return None
    span_s = shots[-1].at - shots[0].at
    if span_s <= 0 or (shots[-1].io_bytes - shots[0].io_bytes) / span_s > STILL_BYTES_PER_S:
        return None
    busy = [pid for pid in children[-1] if all(one[pid].state == "R" for one in children)]
    if len(busy) != 1 or children[-1][busy[0]].name.partition(" (")[0] in _AT_WORK:
        return None
    for (before, was), (after, now) in pairwise(zip(shots, children, strict=True)):
        # On a busy machine a looping child gets less than a core, but it uses some CPU time in every interval.
        own_s, tree_s = now[busy[0]].cpu_s - was[busy[0]].cpu_s, after.cpu_s - before.cpu_s
        if not 0 < own_s <= tree_s + _TICK_S <= MOST_CORES * (after.at - before.at) + 2 * _TICK_S:
            return None
    return children[-1][busy[0]]


def _children(shot: RankSnapshot) -> dict[int, ThreadState]:
    """Return the main thread of each descendant by process id."""
    return {
        thread.pid: thread for thread in shot.threads if thread.pid not in (0, shot.pid) and thread.tid == thread.pid
    }
