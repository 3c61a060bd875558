"""What an attempt was found to have died of: made when it has drained, and needed until the decision is made."""

from __future__ import annotations

import msgspec

from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exits import ExitReport
from holdfast.model.progress import Count, Sign


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What a drained attempt was found to have died of."""

    report: ExitReport
    evidence: AttemptEvidence
    progressed: bool
    step: int | None
    counts: tuple[Count, ...] = ()
    signs: tuple[Sign, ...] = ()
