"""Handles device faults of this machine during a run: their sources, the shared log, their consequences for the job,
and resets.

Most runs see no fault, and importing the fault engine, its rules and its sources takes 20 ms. So a module is imported
at the first use of one of the names below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.catalogue.fault_codes import all_codes, canonical
    from holdfast.decide.faults.isolation import standings
    from holdfast.node.devices.buffered_log import BufferedFaultLog
    from holdfast.node.devices.device_resets import ResetCommand, Resets
    from holdfast.node.devices.excluded_devices import kept_out
    from holdfast.node.devices.fault_log import FaultLog
    from holdfast.node.devices.job_faults import JobFaults
    from holdfast.node.devices.nvml_watch import NvmlWatch
    from holdfast.node.devices.policy_files import load_policy
    from holdfast.node.devices.vendor_query import DeviceUsers
    from holdfast.observe.cpu_layout import cpus_here
    from holdfast.observe.devices.fault_socket import FaultSocket
    from holdfast.observe.devices.fault_sources import FileFaults, KernelFaults, vendor_sources
    from holdfast.record.device_standings import Standings
    from holdfast.record.held_devices import publish

__all__ = [
    "BufferedFaultLog", "DeviceUsers", "FaultLog", "FaultSocket", "FileFaults", "JobFaults", "KernelFaults",
    "NvmlWatch", "ResetCommand", "Resets", "Standings", "all_codes", "canonical", "cpus_here", "kept_out",
    "load_policy", "publish", "standings", "vendor_sources",
]  # fmt: skip

if not TYPE_CHECKING:
    _MODULES = {
        "holdfast.catalogue.fault_codes": ("all_codes", "canonical"),
        "holdfast.decide.faults.isolation": ("standings",),
        "holdfast.node.devices.buffered_log": ("BufferedFaultLog",),
        "holdfast.node.devices.device_resets": ("ResetCommand", "Resets"),
        "holdfast.node.devices.excluded_devices": ("kept_out",),
        "holdfast.node.devices.fault_log": ("FaultLog",),
        "holdfast.node.devices.job_faults": ("JobFaults",),
        "holdfast.node.devices.nvml_watch": ("NvmlWatch",),
        "holdfast.node.devices.policy_files": ("load_policy",),
        "holdfast.node.devices.vendor_query": ("DeviceUsers",),
        "holdfast.observe.cpu_layout": ("cpus_here",),
        "holdfast.observe.devices.fault_socket": ("FaultSocket",),
        "holdfast.observe.devices.fault_sources": ("FileFaults", "KernelFaults", "vendor_sources"),
        "holdfast.record.device_standings": ("Standings",),
        "holdfast.record.held_devices": ("publish",),
    }

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
