"""The circuit breaker: no single rule may exclude a whole fleet. Pure; it counts devices in the order of arrival."""

from __future__ import annotations

from holdfast.model.noun_base import Noun

DEFAULT_SHARE = 0.25
#: With fewer devices than this the breaker sets no limit: a share of so few means nothing.
FEWEST = 8


class Breaker(Noun, frozen=True, kw_only=True):
    """The limit: one rule may exclude at most `share` of the known devices within the rule's own window."""

    share: float = DEFAULT_SHARE
    fewest: int = FEWEST

    def allowed(self, population: int) -> int | None:
        """Return how many of `population` devices one rule may exclude; None: no limit."""
        return None if population < self.fewest else max(1, int(self.share * population))


class DevicesByRule:
    """The devices that each rule has excluded, with the time of each (milliseconds)."""

    __slots__ = ("by_rule",)

    def __init__(self) -> None:
        self.by_rule: dict[str, dict[str, int]] = {}

    def take(self, rule: str, device: str, at: int, window: int, allowed: int | None) -> bool:
        """Record that the rule excludes the device. Return False if the rule has reached its limit already."""
        devices = self.by_rule.setdefault(rule, {})
        for name in [name for name, when in devices.items() if when < at - window]:
            del devices[name]
        if allowed is not None and device not in devices and len(devices) >= allowed:
            return False
        devices[device] = at
        return True

    def open(self, rule: str, allowed: int | None) -> bool:
        """Return whether the rule has reached its limit."""
        return allowed is not None and len(self.by_rule.get(rule, ())) >= allowed
