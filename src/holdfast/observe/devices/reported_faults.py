"""Reads faults that other programs report as JSON lines, and validates them.

There are two forms. The first is holdfast's own, with one event per line:

    {"who": "pingmesh", "at": 1700000000.0, "device": "gpu3", "code": "79", "assertion": "occur", "severity": "major"}

`devices` may list several. The second is the public fault message of Ascend clusters, with `resource`, `timestamp` and
`faults`. Each fault has `faultCode`, `faultTime` (milliseconds), `assertion` and `influence` (nodes and their
`deviceIds`).

A line is accepted as a whole or refused. It must have a sender, a plausible time, a known code, and at most
`MOST_DEVICES` devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.catalogue.fault_codes import all_codes, canonical
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.untrusted import Malformed, json_value

#: The components of an Ascend cluster that may send Ascend's public fault message (values of its key `resource`).
PUBLIC_RESOURCES = frozenset({"CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"})
MOST_DEVICES = 64
MOST_FAULTS = 100
LONGEST = 65_536
FUTURE_S = 60.0
OLDEST_S = 864_000.0
#: Times above this number are invalid, because much larger ones would overflow in a division.
_ENDLESS = 1.0e18
_WHO = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@/-]{0,63}")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}")


_KINDS = ("not JSON", "in the future", "days old", "in no catalogue", "devices are concerned", "device's name")


class FaultRejected(Exception):
    """Raised if a line that reports a fault is no valid report. The text is the reason."""


def kind_of(why: str) -> str:
    """Return the kind of a refusal, such as "days old", from its reason `why`. Refused lines are counted by kind."""
    return next((words for words in _KINDS if words in why), "malformed")


def in_catalogue(code: str) -> bool:
    """Return whether a built-in catalogue contains the code."""
    return canonical(code) in all_codes()


def read_line(
    line: bytes | str,
    now: float,
    *,
    source: str = "socket",
    known: Callable[[str], bool] = in_catalogue,
    resources: frozenset[str] = PUBLIC_RESOURCES,
) -> list[FaultEvent]:
    """Return the events of one line. If one of them is invalid, raise `FaultRejected` for all, with a message that
    states the expected form.

    `now`: seconds since the epoch. `source`: the name of the socket or file, for events. `known`: whether a code is
    known. `resources`: the senders that may use Ascend's form.
    """
    item = object_in(line)
    if "faults" in item:
        return _public(item, now, source, known, resources)
    return _own(item, now, source, known)


def object_in(line: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a line. Raises `FaultRejected`."""
    if len(line) > LONGEST:
        raise FaultRejected(f"the line is longer than {LONGEST} bytes")
    try:
        item = json_value(line)
    except Malformed as error:
        raise FaultRejected(f"it is not JSON: {error}") from error
    if not isinstance(item, dict):
        raise FaultRejected("a JSON object was expected")
    return item


def _own(item: dict[str, Any], now: float, source: str, known: Callable[[str], bool]) -> list[FaultEvent]:
    who = _who(item.get("who"))
    devices = item.get("devices", [item["device"]] if "device" in item else None)
    if not isinstance(devices, list) or not devices:
        raise FaultRejected("`device` or a list of `devices` was expected")
    return _events(
        who=who,
        devices=[_device(device) for device in devices],
        at=_when(item.get("at"), 1.0, now),
        code=_code(item.get("code"), known),
        assertion=item.get("assertion", "occur"),
        severity=item.get("severity", "major"),
        node=_text(item.get("node", ""), "node", 128),
        text=_text(item.get("text", ""), "text", 4096),
        source=source,
    )


def _public(
    item: dict[str, Any], now: float, source: str, known: Callable[[str], bool], resources: frozenset[str]
) -> list[FaultEvent]:
    who = _who(item.get("resource"))
    if who not in resources:
        raise FaultRejected(f"`{who}` is none of those who may report: {', '.join(sorted(resources))}")
    _when(item.get("timestamp"), 1000.0, now)
    faults = item["faults"]
    if not isinstance(faults, list) or not 0 < len(faults) <= MOST_FAULTS:
        raise FaultRejected(f"1 to {MOST_FAULTS} `faults` were expected")
    events: list[FaultEvent] = []
    for fault in faults:
        if not isinstance(fault, dict):
            raise FaultRejected("each of `faults` is an object")
        code, at = _code(fault.get("faultCode"), known), _when(fault.get("faultTime"), 1000.0, now)
        text = _text(fault.get("description", ""), "description", 4096)
        for node, devices in _influence(fault.get("influence")):
            events += _events(
                who=who,
                devices=devices,
                at=at,
                code=code,
                assertion=fault.get("assertion"),
                severity="major",
                node=node,
                text=text,
                source=source,
            )
    if len(events) > MOST_DEVICES * MOST_FAULTS:
        raise FaultRejected("it concerns too many devices")
    return events


def _influence(value: Any) -> list[tuple[str, list[str]]]:
    if not isinstance(value, list) or not value:
        raise FaultRejected("`influence` says which nodes and devices are concerned; a list was expected")
    found, count = [], 0
    for part in value:
        if not isinstance(part, dict):
            raise FaultRejected("each of `influence` is an object")
        node = _device(part.get("nodeName"))
        numbers = part.get("deviceIds")
        if not isinstance(numbers, list) or not numbers:
            raise FaultRejected("`deviceIds` of an influence is a list of numbers")
        if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 1024 for n in numbers):
            raise FaultRejected("`deviceIds` are numbers from 0 to 1023")
        count += len(numbers)
        found.append((node, [f"npu{n}" for n in numbers]))
    if count > MOST_DEVICES:
        raise FaultRejected(f"{count} devices are concerned; at most {MOST_DEVICES} are believed")
    return found


def _events(
    *,
    who: str,
    devices: list[str],
    at: float,
    code: str,
    assertion: Any,
    severity: Any,
    node: str,
    text: str,
    source: str,
) -> list[FaultEvent]:
    if len(devices) > MOST_DEVICES:
        raise FaultRejected(f"{len(devices)} devices are concerned; at most {MOST_DEVICES} are believed")
    try:
        said, grave = Assertion(assertion), Severity(severity)
    except ValueError as error:
        raise FaultRejected(
            f"{error}; assertion is occur, recover or once, severity info, minor, major or critical"
        ) from error
    return [
        FaultEvent(
            device=device,
            code=code,
            assertion=said,
            at=at,
            node=node,
            severity=grave,
            text=text,
            source=f"{source} ({who})",
        )
        for device in dict.fromkeys(devices)
    ]


def _who(value: Any) -> str:
    if not isinstance(value, str) or not _WHO.fullmatch(value):
        raise FaultRejected("`who` says who reports: 1 to 64 letters, digits and . _ - @ / were expected")
    return value


def _device(value: Any) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise FaultRejected(f"{str(value)[:40]!r} is not a device's name")
    return value


def _code(value: Any, known: Callable[[str], bool]) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isprintable():
        raise FaultRejected("`code` was expected: the fault code as a text")
    if not known(value):
        raise FaultRejected(f"the code {value} is in no catalogue and in no code list")
    return value


def _when(value: Any, unit: float, now: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_ENDLESS < value < _ENDLESS:
        raise FaultRejected("when it happened was expected, as a number")
    at = value / unit
    if not at < now + FUTURE_S:
        raise FaultRejected(f"its time lies {at - now:.0f} s in the future")
    if at < now - OLDEST_S:
        raise FaultRejected(f"it is {(now - at) / 86_400:.0f} days old")
    return at


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str):
        raise FaultRejected(f"`{name}` is a text")
    return value[:most]
