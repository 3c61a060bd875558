"""Maps a fault code to its remedy, and remedies to Ascend's names of levels. Pure.

Callers pass in the tables; `holdfast.decide.faults.fault_policy` builds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.catalogue.fault_codes import LINK_DOWN, NETWORK_CODES
from holdfast.model.faults import Remedy, Severity, Standing

#: Remedy → Ascend's name of it.
LEVEL_NAMES: dict[Remedy, str] = {
    Remedy.NONE: "NotHandleFault",
    Remedy.WATCH: "SubHealthFault",
    Remedy.RETRY_REQUEST: "RestartRequest",
    Remedy.RESTART_WORKERS: "RestartBusiness",
    Remedy.RESET_WHEN_IDLE: "FreeRestartNPU",
    Remedy.RESET_NOW: "RestartNPU",
    Remedy.AVOID: "PreSeparateNPU",
    Remedy.ISOLATE: "SeparateNPU",
    Remedy.HOLD: "ManuallySeparateNPU",
}

#: Ascend's name for "no fault", which is below every level.
NORMAL = "NormalNPU"

REMEDIES: dict[str, Remedy] = {name: remedy for remedy, name in LEVEL_NAMES.items()}

#: The remedies that a rule for the link fault 81078603 may have. Any other remedy counts as NONE.
LINK_REMEDIES = frozenset({Remedy.NONE, Remedy.AVOID, Remedy.ISOLATE})

_RESTARTS = frozenset({Remedy.RETRY_REQUEST, Remedy.RESTART_WORKERS, Remedy.RESET_WHEN_IDLE, Remedy.RESET_NOW})


def base_remedy(code: str, listed: Iterable[Remedy]) -> Remedy:
    """Return the base level of a code: the highest of its remedies in the code lists (`listed`).

    A remedy that cannot apply to the network plane counts as NONE.
    """
    if code not in NETWORK_CODES:
        return max(listed)
    useless = _RESTARTS | {Remedy.WATCH} if code == LINK_DOWN else _RESTARTS
    return max(Remedy.NONE if remedy in useless else remedy for remedy in listed)


def by_severity(severity: Severity) -> Remedy:
    """Return the remedy for a code in no list: NONE for info and minor, ISOLATE for more severe events."""
    return Remedy.NONE if severity in (Severity.INFO, Severity.MINOR) else Remedy.ISOLATE


def remedy_of(code: str, severity: Severity, levels: Mapping[str, Remedy]) -> Remedy:
    """Return the remedy of a fault code, before any rule about frequency or duration counts.

    `code`: the code in holdfast's form. `levels`: code → its remedy in a code list. `severity`: decides if no list has
    the code.
    """
    known = levels.get(code)
    return by_severity(severity) if known is None else known


def level_name(remedy: Remedy | None) -> str:
    """Return Ascend's name of a level. `remedy` None: the device has no fault."""
    return NORMAL if remedy is None else LEVEL_NAMES[remedy]


def is_healthy(remedy: Remedy | None, in_use: bool) -> bool:
    """Return whether a level is healthy by Ascend's rule:

    RETRY_REQUEST and higher levels are not. AVOID is healthy only while a job uses the device (`in_use`).
    """
    if remedy is None or remedy < Remedy.RETRY_REQUEST:
        return True
    return remedy is Remedy.AVOID and in_use


def standing_of(remedy: Remedy | None) -> Standing:
    """Return the device's standing at this level: whether new work may run on the device, and until when it may not."""
    if remedy is None or remedy < Remedy.RETRY_REQUEST:
        return Standing.HEALTHY
    if remedy is Remedy.HOLD:
        return Standing.HELD
    return Standing.ISOLATED if remedy is Remedy.ISOLATE else Standing.SUSPECT
