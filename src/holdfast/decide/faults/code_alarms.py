"""Alarms of the fault engine. An alarm is the time at which the engine must check one code state (one fault code on one
device).

One heap of all alarms would be slow when there are many. So the heap has only the alarms of the next second or so, and
unordered buckets of 1.024 seconds have the others. The cost of an alarm therefore hardly grows with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from holdfast.decide.faults.code_state import CodeState

#: An alarm: (time in milliseconds, device, code, code state). Tuples sort by time, then by device and code.
Alarm = tuple[int, str, str, CodeState]


#: A bucket covers 2**10 milliseconds.
_SHIFT = 10


class Alarms:
    """A priority queue of alarms.

    An alarm stays until `pop` or `keep` removes it, even if the engine has set a newer alarm for its code state.
    """

    __slots__ = ("_buckets", "_edge", "_near", "_order", "size")

    def __init__(self) -> None:
        self.clear()

    def __iter__(self) -> Iterator[Alarm]:
        yield from self._near
        for bucket in self._buckets.values():
            yield from bucket

    def clear(self) -> None:
        self.size = 0
        #: The alarms before the time `_edge` (milliseconds), as a heap.
        self._near: list[Alarm] = []
        self._edge = -(1 << 62)
        self._buckets: dict[int, list[Alarm]] = {}
        #: The numbers of the non-empty buckets, as a heap.
        self._order: list[int] = []

    def put(self, moment: int, code_state: CodeState) -> None:
        self.size += 1
        alarm = moment, code_state.device.name, code_state.code.key, code_state
        if moment < self._edge:
            heappush(self._near, alarm)
            return
        number = moment >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [alarm]
            heappush(self._order, number)
        else:
            bucket.append(alarm)

    def first(self) -> Alarm | None:
        """Return the earliest alarm without removing it; None if there is none."""
        if not self._near:
            if not self._order:
                return None
            number = heappop(self._order)
            self._edge = (number + 1) << _SHIFT
            self._near = self._buckets.pop(number)
            heapify(self._near)
        return self._near[0]

    def pop(self) -> None:
        """Remove the alarm that `first` returned."""
        heappop(self._near)
        self.size -= 1

    def keep(self, wanted: Callable[[Alarm], bool]) -> None:
        """Drop every alarm for which `wanted` returns False."""
        kept = [alarm for alarm in self if wanted(alarm)]
        self.clear()
        for moment, *_, code_state in kept:
            self.put(moment, code_state)
