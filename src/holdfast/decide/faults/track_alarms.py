"""When which track wants to be looked at. Setting costs the same however many wait; so, nearly, does taking.

A heap of everything would be as slow as everything is large. Here only the alarms of the nearest second or so are in a
heap; the others lie in buckets, unordered, until their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from holdfast.decide.faults.fault_track import Track

#: (moment in milliseconds, device, code, their track): of one moment they go by name, not as they were set.
Alarm = tuple[int, str, str, Track]


#: A bucket holds 2**10 milliseconds.
_SHIFT = 10


class Alarms:
    """What is set stays until it is taken, or until `keep`: its track knows whether it is still wanted."""

    __slots__ = ("_buckets", "_edge", "_near", "_order", "size")

    def __init__(self) -> None:
        self.clear()

    def __iter__(self) -> Iterator[Alarm]:
        yield from self._near
        for bucket in self._buckets.values():
            yield from bucket

    def clear(self) -> None:
        self.size = 0
        self._near: list[Alarm] = []
        """A heap of what comes before `_edge`."""
        self._edge = -(1 << 62)
        self._buckets: dict[int, list[Alarm]] = {}
        self._order: list[int] = []
        """A heap of the buckets' numbers."""

    def put(self, moment: int, track: Track) -> None:
        self.size += 1
        alarm = moment, track.device.name, track.code.key, track
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
        """The earliest alarm, which stays; None where there is none."""
        if not self._near:
            if not self._order:
                return None
            number = heappop(self._order)
            self._edge = (number + 1) << _SHIFT
            self._near = self._buckets.pop(number)
            heapify(self._near)
        return self._near[0]

    def pop(self) -> None:
        """Take what `first` showed."""
        heappop(self._near)
        self.size -= 1

    def keep(self, wanted: Callable[[Alarm], bool]) -> None:
        """Drop every alarm that is no longer wanted."""
        kept = [alarm for alarm in self if wanted(alarm)]
        self.clear()
        for moment, *_, track in kept:
            self.put(moment, track)
