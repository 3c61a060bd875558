"""Parses faults in kernel log lines: NVIDIA's Xids in all their forms, and faults of the node.

A line yields `FaultEvent`s or nothing. The caller passes in the line's time. If the line has a reliable time itself
(ISO 8601 with a zone, or a journal entry as JSON), that one counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from holdfast.catalogue.nvidia import NVLINK5, RECOVERY_ACTION, nvlink5_code, xid
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices.device_discovery import pci_address
from holdfast.untrusted import Malformed, json_as, wrong_time

SOURCE = "kernel log"
NIC_DOWN = "NODE-NIC-DOWN"
PCIE_FATAL, PCIE_NONFATAL = "PCIE-FATAL", "PCIE-NONFATAL"
NODE_PCIE, NIC_PCIE = "NODE-PCIE-FATAL", "NODE-NIC-PCIE"
#: A line is cut to this many characters before it is parsed. Lines of the kernel are shorter.
LONGEST = 4096

_PCI = (
    r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?|"
    r"[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,2}(?:\.[0-7])?)"
)
_XID = re.compile(
    r"NVRM:\s+Xid\s*\(" + _PCI + r"(?:\s+GPU-I:\d+)?\)\s*:\s*(?P<xid>\d{1,4})\b[,:]?\s*(?P<rest>.*)", re.DOTALL
)
#: The driver logs this line with Xid 79. If the GPU is missing at the driver's start, it logs the line without an Xid.
_OFF_THE_BUS = re.compile(
    r"NVRM:\s+(?:The NVIDIA )?GPU (?:at )?" + _PCI + r"[^0-9a-fA-F].{0,200}?fallen off the bus", re.DOTALL
)
#: Matches the line that a driver without Xid 143 logs in its place.
_NOT_STARTED = re.compile(r"NVRM:\s+GPU (?:at )?" + _PCI + r":?\s+RmInitAdapter failed!", re.IGNORECASE)
#: Matches the beginning of a message that the driver prints in several lines.
_GPU_BEGUN = re.compile(r"NVRM:\s+(?:The NVIDIA )?GPU (?:at )?" + _PCI + r"(?:\s*|\s.{0,80})$")
_FALLEN, _UNSTARTED = 79, 143
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d{1,4}): SXid \(" + _PCI + r"\): (?P<sxid>\d{1,6})\b,?\s*(?P<fatal>Fatal\b)?",
    re.IGNORECASE,
)
#: Matches a line of PCIe advanced error reporting (AER): an uncorrected error, or the recovery from one. The PCI
#: function in it shows the affected devices.
_AER = re.compile(
    r"(?<![\w-])(?P<driver>[A-Za-z][\w-]{1,30}) (?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?"
    r"(?:PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?P<kind>Fatal|Non-Fatal)\)|"
    r"(?P<over>device recovery successful))",
    re.IGNORECASE,
)
_PID = re.compile(r"\bpid='?(\d+)'?")
_NVLINK5 = re.compile(
    r"(?<![A-Z0-9_])(?P<unit>[A-Z][A-Z0-9_]{1,40})\s+(?P<fatal>Non-?fatal|Link Fatal|Fatal)\b.{0,200}?"
    r"\(0x(?P<intr>[0-9a-fA-F]+)[,\s]+0x(?P<status>[0-9a-fA-F]+)",
    re.IGNORECASE,
)
_ACTION = re.compile(
    r"recovery action changed from (?P<before>.{0,100}?) to "
    r"(?P<after>(?:0x[0-9a-fA-F]+)?\s*(?:\([^()]{0,100}\)|[A-Za-z][\w ]*)?)",
    re.IGNORECASE,
)
_ACTIONS: tuple[tuple[str, str], ...] = (
    ("drain and reset", "DRAIN_RESET"),
    ("drain p2p", "DRAIN_P2P"),
    ("reboot", "REBOOT"),
    ("reset", "RESET"),
    ("flr", "RESET"),
)
_ADVICE = re.compile(r"\s*(?:0x([0-9a-f]{1,8})\b)?\s*\(?\s*([a-z][a-z0-9 ]*[a-z0-9])?")
#: The driver's numbers of its recovery actions, for lines that lack the names.
_NUMBERED = {0: "none", 1: "reset", 2: "reboot", 3: "drain p2p", 4: "drain and reset"}
_CLEARED = ("RESET", "REBOOT", "DRAIN_P2P", "DRAIN_RESET")

_INTERFACE = r"(?<![\w-])(?P<what>[a-z][a-z0-9._-]{1,30}):? (?:NIC )?Link (?:is )?"
_PORT = r"(?<![\w-])[a-z][a-z0-9_]{1,30}: Port: \d+ Link "
_SLAVE = r"(?<![\w.-])[a-z][\w.-]{0,30}: (?:\(slave [\w.-]{1,30}\): )?link status definitely "
#: The kinds of node faults: words that the line must contain, in lower case; code, assertion and severity; the pattern.
_NODE: tuple[tuple[str, str, Assertion, Severity, re.Pattern[str]], ...] = (
    (
        "out of memory",
        "NODE-MEMORY-KILL",
        Assertion.ONCE,
        Severity.MINOR,
        re.compile(r"Out of memory(?: \([^()]{1,60}\))?: Kill(?:ed)? process (?P<pid>\d+)", re.IGNORECASE),
    ),
    (
        "filesystem",
        "NODE-DISK-READONLY",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(
            r"Remounting filesystem read-only|"
            r"XFS \([^)]{1,60}\): .{0,200}?(?:shutting down filesystem|filesystem has been shut down)",
            re.IGNORECASE,
        ),
    ),
    (
        "forced readonly",
        "NODE-DISK-READONLY",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(r"BTRFS.{0,200}?forced readonly", re.IGNORECASE),
    ),
    (
        " error",
        "NODE-DISK-IO",
        Assertion.OCCUR,
        Severity.MAJOR,
        # Leave out loop devices, which are no disks, and the empty drive of a virtual machine, which fails at every
        # boot.
        re.compile(
            r"(?:I/O error,? (?:on )?dev(?:ice)?|medium error, dev) (?!fd\d|sr\d|loop\d)",
            re.IGNORECASE,
        ),
    ),
    (
        "nvme",
        "NODE-DISK-IO",
        Assertion.OCCUR,
        Severity.MAJOR,
        re.compile(
            r"nvme\d+: (?:controller is down|Device not ready; aborting|Removing after probe|Disabling device after|"
            r"I/O (?:tag )?\d+ .{0,80}?timeout, (?:reset|disable) controller)",
            re.IGNORECASE,
        ),
    ),
    (
        "link ",
        NIC_DOWN,
        Assertion.OCCUR,
        Severity.MAJOR,
        re.compile(f"(?:{_INTERFACE}|{_PORT}|{_SLAVE})Down\\b", re.IGNORECASE),
    ),
    (
        "link ",
        NIC_DOWN,
        Assertion.RECOVER,
        Severity.MAJOR,
        re.compile(f"(?:{_INTERFACE}|{_SLAVE})Up\\b|{_PORT}Active\\b", re.IGNORECASE),
    ),
    (
        "hardware error",
        "NODE-MACHINE-CHECK",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(
            r"\[Hardware Error\]:.{0,200}?(?:uncorrected|uncorrectable|(?<!non-)fatal|Machine Check Exception|"
            r"severity: recoverable)",
            re.IGNORECASE,
        ),
    ),
    (
        "hardware memory",
        "NODE-MACHINE-CHECK",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(
            r"mce: Uncorrected hardware memory error|"
            r"(?:Memory failure: |MCE )0x[0-9a-f]+: (?:Killing|Sending SIGBUS to) .{1,80}? due to hardware memory",
            re.IGNORECASE,
        ),
    ),
    (
        "edac",
        "NODE-MACHINE-CHECK",
        Assertion.OCCUR,
        Severity.CRITICAL,
        re.compile(r"EDAC (?:\w{1,30} )?MC\d+: (?:\d+ )?UE ", re.IGNORECASE),
    ),
)
#: Interfaces to ignore: internal ones, and other devices that report links, such as an empty SATA port.
_NO_NETWORK = re.compile(r"(?:lo$|docker\d|br-|veth|virbr|cni|flannel|cali|sata$|nvlink|usb|pcie)", re.IGNORECASE)


_WHOSE_LINK = re.compile(
    r"(?:\(slave |for interface )([\w.-]{1,30})|"
    r"(?<![\w.-])([a-z][\w.-]{1,30})(?:(?=: Port: \d)|(?=:? (?:NIC )?Link (?!status)))",
    re.IGNORECASE,
)


def interface_in(text: str) -> str:
    """Return the interface in a line about a link, or "" if the line names none."""
    found = _WHOSE_LINK.search(text)
    return next((name for name in found.groups() if name), "") if found is not None else ""


class _Maker(Protocol):
    def __call__(self, code: str, assertion: Assertion, severity: Severity) -> FaultEvent: ...


_ISO = re.compile(r"^(?:<\d{1,3}>1 )?(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))\s")


def faults_in(line: str, at: float, *, node: str = "", names: Mapping[str, str] | None = None) -> list[FaultEvent]:
    """Return the faults in one line of a kernel log; most lines have none. `at`: the line's time, in seconds since the
    epoch.

    `node`: this node's name, for events. `names`: PCI address → device (`gpu3`); any other address becomes
    `gpu@0000:3b:00`.
    """
    line, at = _said(line, at)
    small = line.lower()
    match = _XID.search(line) if "nvrm:" in small else None
    if match is not None:
        return _xid_events(match, line, at, node, names or {}, int(match["xid"]), match["rest"])
    match = _OFF_THE_BUS.search(line) if "off the bus" in small else None
    if match is not None:
        return _xid_events(match, line, at, node, names or {}, _FALLEN, "")
    match = _NOT_STARTED.search(line) if "rminitadapter" in small else None
    if match is not None:
        return _xid_events(match, line, at, node, names or {}, _UNSTARTED, "")
    match = _AER.search(line) if "pcie bus error" in small or "device recovery" in small else None
    if match is not None:
        return _pcie_events(match, line, at, node, names or {})
    match = _SXID.search(line) if "sxid" in small else None
    if match is not None:
        return [_sxid_event(match, line, at, node)]
    for word, code, assertion, severity, pattern in _NODE:
        found = pattern.search(line) if word in small else None
        if found is None:
            continue
        parts = found.groupdict()
        if _NO_NETWORK.match(parts.get("what") or ""):
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


def _xid_events(
    match: re.Match[str], line: str, at: float, node: str, names: Mapping[str, str], number: int, rest: str
) -> list[FaultEvent]:
    address = pci_address(match["pci"])
    device = names.get(address, f"gpu@{address}")
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


def function_in(text: str) -> str:
    """Return the PCI function (`0000:3b:00.0`) in an AER line, or "" for any other line."""
    found = _AER.search(text)
    return found["pci"].lower() if found is not None else ""


def gpu_begun(line: str) -> str:
    """Return the beginning of a GPU message that goes on in later lines; "" if there is none."""
    found = _GPU_BEGUN.search(line) if "NVRM:" in line else None
    return found[0] if found is not None else ""


def is_continued(line: str) -> bool:
    """Return whether the line may be the continuation of a driver's message."""
    words = line.partition("NVRM:")[2].lstrip()
    return words[:1] == "(" or words[:1].islower()


def _pcie_events(match: re.Match[str], line: str, at: float, node: str, names: Mapping[str, str]) -> list[FaultEvent]:
    """Return the event of a PCIe error or recovery for the accelerator at this address; without one, for the node.

    The caller finds the devices behind a bridge.
    """
    address = pci_address(match["pci"])
    device = names.get(address) or (f"gpu@{address}" if match["driver"].lower() == "nvidia" else "")
    fatal = match["over"] is not None or match["kind"].lower() == "fatal"
    if not fatal and not device:
        return []
    code = (PCIE_FATAL if fatal else PCIE_NONFATAL) if device else NODE_PCIE
    assertion = Assertion.RECOVER if match["over"] else Assertion.OCCUR if fatal else Assertion.ONCE
    return [
        FaultEvent(
            device=device or node or "node",
            code=code,
            assertion=assertion,
            at=at,
            node=node,
            severity=Severity.CRITICAL if device and fatal else Severity.MAJOR if fatal else Severity.MINOR,
            text=line.strip(),
            source=SOURCE,
        )
    ]


def _sxid_event(match: re.Match[str], line: str, at: float, node: str) -> FaultEvent:
    """Return the event of an NVSwitch error. No worker uses the switch directly, but a fatal error may explain later
    failures.
    """
    return FaultEvent(
        device=f"nvswitch{int(match['switch'])}",
        code=f"SXID-{int(match['sxid'])}",
        assertion=Assertion.ONCE,
        at=at,
        node=node,
        severity=Severity.CRITICAL if match["fatal"] else Severity.MINOR,
        text=line.strip(),
        source=SOURCE,
    )


def _recovery(rest: str, event: _Maker) -> list[FaultEvent]:
    """Return the events of Xid 154, which has the driver's recovery action. "none" ends all earlier actions; any other
    replaces the previous one.
    """
    found = _ACTION.search(rest)
    before, after = (_advice(found["before"]), _advice(found["after"])) if found is not None else (None, None)
    if after is None:
        return [event(str(RECOVERY_ACTION), Assertion.ONCE, Severity.MINOR)]
    over = _CLEARED if not after else (before,) if before and before != after else ()
    events = [event(f"154.{each}", Assertion.RECOVER, Severity.INFO) for each in over]
    if after:
        events.append(event(f"154.{after}", Assertion.OCCUR, Severity.CRITICAL))
    return events


def _advice(text: str) -> str | None:
    """Convert `0x1 (GPU Reset Required)` to `RESET`. Return "" for the action "none", and None for an unknown
    action."""
    found = _ADVICE.match(text.lower())
    number, words = found.groups(default="") if found is not None else ("", "")
    if not words and number:
        words = _NUMBERED.get(int(number, 16), "")
    return "" if words == "none" else next((suffix for said, suffix in _ACTIONS if said in words), None)


def _nvlink5(number: int, rest: str, event: _Maker) -> FaultEvent:
    found = _NVLINK5.search(rest)
    if found is None:
        return event(str(number), Assertion.ONCE, Severity.MINOR)
    fatal = not found["fatal"].lower().startswith("non")
    code = nvlink5_code(number, found["unit"], int(found["intr"], 16), int(found["status"], 16), fatal)
    lasting = code.endswith(".RESET")
    return event(code, Assertion.OCCUR if lasting else Assertion.ONCE, Severity.CRITICAL if lasting else Severity.MINOR)


class _Entry(msgspec.Struct):
    """A journal entry as JSON. A message that is no text is a list of byte values."""

    message: str | list[int] = msgspec.field(name="MESSAGE", default="")
    microseconds: str | int = msgspec.field(name="__REALTIME_TIMESTAMP", default="")


def _said(line: str, at: float) -> tuple[str, float]:
    """Return the kernel's message in a log line without the log's prefix, and its time."""
    if line.startswith("{") and '"MESSAGE"' in line:
        try:
            entry = json_as(line, _Entry)
            text = entry.message
            said = text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
            own = int(entry.microseconds) / 1e6 if entry.microseconds else at
            line, at = said, at if wrong_time(own) else own
        except (Malformed, ValueError, OverflowError):
            pass  # ignore the error: the line is no journal entry, so parse it unchanged
    line = line[:LONGEST]
    return line, _own_time(line, at)


def _own_time(line: str, at: float) -> float:
    match = _ISO.match(line)
    if match is None:
        return at
    try:
        return datetime.fromisoformat(match["at"].replace(",", ".")).timestamp()
    except ValueError:
        return at
