"""Reads Ascend's device events from JSON lines, in the form of the driver's event subscription.

    {"EventID": "0x80E18005", "LogicID": 0, "Assertion": 1, "Severity": 2, "AlarmRaisedTime": 1700000000000}

`EventID` is hexadecimal text or a number. `Assertion` is 0 or recover, 1 or occur, 2 or once. `Severity` is 0 or info,
1 or minor, 2 or major, 3 or critical. Times are in milliseconds. The case of keys does not matter.
"""

from __future__ import annotations

from typing import Any

from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices.reported_faults import FUTURE_S, OLDEST_S, FaultRejected, object_in

SOURCE = "ascend"
MOST_LOGIC_ID = 1023
#: Times and codes above this number are invalid, because much larger ones would overflow in a division.
_ENDLESS = 1.0e18
_ASSERTIONS: dict[Any, Assertion] = {
    0: Assertion.RECOVER, 1: Assertion.OCCUR, 2: Assertion.ONCE, **{str(each): each for each in Assertion}
}  # fmt: skip
_SEVERITIES: dict[Any, Severity] = {**dict(enumerate(Severity)), **{str(each): each for each in Severity}}


def read_line(line: bytes | str, now: float, *, node: str = "") -> FaultEvent:
    """Return the event in one line. Raises `FaultRejected` with a message that states the expected form."""
    fields = {str(key).lower().replace("_", ""): value for key, value in object_in(line).items()}
    number = fields.get("logicid", fields.get("deviceid"))
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_LOGIC_ID:
        raise FaultRejected(f"`LogicID` from 0 to {MOST_LOGIC_ID} was expected")
    at = fields.get("alarmraisedtime", fields.get("time"))
    if isinstance(at, bool) or not isinstance(at, int | float) or not -_ENDLESS < at < _ENDLESS:
        raise FaultRejected("`AlarmRaisedTime` in milliseconds was expected")
    seconds = at / 1000 if at else now
    if not now - OLDEST_S <= seconds < now + FUTURE_S:
        raise FaultRejected(f"its time lies {abs(seconds - now):.0f} s in the {'future' if seconds > now else 'past'}")
    assertion, severity = _pick(fields, "assertion", _ASSERTIONS), _pick(fields, "severity", _SEVERITIES)
    return FaultEvent(
        device=f"npu{number}",
        code=_code(fields.get("eventid", fields.get("faultcode"))),
        assertion=assertion,
        at=seconds,
        node=node,
        severity=severity,
        source=SOURCE,
    )


def _code(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _ENDLESS:
        return f"{value:08X}"
    if isinstance(value, str):
        text = value.removeprefix("0x").removeprefix("0X").upper()
        if 0 < len(text) <= 16 and text.isascii() and all(char in "0123456789ABCDEF" for char in text):
            return text
    raise FaultRejected("`EventID` was expected: a fault code in hex")


def _pick(fields: dict[str, Any], name: str, table: dict[Any, Any]) -> Any:
    value = fields.get(name)
    key = value.lower() if isinstance(value, str) else value
    if not isinstance(key, int | float | str) or isinstance(key, bool) or key not in table:
        raise FaultRejected(f"`{name}` is one of {', '.join(str(each) for each in table)}")
    return table[key]
