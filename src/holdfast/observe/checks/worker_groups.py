"""Runs worker groups on this machine, for checks that put load on it. Each group is a forked process on its own
core.
"""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.children import Child
from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_leniently


class GroupAnswer(Noun, frozen=True, kw_only=True):
    """The result of one worker group."""

    index: int
    value: Any = None
    #: Why there is no value (the group failed, died or took too long); "" if there is one.
    error: str = ""


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pin(index: int) -> None:
    """Bind this process to the group's core."""
    usable = cores()
    os.sched_setaffinity(0, {usable[index % len(usable)]})


def run_groups(indices: Sequence[int], work: Callable[[int], Any], limit_s: float) -> list[GroupAnswer]:
    """Run `work(index)` for all indices in parallel. Kill each group without a result after `limit_s` seconds."""
    waiting: dict[int, tuple[int, Child, bytearray]] = {}
    poll = select.poll()
    for index in indices:
        inward, outward = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(index, work, outward)
        os.close(outward)
        waiting[inward] = (index, Child(pid), bytearray())
        poll.register(inward, select.POLLIN)
    answers: dict[int, GroupAnswer] = {}
    ends = time.monotonic() + limit_s
    while waiting:
        ready = poll.poll(max(0.0, (ends - time.monotonic()) * 1000))
        if not ready:
            break
        for fd, _ in ready:
            index, child, data = waiting[fd]
            block = os.read(fd, 1 << 16)
            data += block
            if not block:
                del waiting[fd]
                poll.unregister(fd)
                os.close(fd)
                answers[index] = _answer(index, data, child.reap() or 0)
    for fd, (index, child, _) in waiting.items():
        child.end()
        os.close(fd)
        answers[index] = GroupAnswer(index=index, error=f"gave no answer within {limit_s:g} s")
    return [answers[index] for index in indices]


def _child(index: int, work: Callable[[int], Any], outward: int) -> None:
    status = 1
    try:
        pin(index)
        try:
            said = {"value": work(index)}
        except Exception as error:  # report any exception as the group's failure
            said = {"error": f"{type(error).__name__}: {error}" if str(error) else type(error).__name__}
        data = json.dumps(said).encode()
        while data:
            data = data[os.write(outward, data) :]
        status = 0
    finally:
        os._exit(status)


def _answer(index: int, data: bytearray, status: int) -> GroupAnswer:
    try:
        said = json_leniently(bytes(data))
        if not isinstance(said, dict):
            raise Malformed("an object was expected")
        return GroupAnswer(index=index, value=said.get("value"), error=str(said.get("error", "")))
    except Malformed:
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return GroupAnswer(index=index, error=f"died of {how}")


def slow_ones(times: dict[int, float], factor: float) -> tuple[float, dict[int, float]]:
    """Return the lower median of the times. Also return index → time divided by the median, for each group slower than
    `factor` times the median.
    """
    median = statistics.median_low(times.values())
    return median, {index: time / median for index, time in times.items() if median > 0 and time > factor * median}


def percent(values: Sequence[float]) -> float:
    """Return how much the slowest value exceeds the fastest, in percent."""
    return 100 * (max(values) / min(values) - 1) if values and min(values) > 0 else 0.0
