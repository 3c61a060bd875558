"""Ascend: the two files of the seed's fault configuration, as shipped, and who may report public faults."""

from __future__ import annotations

from holdfast.catalogue.fault_codes import FaultCode, listed_by, rules_text

#: Who may report public faults unless the settings say otherwise.
PUBLIC_RESOURCES = frozenset({"CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"})


def shipped_codes() -> dict[str, FaultCode]:
    """What `faultCode.json` holds as shipped, by canonical code."""
    return listed_by("ascend")


def shipped_rules() -> str:
    """What `faultCustomization.json` holds as shipped, in holdfast's own format."""
    return rules_text("ascend")
