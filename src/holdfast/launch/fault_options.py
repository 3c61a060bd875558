"""How a run watches its devices: what the settings say."""

from __future__ import annotations

from pathlib import Path

import msgspec

KERNEL_LOG = "/dev/kmsg"


class FaultOptions(msgspec.Struct, frozen=True):
    """Files of codes and rules instead of the built-in ones, where faults come from, and how a device is reset."""

    codes: str | None = None
    rules: str | None = None
    kernel_log: str = KERNEL_LOG
    #: None: `faults.sock` in the job's directory.
    socket: Path | None = None
    #: None: `faults.jsonl` in the job's directory.
    file: Path | None = None
    ascend_events: Path | None = None
    reset_command: str | None = None
    #: So many neighbouring devices can only be reset together.
    reset_group: int = 1
