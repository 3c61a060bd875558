"""What the workers of a job share on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.act.terminal import Streams
from holdfast.model.jobs import JobSpec


class Setting(msgspec.Struct, frozen=True):
    """What stays the same for all workers of a job on this machine."""

    spec: JobSpec
    job_id: str
    run_id: str
    home: Path
    logs: Path
    """Holds `attempt-N/ROLE-RANK/`."""
    cwd: Path
    environment: Mapping[str, str]
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    """For the first attempt; later ones, and all where it is None, get a fresh port."""
    virtual_local_rank: bool = False
    streams: Streams = msgspec.field(default_factory=Streams)
