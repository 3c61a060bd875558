"""What a job file becomes: the job, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.job_spec import JobSpec


class JobFile(msgspec.Struct, frozen=True):
    """A job file, read: the job, and those of its keys that do not belong to the job's record."""

    spec: JobSpec
    warm: bool | None
    preload: tuple[str, ...]
    #: Name → value. They stand in no noun that is written down.
    secrets: Mapping[str, str] = {}
    #: `on-event`, `on-end`, `summary`: as the settings of these names.
    told: Mapping[str, str] = {}
    #: Addresses, which are secret.
    notify: tuple[str, ...] = ()
    #: What is to be said of keys that have no meaning here.
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"JobFile({self.spec.name})"
