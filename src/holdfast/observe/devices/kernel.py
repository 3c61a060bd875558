"""Faults in kernel log lines: NVIDIA's Xids in every shape they come in, and the node's own troubles.

Pure parsing: a line in, a `FaultEvent` or nothing out. Who reads `/dev/kmsg` or a file brings the time with it; a line
whose own prefix tells a time that can be trusted (ISO 8601) overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from holdfast.catalogue.nvidia import NVLINK5, RECOVERY_ACTION, nvlink5_code, xid
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices.discover import pci_address

SOURCE = "kernel log"
LONGEST = 4096
"""A longer line is cut before it is looked at: the kernel's own are shorter."""

_XID = re.compile(
    r"NVRM:\s+Xid\s*\((?:PCI:)?(?P<pci>[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?|"
    r"[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)(?:\s+GPU-I:\d+)?\)\s*:\s*(?P<xid>\d{1,4})\b[,:]?\s*(?P<rest>.*)"
)
_PID = re.compile(r"\bpid='?(\d+)'?")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]+)\s+(?P<fatal>Non-?fatal|Link Fatal|Fatal)\b.*?"
    r"\(0x(?P<intr>[0-9a-fA-F]+)[,\s]+0x(?P<status>[0-9a-fA-F]+)",
    re.IGNORECASE,
)
_ACTION = re.compile(
    r"recovery action changed from .*? to (?:0x[0-9a-fA-F]+ )?\(?(?P<action>[^()]+?)\)?\s*$", re.IGNORECASE
)
_ACTIONS: tuple[tuple[str, str], ...] = (
    ("drain and reset", "DRAIN_RESET"),
    ("drain p2p", "DRAIN_P2P"),
    ("reboot", "REBOOT"),
    ("reset", "RESET"),
    ("flr", "RESET"),
)
_CLEARED = ("RESET", "REBOOT", "DRAIN_P2P", "DRAIN_RESET")

_INTERFACE = r"(?<![\w-])(?P<what>[a-z][a-z0-9._-]{1,30}):? (?:NIC )?Link (?:is )?"
_NODE: tuple[tuple[str, Assertion, Severity, re.Pattern[str]], ...] = (
    (
        "NODE-MEMORY-KILL",
        Assertion.ONCE,
        Severity.MINOR,
        re.compile(r"Out of memory: Kill(?:ed)? process (?P<pid>\d+)", re.IGNORECASE),
    ),
    (
        "NODE-DISK-READONLY",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(
            r"Remounting filesystem read-only|XFS \([^)]*\): .*shutting down filesystem|BTRFS.*forced readonly",
            re.IGNORECASE,
        ),
    ),
    (
        "NODE-DISK-IO",
        Assertion.OCCUR,
        Severity.MAJOR,
        re.compile(r"I/O error,? (?:on )?dev(?:ice)? |medium error, dev |nvme\d+: controller is down", re.IGNORECASE),
    ),
    ("NODE-NIC-DOWN", Assertion.OCCUR, Severity.MAJOR, re.compile(_INTERFACE + r"Down\b", re.IGNORECASE)),
    ("NODE-NIC-DOWN", Assertion.RECOVER, Severity.MAJOR, re.compile(_INTERFACE + r"Up\b", re.IGNORECASE)),
    (
        "NODE-MACHINE-CHECK",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(r"\[Hardware Error\]:.*(?:uncorrected|uncorrectable|fatal)", re.IGNORECASE),
    ),
)
_VIRTUAL = re.compile(r"(?:lo|docker\d+|br-|veth|virbr|cni|flannel|cali)")


class _Maker(Protocol):
    def __call__(self, code: str, assertion: Assertion, severity: Severity) -> FaultEvent: ...


_ISO = re.compile(r"^(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))\s")


def faults_in(line: str, at: float, *, node: str = "", names: Mapping[str, str] | None = None) -> list[FaultEvent]:
    """What one line of a kernel log says; empty for most lines.

    `at`: when the line was logged, as its reader knows it. `names`: PCI address → device (`gpu3`); an address that is
    not in it becomes `gpu@0000:3b:00`.
    """
    line = line[:LONGEST]
    at = _own_time(line, at)
    match = _XID.search(line)
    if match is not None:
        return _xid_events(match, line, at, node, names or {})
    for code, assertion, severity, pattern in _NODE:
        found = pattern.search(line)
        if found is None:
            continue
        parts = found.groupdict()
        if _VIRTUAL.match(parts.get("what") or ""):
            continue
        pid = parts.get("pid")
        return [
            FaultEvent(
                device=node or "node",
                code=code,
                assertion=assertion,
                at=at,
                node=node,
                severity=severity,
                text=line.strip(),
                source=SOURCE,
                pid=int(pid) if pid else None,
            )
        ]
    return []


def _xid_events(match: re.Match[str], line: str, at: float, node: str, names: Mapping[str, str]) -> list[FaultEvent]:
    address = pci_address(match["pci"])
    device = names.get(address, f"gpu@{address}")
    number = int(match["xid"])
    rest = match["rest"]
    pid = _PID.search(rest)

    def event(code: str, assertion: Assertion, severity: Severity) -> FaultEvent:
        return FaultEvent(
            device=device,
            code=code,
            assertion=assertion,
            at=at,
            node=node,
            severity=severity,
            text=line.strip(),
            source=SOURCE,
            pid=int(pid[1]) if pid else None,
        )

    if number == RECOVERY_ACTION:
        return _recovery(rest, event)
    if number in NVLINK5:
        return [_nvlink5(number, rest, event)]
    known = xid(number)
    if known is None:
        return [event(str(number), Assertion.ONCE, Severity.MINOR)]
    return [event(str(number), known.assertion, known.severity)]


def _recovery(rest: str, event: _Maker) -> list[FaultEvent]:
    """Xid 154: the driver's own advice. `None` takes earlier advice back; anything new replaces it."""
    found = _ACTION.search(rest)
    action = found["action"].strip().lower() if found is not None else ""
    suffix = next((suffix for words, suffix in _ACTIONS if words in action), "")
    if not suffix:
        if action != "none":
            return [event(str(RECOVERY_ACTION), Assertion.ONCE, Severity.MINOR)]
        return [event(f"154.{each}", Assertion.RECOVER, Severity.INFO) for each in _CLEARED]
    return [event(f"154.{suffix}", Assertion.OCCUR, Severity.CRITICAL)]


def _nvlink5(number: int, rest: str, event: _Maker) -> FaultEvent:
    found = _NVLINK5.search(rest)
    if found is None:
        return event(str(number), Assertion.ONCE, Severity.MINOR)
    fatal = not found["fatal"].lower().startswith("non")
    code = nvlink5_code(number, found["unit"], int(found["intr"], 16), int(found["status"], 16), fatal)
    lasting = code.endswith(".RESET")
    return event(code, Assertion.OCCUR if lasting else Assertion.ONCE, Severity.CRITICAL if lasting else Severity.MINOR)


def _own_time(line: str, at: float) -> float:
    match = _ISO.match(line)
    if match is None:
        return at
    try:
        return datetime.fromisoformat(match["at"].replace(",", ".")).timestamp()
    except ValueError:
        return at
