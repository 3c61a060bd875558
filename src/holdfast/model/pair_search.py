"""Finds bad nodes by tests of pairs of nodes: it chooses the pairs, and names the bad nodes. Pure.

This is DLRover's node check in general form. Pairs are tested in waves. In the first wave every node is tested with a
neighbour. If the pair works, both nodes are cleared (known as good). In later waves each remaining node (a suspect) is
tested with a cleared node, so that a failure shows which node is bad. A suspect that works is cleared too, and helps to
test the rest. The search names exactly the bad nodes if a pair of good nodes was tested, if good nodes always work, and
if bad nodes never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Pair = tuple[int, int]


class PairSearch:
    """The search for bad nodes among the nodes 0…count-1. Call `next_wave`, test its pairs, and call `answer` for each,
    until a wave is empty.

    An answer is the pair's time in seconds; None: the exchange failed, was wrong or took too long. A pair is slow if it
    takes `slow_factor` times the first quartile of all pairs. A median would be too high: if a third of the nodes are
    bad, two thirds of the first wave's pairs may contain one.
    """

    def __init__(self, count: int, *, slow_factor: float = 3.0, slack_s: float = 0.0) -> None:
        self.count = count
        self.slow_factor = slow_factor
        #: Seconds by which a good pair may exceed the limit, because a busy machine may delay a process that long.
        self.slack_s = slack_s
        self.times: dict[Pair, float | None] = {}
        self.cleared: set[int] = set()
        self.bad: set[int] = set()
        self._wave = 0
        #: The cached `reference_s`, in a tuple; None: it must be computed again.
        self._reference: tuple[float | None] | None = None

    @property
    def suspects(self) -> list[int]:
        """The nodes that are neither cleared (known as good) nor named as bad. After the last wave they stay
        undecided.
        """
        return [node for node in range(self.count) if node not in self.cleared and node not in self.bad]

    @property
    def links(self) -> list[Pair]:
        """The pairs that do not work although both nodes work with others. The link between them is bad."""
        return [pair for pair in self.times if not self.works(pair) and self.cleared.issuperset(pair)]

    @property
    def reference_s(self) -> float | None:
        """The time of a good pair in seconds: the first quartile of all pairs that did not fail; None: all failed."""
        if self._reference is None:
            worked = sorted(time for time in self.times.values() if time is not None)
            self._reference = (worked[(len(worked) - 1) // 4] if worked else None,)
        return self._reference[0]

    def answer(self, pair: Pair, seconds: float | None) -> None:
        """Record the time in seconds that a pair's exchange took; None: it failed."""
        self.times[_ordered(pair)] = seconds
        self._reference = None

    def works(self, pair: Pair) -> bool:
        """Return whether the pair's exchange worked and was not slow."""
        time, reference = self.times.get(_ordered(pair)), self.reference_s
        return time is not None and reference is not None and time <= reference * self.slow_factor + self.slack_s

    def next_wave(self) -> list[Pair]:
        """Return the next pairs to test, each node at most once. An empty list: the search is over."""
        self._wave += 1
        if self._wave == 1:
            return [(node, node + 1) for node in range(0, self.count - 1, 2)]
        # With two or three nodes each wave tests one pair. Test all pairs before judging, because a single time cannot
        # be compared.
        if self.count <= 3 and (wave := self._untried()):
            return wave
        self._judge()
        if not self.suspects:
            return []
        if self.cleared:
            return self._second()
        return self._untried()

    def _second(self) -> list[Pair]:
        """Pair each suspect with a cleared (good) node that it was not tested with yet.

        No cleared node is in two pairs.
        """
        free = sorted(self.cleared)
        wave: list[Pair] = []
        for suspect in self.suspects:
            partner = next((node for node in free if _ordered((node, suspect)) not in self.times), None)
            if partner is not None:
                free.remove(partner)
                wave.append((partner, suspect))
        return wave

    def _untried(self) -> list[Pair]:
        """Return untested pairs of suspects. They are needed while no node is cleared."""
        wave: list[Pair] = []
        free = dict.fromkeys(self.suspects)
        for left in tuple(free):
            if left in free:
                del free[left]
                right = next((node for node in free if (left, node) not in self.times), None)
                if right is not None:
                    del free[right]
                    wave.append((left, right))
        return wave

    def _judge(self) -> None:
        """Clear both nodes of a pair that works. If a pair with a cleared node does not work, name the other node as
        bad.
        """
        self.cleared = set().union(*(pair for pair in self.times if self.works(pair)))
        failures: dict[int, set[int]] = {}
        for pair in self.times:
            if not self.works(pair):
                for node, other in (pair, pair[::-1]):
                    if node not in self.cleared and other in self.cleared:
                        failures.setdefault(node, set()).add(other)
        self.bad = set(failures)


def _ordered(pair: Iterable[int]) -> Pair:
    first, second = sorted(pair)
    return first, second


#: A function that tests the pairs of a wave and returns their answers in order.
Run = Callable[[Sequence[Pair]], Sequence[float | None]]


def search(count: int, run: Run, *, slow_factor: float = 3.0, slack_s: float = 0.0) -> PairSearch:
    """Run the whole search and return it.

    `run` tests the pairs of each wave. The other parameters are those of `PairSearch`.
    """
    found = PairSearch(count, slow_factor=slow_factor, slack_s=slack_s)
    while wave := found.next_wave():
        for pair, seconds in zip(wave, run(wave), strict=True):
            found.answer(pair, seconds)
    return found
