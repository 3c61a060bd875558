"""The settings by which a run watches its devices."""

from __future__ import annotations

from pathlib import Path

import msgspec

KERNEL_LOG = "/dev/kmsg"


class FaultOptions(msgspec.Struct, frozen=True):
    """Files that replace the built-in codes and rules, the sources of faults, and the way to reset a device."""

    codes: str | None = None
    rules: str | None = None
    kernel_log: str = KERNEL_LOG
    #: The socket that receives reported faults; None: `faults.sock` in the job's directory.
    socket: Path | None = None
    #: The file that is read for faults; None: `faults.jsonl` in the job's directory.
    file: Path | None = None
    ascend_events: Path | None = None
    reset_command: str | None = None
    #: The number of neighbouring devices that can only be reset together.
    reset_group: int = 1
