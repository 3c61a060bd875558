"""Maps times to x positions: an attempt's parts are as wide as they were long, but never too narrow to be seen.

A reader must see both an attempt of three days and the four seconds of its restart. So the axis is piecewise linear:
time always runs to the right, and a short part is drawn wider than it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

#: The fraction of the width that may go to parts that are drawn wider than they were.
_MOST_AT_LEAST = 0.4


class Scale:
    """Maps seconds since the epoch to x positions between `left` and `left + width`, and back.

    `borders`: times between which the scale is linear. `least`: the width of the shortest piece, in the unit of
    `width`.
    """

    def __init__(self, borders: Sequence[float], *, left: float, width: float, least: float = 9.0) -> None:
        times = sorted(set(borders))
        if len(times) < 2:
            first = times[0] if times else 0.0
            times = [first, first + 1.0]
        spans = [after - before for before, after in pairwise(times)]
        least = min(least, _MOST_AT_LEAST * width / len(spans))
        total = sum(spans)
        widths = [least + (width - least * len(spans)) * span / total for span in spans]
        places = [left]
        for each in widths:
            places.append(places[-1] + each)
        #: Pairs of (time, x position), both rising; the scale is linear between two of them.
        self.knots: tuple[tuple[float, float], ...] = tuple(zip(times, places, strict=True))
        self._times, self._places = times, places
        #: Whether some part is drawn more than twice as wide as it was.
        self.stretched = min(spans) / total * width < least / 2

    def place(self, at: float) -> float:
        """Return the x position of a time; a time outside is drawn at the edge."""
        return _between(self._times, self._places, at)

    def moment(self, place: float) -> float:
        """Return the time at an x position."""
        return _between(self._places, self._times, place)


def _between(source: Sequence[float], target: Sequence[float], value: float) -> float:
    if not value > source[0]:
        return target[0]
    if value >= source[-1]:
        return target[-1]
    at = bisect_right(source, value) - 1
    share = (value - source[at]) / (source[at + 1] - source[at])
    return target[at] + share * (target[at + 1] - target[at])
