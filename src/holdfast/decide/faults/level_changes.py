"""What the engine tells: changes of a device's level, and why a device stands where it stands."""

from __future__ import annotations

import enum

from holdfast.decide.faults.fault_remedies import level_name
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Noun


class ChangeKind(enum.StrEnum):
    LEVEL = "level"
    #: A dry-run rule escalated: what it would have done.
    WOULD = "would"
    #: A rule has taken its share of devices: it did not take this one, a person must look.
    BREAKER = "breaker"


class LevelChange(Noun, frozen=True, kw_only=True):
    """A device's level is another. `before` and `after` are None where nothing is wrong."""

    device: str
    node: str
    before: Remedy | None
    after: Remedy | None
    at: float
    #: The code whose event or deadline it was.
    code: str = ""
    kind: ChangeKind = ChangeKind.LEVEL
    rule: str = ""

    @property
    def reason(self) -> str:
        """One sentence for a person."""
        return self.told()

    def told(self, *, seed_names: bool = False) -> str:
        """The same, with the seed's names of levels for users who wrote their rules with them."""
        was, now = ((level_name if seed_names else _word)(level) for level in (self.before, self.after))
        match self.kind:
            case ChangeKind.LEVEL:
                return f"{self.device}: {was} → {now}" + (f" ({self.code})" if self.code else "")
            case ChangeKind.WOULD:
                return f"{self.device}: the dry-run rule {self.rule} would have made it {now} ({self.code})"
            case ChangeKind.BREAKER:
                return (
                    f"{self.device}: the rule {self.rule} asks for {now} ({self.code}), but has taken its share of the "
                    "devices already; nothing is done, look at the rule and at what the devices have in common"
                )


def _word(level: Remedy | None) -> str:
    return "healthy" if level is None else level.name


class Reason(Noun, frozen=True, kw_only=True):
    """Why a device stands higher than the base level of its codes."""

    #: FaultFrequency, FaultDuration, FaultAutofill
    kind: str
    code: str
    remedy: Remedy
    at: float
    #: False: a dry run, or stopped by the circuit breaker.
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}:{level_name(self.remedy)}"
