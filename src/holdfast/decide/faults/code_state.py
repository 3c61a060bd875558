"""One fault code in an engine: its current rules, and the devices on which it was seen briefly.

On a bad day most events are momentary events of codes that ask for nothing and that no rule counts. Only the time of
such an event matters. So the device gets no track for the code, and the engine keeps only the latest sighting.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.decide.faults.compiled_rules import CompiledRules, judge_of
from holdfast.decide.faults.fault_policy import Policy
from holdfast.model.faults import Remedy

#: (order of the event, time in milliseconds until which `codes` lists it).
Sighting = tuple[int, int]


class Code:
    """One code's rules (`judge`) and sightings. `age` drops the sightings that are in the older of two generations."""

    __slots__ = ("bases", "earlier", "judge", "key", "passing", "seen", "spelled")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.seen: dict[str, Sighting] = {}
        self.earlier: dict[str, Sighting] = {}
        self.rule(judge_of(key, policy), policy)

    def rule(self, judge: CompiledRules, policy: Policy) -> None:
        """Use these rules from now on."""
        self.judge = judge
        #: The base level by severity.
        self.bases = judge.bases()
        #: The code as users write it.
        self.spelled = policy.spell(self.key)
        #: Whether a momentary event of this code has no effect: it asks for nothing, and no rule counts it.
        self.passing = judge.level == Remedy.NONE and not judge.times and judge.fault < 0

    def see(self, device: str, order: int, until: int) -> None:
        known = self.seen.get(device)
        if known is not None and (known[0] > order or known[1] > until):
            order, until = max(known[0], order), max(known[1], until)
        self.seen[device] = order, until

    def sighting(self, device: str) -> Sighting | None:
        """Return the latest sighting on the device that is kept, or None."""
        new, old = self.seen.get(device), self.earlier.get(device)
        if new is None or old is None:
            return new or old
        return max(new[0], old[0]), max(new[1], old[1])

    def forget(self, device: str) -> None:
        self.seen.pop(device, None)
        self.earlier.pop(device, None)

    def age(self) -> None:
        """Forget the sightings from before the last call of this method."""
        self.seen, self.earlier = {}, self.seen

    def shown_after(self, moment: int) -> Iterator[str]:
        """Yield the devices with a sighting that still counts as seen after `moment`, or that happens after it."""
        for generation in (self.earlier, self.seen):
            for device, (_, until) in generation.items():
                if until > moment:
                    yield device
