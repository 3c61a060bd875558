"""Is /dev/shm big enough for data-loader workers and collectives?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size, size_of


class ShmParams(Params, frozen=True, kw_only=True):
    min_free: Annotated[Bytes, Meta(description="shared memory that must be free")] = Bytes(16 << 20)
    path: Annotated[str, Meta(description="where shared memory is mounted")] = "/dev/shm"


class Shm(BuiltIn):
    name = "shm"
    question = "Is there shared memory left for data-loader workers and collectives?"
    cost = "1 ms"
    blame = "platform"
    Params = ShmParams
    retries = 1

    def look(self, context: Context) -> Verdict:
        params: ShmParams = self.params
        if not Path(params.path).is_dir():
            return self.bad(context, f"{params.path} does not exist", "Mount a tmpfs there (`--ipc=host` with Docker).")
        facts = os.statvfs(params.path)
        free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
        figures = {"free_bytes": free, "total_bytes": whole}
        # A tmpfs without a limit reports 0 of 0.
        if whole and free < params.min_free:
            return self.bad(
                context,
                f"{size_of(free, whole)} free on {params.path}, {size(params.min_free)} asked",
                "Make it bigger (`docker run --shm-size`, `emptyDir: {medium: Memory}`), or remove what old jobs left.",
                figures=figures,
            )
        if not os.access(params.path, os.W_OK | os.X_OK):
            return self.bad(context, f"{params.path} is not writable", f"chmod 1777 {params.path}")
        return good(f"{size_of(free, whole)} free" if whole else "no limit", figures)
