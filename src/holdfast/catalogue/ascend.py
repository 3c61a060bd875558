"""Ascend's default fault configuration: the content of its two files, and the components that may report public
faults."""

from __future__ import annotations

from holdfast.catalogue.fault_codes import FaultCode, listed_by, rules_text

#: Components that may report public faults by default; a setting can change this.
PUBLIC_RESOURCES = frozenset({"CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"})


def shipped_codes() -> dict[str, FaultCode]:
    """Return the default content of `faultCode.json`, by canonical code."""
    return listed_by("ascend")


def shipped_rules() -> str:
    """Return the default content of `faultCustomization.json`, in holdfast's format."""
    return rules_text("ascend")
