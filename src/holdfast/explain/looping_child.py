"""A rank waits for a child process, and the child burns CPU: decides whether the child works, or loops for ever. Pure.

The module sees no stack of the child. A child at work does one of these sooner or later: it reads or writes, it starts
processes, it uses more than one core, or it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.model.evidence import RankSnapshot, ThreadState

#: CPU share. One thread that never waits uses one core, and its parent uses almost none.
MOST_CORES = 1.2
#: Seconds of CPU time to which the kernel's counts are exact.
_TICK_S = 0.01
#: Bytes per second, for the whole tree of the rank; a parent that looks at a pipe once a second moves fewer.
STILL_BYTES_PER_S = 1024
#: Programs that compute for minutes without reading or writing a byte: a rank that waits for one is not hung.
_AT_WORK = frozenset(
    {
        "as", "cc1", "cc1plus", "cicc", "clang", "clang++", "collect2", "cudafe++", "fatbinary", "gzip", "hipcc", "ld",
        "ld.gold", "ld.lld", "lld", "lto1", "lto-wrapper", "nvcc", "nvlink", "pigz", "ptxas", "rustc", "tar", "unzip",
        "xz", "zstd",
    }
)  # fmt: skip


def looping_child(shots: Sequence[RankSnapshot]) -> ThreadState | None:
    """The one child of a rank that may loop for ever, at the last look; None where its children work or are idle.

    `shots`: the rank's looks in time order.
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
        # On a crowded machine it gets less than a core, and is runnable all the same.
        own_s, tree_s = now[busy[0]].cpu_s - was[busy[0]].cpu_s, after.cpu_s - before.cpu_s
        if not 0 < own_s <= tree_s + _TICK_S <= MOST_CORES * (after.at - before.at) + 2 * _TICK_S:
            return None
    return children[-1][busy[0]]


def _children(shot: RankSnapshot) -> dict[int, ThreadState]:
    """Each descendant's main thread, by the descendant's process id."""
    return {
        thread.pid: thread for thread in shot.threads if thread.pid not in (0, shot.pid) and thread.tid == thread.pid
    }
