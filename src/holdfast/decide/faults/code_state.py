"""One code as an engine knows it: its rules now, and who showed it in passing.

Most of a bad day's events are momentary ones of codes that ask for nothing and that no rule counts. All that such an
event leaves is when it was seen; a device keeps no track of its own for that, and only the latest counts: whatever an
earlier one changed, the later one changed again.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.decide.faults.compiled_rules import CompiledRules, judge_of
from holdfast.decide.faults.fault_policy import Policy
from holdfast.model.faults import Remedy

#: (order of the event, until when it shows).
Sighting = tuple[int, int]


class Code:
    """`judge` holds the rules now. Sightings are in two generations: what is not seen again goes with the older."""

    __slots__ = ("bases", "earlier", "judge", "key", "passing", "seen", "spelled")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.seen: dict[str, Sighting] = {}
        self.earlier: dict[str, Sighting] = {}
        self.rule(judge_of(key, policy), policy)

    def rule(self, judge: CompiledRules, policy: Policy) -> None:
        """From now on these rules hold."""
        self.judge = judge
        self.bases = judge.bases()
        """The base level by severity."""
        self.spelled = policy.spell(self.key)
        """As people know it."""
        self.passing = judge.level == Remedy.NONE and not judge.times and judge.fault < 0
        """Whether a momentary event only passes by."""

    def see(self, device: str, order: int, until: int) -> None:
        known = self.seen.get(device)
        if known is not None and (known[0] > order or known[1] > until):
            order, until = max(known[0], order), max(known[1], until)
        self.seen[device] = order, until

    def sighting(self, device: str) -> Sighting | None:
        """The latest sighting on the device that is kept."""
        new, old = self.seen.get(device), self.earlier.get(device)
        if new is None or old is None:
            return new or old
        return max(new[0], old[0]), max(new[1], old[1])

    def forget(self, device: str) -> None:
        self.seen.pop(device, None)
        self.earlier.pop(device, None)

    def age(self) -> None:
        """Forget what was not seen since the last time this was called."""
        self.seen, self.earlier = {}, self.seen

    def shown_after(self, moment: int) -> Iterator[str]:
        """Devices with a sighting that still shows after a moment, or happens after it."""
        for generation in (self.earlier, self.seen):
            for device, (_, until) in generation.items():
                if until > moment:
                    yield device
