"""Finds bad nodes by testing them in pairs: which nodes meet next, and which one was bad. Pure.

This is DLRover's node check in general form. First round: every node meets a neighbour; a pair that works clears both
of its nodes. Second round: every suspect meets a cleared node, so that the search names the bad node and not its
partner. A suspect that works there is cleared and helps to test the rest. As long as some pair of good nodes has met,
good nodes behave and bad ones never work, exactly the bad nodes are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Pair = tuple[int, int]


class PairSearch:
    """The search over nodes 0…count-1. Ask `next_wave`, run its pairs, call `answer` for each, until the wave is empty.

    An answer is the pair's time in seconds, or None where the exchange failed, was wrong, or took too long. A pair is
    slow when it takes more than `slow_factor` times as long as the fast quarter of all: with up to a third of the nodes
    bad, two thirds of the first round's pairs may contain one, so that a median would prove nothing.
    """

    def __init__(self, count: int, *, slow_factor: float = 3.0, slack_s: float = 0.0) -> None:
        self.count = count
        self.slow_factor = slow_factor
        self.slack_s = slack_s
        """Seconds that a pair may take in addition: a busy machine lets a process wait for so long."""
        self.times: dict[Pair, float | None] = {}
        self.cleared: set[int] = set()
        self.bad: set[int] = set()
        self._wave = 0
        self._reference: tuple[float | None] | None = None
        """The last result; None after a further answer."""

    @property
    def suspects(self) -> list[int]:
        """Nodes that are neither cleared nor named: at the end, those that no pair decides."""
        return [node for node in range(self.count) if node not in self.cleared and node not in self.bad]

    @property
    def links(self) -> list[Pair]:
        """Pairs that did not work although both nodes work with others: the link between them."""
        return [pair for pair in self.times if not self.works(pair) and self.cleared.issuperset(pair)]

    @property
    def reference_s(self) -> float | None:
        """Seconds that a good pair takes: the fast quarter of all that worked; None while none did."""
        if self._reference is None:
            worked = sorted(time for time in self.times.values() if time is not None)
            self._reference = (worked[(len(worked) - 1) // 4] if worked else None,)
        return self._reference[0]

    def answer(self, pair: Pair, seconds: float | None) -> None:
        """Records the time of a pair of the wave."""
        self.times[_ordered(pair)] = seconds
        self._reference = None

    def works(self, pair: Pair) -> bool:
        """Whether the pair worked, and was not too slow."""
        time, reference = self.times.get(_ordered(pair)), self.reference_s
        return time is not None and reference is not None and time <= reference * self.slow_factor + self.slack_s

    def next_wave(self) -> list[Pair]:
        """Pairs to run next, no node in two of them. Empty: the search is over."""
        self._wave += 1
        if self._wave == 1:
            return [(node, node + 1) for node in range(0, self.count - 1, 2)]
        # Of two or three nodes one pair at a time can meet: nothing can be compared before all have.
        if self.count <= 3 and (wave := self._untried()):
            return wave
        self._judge()
        if not self.suspects:
            return []
        if self.cleared:
            return self._second()
        return self._untried()

    def _second(self) -> list[Pair]:
        """Each suspect with a cleared node that it has not met; as many at a time as there are cleared nodes."""
        free = sorted(self.cleared)
        wave: list[Pair] = []
        for suspect in self.suspects:
            partner = next((node for node in free if _ordered((node, suspect)) not in self.times), None)
            if partner is not None:
                free.remove(partner)
                wave.append((partner, suspect))
        return wave

    def _untried(self) -> list[Pair]:
        """No node is cleared yet: pairs that have not met, until one works."""
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
        """Clear each node that worked with another; name a suspect that did not work with a node cleared without it."""
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


#: Runs a wave; each pair's answer, in its order.
Run = Callable[[Sequence[Pair]], Sequence[float | None]]


def search(count: int, run: Run, *, slow_factor: float = 3.0, slack_s: float = 0.0) -> PairSearch:
    """Runs the whole search with `run`."""
    found = PairSearch(count, slow_factor=slow_factor, slack_s=slack_s)
    while wave := found.next_wave():
        for pair, seconds in zip(wave, run(wave), strict=True):
            found.answer(pair, seconds)
    return found
