"""Which remedy one fault code asks for: code → `Remedy`, and the seed's names of the levels. Pure.

The tables are arguments; `holdfast.decide.faults.fault_policy` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.catalogue.fault_codes import LINK_DOWN, NETWORK_CODES
from holdfast.model.faults import Remedy, Severity, Standing

#: The seed's name of each remedy.
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

#: The seed's name for "no fault", which is below every level.
NORMAL = "NormalNPU"

REMEDIES: dict[str, Remedy] = {name: remedy for remedy, name in LEVEL_NAMES.items()}

#: What a policy for the link fault 81078603 may ask for; anything else counts as NONE.
LINK_REMEDIES = frozenset({Remedy.NONE, Remedy.AVOID, Remedy.ISOLATE})

_RESTARTS = frozenset({Remedy.RETRY_REQUEST, Remedy.RESTART_WORKERS, Remedy.RESET_WHEN_IDLE, Remedy.RESET_NOW})


def base_remedy(code: str, listed: Iterable[Remedy]) -> Remedy:
    """The level of a code that is in these lists: the highest, after levels that its plane cannot carry out became
    NONE."""
    if code not in NETWORK_CODES:
        return max(listed)
    useless = _RESTARTS | {Remedy.WATCH} if code == LINK_DOWN else _RESTARTS
    return max(Remedy.NONE if remedy in useless else remedy for remedy in listed)


def by_severity(severity: Severity) -> Remedy:
    """The remedy for a code in no list: none for info and minor, and for anything graver the device is kept out."""
    return Remedy.NONE if severity in (Severity.INFO, Severity.MINOR) else Remedy.ISOLATE


def remedy_of(code: str, severity: Severity, levels: Mapping[str, Remedy]) -> Remedy:
    """The base level of one canonical code."""
    known = levels.get(code)
    return by_severity(severity) if known is None else known


def level_name(remedy: Remedy | None) -> str:
    """The seed's word for a level; None is no fault."""
    return NORMAL if remedy is None else LEVEL_NAMES[remedy]


def is_healthy(remedy: Remedy | None, in_use: bool) -> bool:
    """The seed's health: RETRY_REQUEST and higher are unhealthy, AVOID only while no job uses the device."""
    if remedy is None or remedy < Remedy.RETRY_REQUEST:
        return True
    return remedy is Remedy.AVOID and in_use


def standing_of(remedy: Remedy | None) -> Standing:
    """Where a level puts a device: whether new work may be placed on it, and what ends it."""
    if remedy is None or remedy < Remedy.RETRY_REQUEST:
        return Standing.HEALTHY
    if remedy is Remedy.HOLD:
        return Standing.HELD
    return Standing.ISOLATED if remedy is Remedy.ISOLATE else Standing.SUSPECT
