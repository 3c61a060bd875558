"""The result of reading a job file: the job, and the keys that the journal does not store."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun


class JobFile(msgspec.Struct, frozen=True):
    """A job file that has been read: the job, and the keys that are not part of the job's record."""

    spec: JobSpec
    warm: bool | None
    preload: tuple[str, ...]
    #: Maps the names of secrets to their values, which are never written to disk.
    secrets: Mapping[str, str] = {}
    #: The values of the settings `on-event`, `on-end` and `summary` in the job file, by name.
    told: Mapping[str, str] = {}
    #: The addresses that receive notices. They are secret.
    notify: tuple[str, ...] = ()
    #: Messages about keys that holdfast ignores or treats differently.
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"JobFile({self.spec.name})"


class RunPlace(Noun, frozen=True, kw_only=True):
    """Properties of the run's platform that change how a job file is read."""

    #: True if the platform runs the container images of a job.
    images: bool = False
    #: True if this process only hosts the owner, and the workers run on other machines.
    hosts_only: bool = False
    #: True if the platform charges the job to a virtual cluster.
    charged: bool = False
    #: The name of the platform's job, which a job without a name takes; "" if it has none.
    job_name: str = ""
