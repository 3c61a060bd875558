"""The devices and CPUs that a role reserves for each of its workers. Pure."""

from __future__ import annotations

import math

from holdfast.model.job_spec import JobSpec, Role


def asked_devices(spec: JobSpec, role: Role) -> int | None:
    """Return the number of devices that each worker of a role has to itself; None: the role does not set it."""
    return role.resources.devices if spec.binds else None


def asked_cpus(spec: JobSpec, role: Role) -> int:
    """Return the number of whole CPUs that each worker of a role has to itself; 0: the worker is not bound.

    A part of a CPU (0.5) cannot be reserved.
    """
    cpus = role.resources.cpus
    return math.ceil(cpus) if spec.binds and cpus is not None and cpus >= 1 else 0


def binds(spec: JobSpec) -> bool:
    """Return whether any role reserves devices or CPUs for each of its workers."""
    return any(asked_devices(spec, role) is not None or asked_cpus(spec, role) for role in spec.roles)
