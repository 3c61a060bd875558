"""The circuit breaker: one rule may not take a whole fleet. Pure, judged in the order of arrival."""

from __future__ import annotations

from holdfast.model.noun_base import Noun

DEFAULT_SHARE = 0.25
#: Below so many devices a share says nothing: one of three would already be too many.
FEWEST = 8


class Breaker(Noun, frozen=True, kw_only=True):
    """At most `share` of the known devices may be kept out by one rule within the rule's own window."""

    share: float = DEFAULT_SHARE
    fewest: int = FEWEST

    def allowed(self, population: int) -> int | None:
        """How many devices one rule may take out of so many; None: no limit."""
        return None if population < self.fewest else max(1, int(self.share * population))


class DevicesByRule:
    """Which devices a rule has taken, and when (milliseconds)."""

    __slots__ = ("by_rule",)

    def __init__(self) -> None:
        self.by_rule: dict[str, dict[str, int]] = {}

    def take(self, rule: str, device: str, at: int, window: int, allowed: int | None) -> bool:
        """Note that the rule takes the device. False where the rule has taken its share already."""
        devices = self.by_rule.setdefault(rule, {})
        for name in [name for name, when in devices.items() if when < at - window]:
            del devices[name]
        if allowed is not None and device not in devices and len(devices) >= allowed:
            return False
        devices[device] = at
        return True

    def open(self, rule: str, allowed: int | None) -> bool:
        """Whether the rule has used up its share."""
        return allowed is not None and len(self.by_rule.get(rule, ())) >= allowed
