"""Parses and validates fault events from users and programs, and replays past events under given fault rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from holdfast.decide.faults.fault_engine import FUTURE_S
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.fault_replay import play, warnings
from holdfast.decide.faults.isolation import FaultEngine, LevelChange
from holdfast.errors import BadUsage
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices import ascend_events, reported_faults
from holdfast.observe.devices.reported_faults import FaultRejected
from holdfast.untrusted import Malformed, json_leniently, json_value, wrong_time

#: Older events are refused. The limit, in seconds, is the widest window of any rule (10 days).
OLDEST_S = 864_000.0
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}")
CODE = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:,\]-]{0,63}")


def event_refusal(event: FaultEvent, now: float) -> str:
    """Return why an event is malformed, or "". An unknown device is allowed."""
    if not DEVICE.fullmatch(event.device):
        return f"`{event.device[:40]}` is not a device's name: letters, digits and . _ : @ / + - were expected"
    if not CODE.fullmatch(event.code):
        return f"`{event.code[:40]}` is not a fault code: letters, digits and . _ : - were expected"
    if math.isnan(event.at):
        return "its time is not a number"
    if not event.at < now + FUTURE_S:
        return f"its time lies {event.at - now:.0f} s in the future; a source's clock may be {FUTURE_S:.0f} s ahead"
    if event.at < now - OLDEST_S:
        return (
            f"it is {(now - event.at) / 86_400:.0f} days old; more than {OLDEST_S / 86_400:.0f} says nothing about now"
        )
    return ""


def is_case(data: bytes) -> bool:
    """Return whether the data is a test of the fault rules (a fault case or a list of them), and not a log of
    events.
    """
    try:
        document = json_leniently(data)
    except Malformed:
        return False
    if isinstance(document, list):
        return True
    return isinstance(document, dict) and bool({"timeline", "checks", "config"} & set(document))


def play_cases(text: bytes) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Replay fault cases, which test the fault rules. Return one object per check, and warnings about ignored parts."""
    try:
        document = json_leniently(text)
    except Malformed as error:
        raise BadUsage(f"not a fault case: {error}", hint="holdfast faults replay --help") from error
    cases = document if isinstance(document, list) else [document]
    out: list[dict[str, Any]] = []
    said: list[str] = []
    for case in cases:
        if not isinstance(case, dict):
            raise BadUsage("not a fault case: an object with `config`, `timeline` and `checks` was expected")
        said.extend(warnings(case))
        out.extend({"case": case.get("id"), **result} if len(cases) > 1 else result for result in play(case))
    return out, tuple(dict.fromkeys(said))


def read_event(line: str) -> FaultEvent:
    """Parse one JSON line of a log of events. Raises ValueError with a message that states the expected form."""
    try:
        item = json_value(line)
    except Malformed as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(item, dict):
        raise ValueError("an object was expected")
    at = next((item[key] for key in ("at", "t", "time") if key in item), None)
    device, code = item.get("device"), item.get("code")
    if isinstance(at, bool) or not isinstance(at, int | float) or device is None or code is None:
        raise ValueError("`at` (seconds), `device` and `code` were expected")
    try:
        return FaultEvent(
            device=str(device),
            code=str(code),
            at=float(at),
            assertion=Assertion(item.get("assertion", "occur")),
            severity=Severity(item.get("severity", "major")),
            node=str(item.get("node", "")),
            text=str(item.get("text", "")),
            source=str(item.get("source", "replay")),
        )
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{error}") from error


def read_events(line: str) -> list[FaultEvent]:
    """Parse one line in any format that a run accepts. Events of any age are allowed.

    The formats: the format of `read_event`, the same for several devices at once, a fault message of a cluster, an
    event of Ascend's driver. Raises ValueError with a message that states the expected form.
    """
    try:
        item = json_value(line)
    except Malformed:
        return [read_event(line)]  # `read_event` raises an error that explains the mistake
    if not isinstance(item, dict):
        return [read_event(line)]
    fields = {key.lower(): value for key, value in item.items()}
    try:
        if isinstance(when := fields.get("alarmraisedtime"), int | float) and when:
            return [ascend_events.read_line(line, when / 1000)]
        if "faults" in item and isinstance(when := item.get("timestamp"), int | float):
            return reported_faults.read_line(line, when / 1000, source="replay", known=bool)
        if "devices" in item and isinstance(when := item.get("at"), int | float):
            return reported_faults.read_line(line, float(when), source="replay", known=bool)
    except (FaultRejected, OverflowError) as error:
        raise ValueError(str(error)) from error
    return [read_event(line)]


def play_events(lines: Iterable[str], policy: Policy) -> tuple[list[LevelChange], list[str], FaultEngine]:
    """Replay past events under these rules. Return the changes of devices' levels (required remedies), the bad lines,
    and the fault engine after the last event.
    """
    events: list[FaultEvent] = []
    bad: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = read_events(line)
            for event in found:
                if why := wrong_time(event.at) or event_refusal(event, event.at):
                    raise ValueError(why)
            events += found
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    engine = FaultEngine(policy)
    changes: list[LevelChange] = []
    ranks = {Assertion.OCCUR: 0, Assertion.ONCE: 1, Assertion.RECOVER: 2}
    for event in sorted(events, key=lambda event: (event.at, ranks[event.assertion])):
        changes += _ticks(engine, event.at)
        changes += engine.handle(event, event.at)
    if events:
        # Advance the time, so that the deadlines of the last events pass.
        changes += _ticks(engine, max(event.at for event in events) + 600.0)
    return changes, bad, engine


def _ticks(engine: FaultEngine, upto: float) -> list[LevelChange]:
    changes: list[LevelChange] = []
    while (wake := engine.next_wake()) is not None and wake <= upto:
        changes += engine.tick(wake)
    return changes + engine.tick(upto)
