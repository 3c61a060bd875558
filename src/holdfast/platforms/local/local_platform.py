"""The platform of this machine's queue, for the runs that its core starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.local.local_access import LocalAccess
from holdfast.platforms.platform import LaunchRequest, Platform
from holdfast.queue.core_place import machine_id
from holdfast.queue.job_start import RUN_OF

if TYPE_CHECKING:
    from holdfast.launch.multi_node import MultiNodeJob


class LocalPlatform(LocalAccess, Platform):
    """Runs a job that waited in this machine's queue. The whole job is on this machine."""

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        kind, _, job_id = environment.get(RUN_OF, "").partition(":")
        if kind != self.name or not job_id:
            return None
        return PlatformJob(platform=self.name, id=job_id, cluster=machine_id())

    def reserved(self, environment: Mapping[str, str]) -> str:
        known = self.job(environment)
        return known.id if known is not None else ""

    def launch(self, request: LaunchRequest) -> MultiNodeJob | None:
        return None
