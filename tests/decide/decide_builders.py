"""Values that several tests of deciding start from."""

from __future__ import annotations

from typing import Any

from builders import fault_event
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.model.job_spec import Placement, Timers

OCCUR, ONCE, RECOVER = Assertion.OCCUR, Assertion.ONCE, Assertion.RECOVER
LEASES = Timers(beat_s=5.0, lease_s=30.0, drift_s=1.0)
RANKS_OF = {"gpu-1": (0, 1), "gpu-2": (2, 3)}
SEATS = [
    Placement(rank=rank, role="worker", role_rank=rank, node=node, local_rank=rank % 2)
    for node, ranks in RANKS_OF.items()
    for rank in ranks
]
#: The stack of a rank that waits for the others.
IN_ALL_REDUCE = ("all_reduce (torch/distributed/distributed_c10d.py:2810)", "main (train.py:20)")


def npu_event(
    at: float, code: str = "80E18005", assertion: Assertion = OCCUR, device: str = "npu0", **more: Any
) -> FaultEvent:
    return fault_event(at, code, assertion, device, **more)
