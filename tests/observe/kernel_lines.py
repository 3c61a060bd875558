"""What lines of the kernel mean on a node with three GPUs."""

from __future__ import annotations

from builders import T
from holdfast.observe.devices.kernel_faults import faults_in

GPU_NAMES = {"0000:3b:00": "gpu3", "0000:cb:00": "gpu6", "10003:01:00": "gpu7"}


def faults_of(line: str) -> list[tuple[str, str, str]]:
    """Device, code and whether it begins, ends or happens once."""
    found = faults_in(line, T, node="n1", names=GPU_NAMES)
    return [(event.device, event.code, str(event.assertion)) for event in found]
