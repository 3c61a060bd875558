"""A rank waits for a child of its own, and the child burns CPU: is it at work, or in a loop that does not end? Pure.

No stack of the child is taken. What tells is what a child at work does sooner or later: it reads or writes, it starts
processes, it uses more than one core, or it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.model.evidence import RankSnapshot, ThreadState

MOST_CORES = 1.2
"""One thread that never waits uses one, and its parent next to nothing."""
_TICK_S = 0.01
"""What the kernel's counts are exact to."""
STILL_BYTES_PER_S = 1024
"""The whole tree of the rank; a parent that looks at a pipe once a second moves less."""
_AT_WORK = frozenset(
    {
        "as", "cc1", "cc1plus", "cicc", "clang", "clang++", "collect2", "cudafe++", "fatbinary", "gzip", "hipcc", "ld",
        "ld.gold", "ld.lld", "lld", "lto1", "lto-wrapper", "nvcc", "nvlink", "pigz", "ptxas", "rustc", "tar", "unzip",
        "xz", "zstd",
    }
)  # fmt: skip
"""Names of programs that compute for minutes without a byte: one that waits for them is not hung."""


def looping_child(shots: Sequence[RankSnapshot]) -> ThreadState | None:
    """The one child of a rank that may loop for ever, at the last look; None: its children are at work, or idle.

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
    """Each descendant's main thread, by the descendant's number."""
    return {
        thread.pid: thread for thread in shot.threads if thread.pid not in (0, shot.pid) and thread.tid == thread.pid
    }
