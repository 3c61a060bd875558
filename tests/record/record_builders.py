"""Values that several tests of records start from."""

from __future__ import annotations

from builders import fault_event
from holdfast.model.faults import Assertion, FaultEvent


def reported(at: float, code: str = "79", device: str = "gpu0", assertion: Assertion = Assertion.ONCE) -> FaultEvent:
    """A fault that somebody reports of node n1, `at` seconds after T."""
    return fault_event(at, code, assertion, device, node="n1")
