"""What the engine reports: changes of a device's level, and the reasons for escalations."""

from __future__ import annotations

import enum

from holdfast.decide.faults.fault_remedies import level_name
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Noun


class ChangeKind(enum.StrEnum):
    LEVEL = "level"
    #: A dry-run rule escalated: the change reports what the rule would have done.
    WOULD = "would"
    #: The circuit breaker stopped a rule that has excluded its share of devices: a person must look.
    BREAKER = "breaker"


class LevelChange(Noun, frozen=True, kw_only=True):
    """A device's level has changed. `before` and `after` are None if the device has no fault."""

    device: str
    node: str
    before: Remedy | None
    after: Remedy | None
    at: float
    #: The code whose event or deadline caused the change.
    code: str = ""
    kind: ChangeKind = ChangeKind.LEVEL
    rule: str = ""

    @property
    def reason(self) -> str:
        """The change in one sentence."""
        return self.told()

    def told(self, *, seed_names: bool = False) -> str:
        """Return `reason`; with `seed_names` it has the seed's names of levels, for users whose rules have them."""
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
    """An escalation that puts a device above the base level of its codes."""

    #: The kind of escalation: FaultFrequency, FaultDuration, or FaultAutofill (a hold whose record has no code).
    kind: str
    code: str
    remedy: Remedy
    at: float
    #: False: the rule is a dry run, or the circuit breaker stopped it.
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}:{level_name(self.remedy)}"
