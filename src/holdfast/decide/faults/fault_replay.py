"""Replays a fault case (files, a timeline, checks) and returns the state at each check. Pure; it reads no clock.

The timing follows Ascend's device plugin, which polls once per tick. Each tick applies the events that have arrived, in
the order of their own times, and then the deadlines. A `recover` event arrives one second late, like the driver's,
unless the case sets another delay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.decide.faults import ascend_format
from holdfast.decide.faults.fault_engine import FaultEngine
from holdfast.decide.faults.fault_policy import Levels, Policy, PolicyProblem, Rules, policy_of
from holdfast.decide.faults.fault_remedies import NORMAL, REMEDIES, level_name
from holdfast.decide.faults.shipped_policy import shipped_levels, shipped_rules
from holdfast.errors import BadUsage
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity
from holdfast.untrusted import json_value

#: The time `t = 0` of every replayed case, in seconds since the epoch.
EPOCH_S = 1_700_000_000
RECOVER_DELAY_S = 1.0
_FAR = 1.0e12
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_ORDER = {"reload": 0, "in_use": 0, "event": 1, "manual_release": 3, "restart": 4}


class _Files:
    """The code list and the rule file in force. If a reload names only one file, the other stays in force."""

    def __init__(self) -> None:
        self.levels: Levels = shipped_levels()
        self.rules: Rules = shipped_rules()
        self.problems: list[str] = []

    def take(self, config: Mapping[str, Any]) -> None:
        for key, raw in (("faultCode", "faultCode_raw"), ("faultCustomization", "faultCustomization_raw")):
            if raw in config:
                data = str(config[raw]).encode()
            elif config.get(key) is None and key not in config:
                continue
            elif config[key] == "default":
                self._use_default(key)
                continue
            else:
                data = ascend_format.encode(config[key])
            if key == "faultCode":
                self.levels = self._or_default(ascend_format.read_codes(data), shipped_levels(), key)
            else:
                self.rules = self._or_default(ascend_format.read_rules(data), shipped_rules(), key)

    def _use_default(self, key: str) -> None:
        if key == "faultCode":
            self.levels = shipped_levels()
        else:
            self.rules = shipped_rules()

    def _or_default(self, read: Any, default: Any, key: str) -> Any:
        fatal: PolicyProblem | None = next((problem for problem in read.problems if problem.fatal), None)
        if fatal is not None:
            self.problems.append(f"{key}: {fatal.what}; the default configuration applies")
            return default
        self.problems.extend(f"{key}: {problem}" for problem in read.problems if not problem.harmless)
        return read

    def policy(self) -> Policy:
        return policy_of(self.levels, self.rules)


def play(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one object for each check of the case, in order, with every key. Raise `BadUsage` on a malformed case."""
    try:
        tick = float(case.get("tick_seconds") or 1)
        timeline = list(case.get("timeline") or ())
        return [_state(case, timeline, tick, check) for check in case.get("checks") or ()]
    except _MALFORMED as error:
        raise _bad_case(case, error) from error


def warnings(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning for each ignored part of a case's files, in the order of reading. Raise `BadUsage` on a
    malformed case.
    """
    files = _Files()
    try:
        files.take(case.get("config") or {})
        for op in case.get("timeline") or ():
            if op.get("op") == "reload":
                files.take(op)
    except _MALFORMED as error:
        raise _bad_case(case, error) from error
    return tuple(files.problems)


def _bad_case(case: Mapping[str, Any], error: Exception) -> BadUsage:
    return BadUsage(
        f"{case.get('id', 'the case')}: {type(error).__name__}: {error}; a case has `config`, a `timeline` of "
        "{t, op, …} and `checks` of {t, device}",
        hint="holdfast faults replay --help",
    )


def _state(case: Mapping[str, Any], timeline: list[Any], tick: float, check: Mapping[str, Any]) -> dict[str, Any]:
    upto = math.floor(check["t"] / tick) * tick
    engine = FaultEngine(_first_files(case).policy(), tick_s=tick, lateness_s=_FAR)
    engine.clock = round(EPOCH_S * 1000)
    for name in case.get("in_use") or ():
        engine.set_in_use(str(name), True)
    _take_over(engine, case.get("initial_state"))
    arrived = sorted(_arrived(timeline, tick, upto), key=lambda item: item[:3])
    files = _first_files(case)
    for at, _, _, op, arrival in arrived:
        _do(engine, files, op, at, arrival)
    engine.tick(EPOCH_S + upto)
    return {"t": check["t"], "device": check["device"], **show(engine, str(check["device"]))}


def _first_files(case: Mapping[str, Any]) -> _Files:
    files = _Files()
    files.take(case.get("config") or {})
    return files


def _arrived(timeline: list[Any], tick: float, upto: float) -> Iterable[tuple[float, int, int, Any, float]]:
    for index, op in enumerate(timeline):
        at = float(op["t"])
        rank = _ORDER[op["op"]]
        arrival = at
        if op["op"] == "event":
            recover = op["assertion"] == "recover"
            delay = op.get("arrival_delay")
            arrival += float(delay) if delay is not None else RECOVER_DELAY_S if recover else 0.0
            rank = 2 if recover else rank
        seen = math.ceil(arrival / tick) * tick
        if seen <= upto:
            yield at, rank, index, op, seen


def _do(engine: FaultEngine, files: _Files, op: Mapping[str, Any], at: float, arrival: float) -> None:
    now = EPOCH_S + at
    match op["op"]:
        case "event":
            event = FaultEvent(
                device=str(op["device"]),
                code=str(op["code"]),
                assertion=Assertion(op["assertion"]),
                severity=Severity(op.get("severity") or "major"),
                at=now,
            )
            engine.handle(event, EPOCH_S + arrival)
        case "reload":
            files.take(op)
            engine.reload(files.policy(), now)
        case "manual_release":
            engine.release(str(op["device"]), now)
        case "in_use":
            engine.set_in_use(str(op["device"]), bool(op["in_use"]))
        case "restart":
            state = engine.dump()
            in_use = [name for name, device in engine.devices.items() if device is not None and device.in_use]
            engine.load(state)
            for name in in_use:
                engine.set_in_use(name, True)


def _take_over(engine: FaultEngine, initial: Any) -> None:
    """Add the holds and escalations from another system's records to the engine.

    `initial` has the names of held devices, and device → reasons. Each may be a value, or the text of a cluster's
    record: names separated by commas, reasons as JSON.
    """
    if not initial:
        return
    held = _device_names(_pick(initial, "manually_separated", "manuallySeparateNPU"))
    by_device = _pick(initial, "upgrade_reasons", "upgradeFaultReason") or {}
    if isinstance(by_device, str):
        by_device = json_value(by_device)
    for key, reasons in by_device.items():
        name = _device_name(key)
        for reason in reasons:
            kind, code, level, at = _reason(reason)
            remedy = REMEDIES[level]
            if remedy is Remedy.HOLD and held is not None and name not in held:
                continue  # skip this hold, because a user has released the device since
            if kind == "FaultDuration":
                continue  # skip a duration escalation, because the engine derives it from the fault's events
            engine.hold(name, code or engine.AUTOFILL, at, remedy)
    for name in held or ():
        if not engine.held(name):
            engine.hold(name, engine.AUTOFILL, EPOCH_S)


def _pick(item: Mapping[str, Any], *names: str) -> Any:
    wanted = {name.lower().replace("_", "") for name in names}
    return next((value for key, value in item.items() if key.lower().replace("_", "") in wanted), None)


def _device_names(value: Any) -> list[str] | None:
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    return [_device_name(part) for part in parts if str(part).strip()]


def _device_name(value: Any) -> str:
    return str(value).strip().rpartition("-")[2]


def _reason(reason: Any) -> tuple[str, str, str, float]:
    if isinstance(reason, str):
        kind, code, level = reason.split(":")
        return kind, code, level, EPOCH_S
    at = _pick(reason, "upgrade_time", "time")
    return (
        _pick(reason, "upgrade_type", "type") or "FaultFrequency",
        _pick(reason, "fault_code", "code") or "",
        _pick(reason, "fault_level", "level") or "ManuallySeparateNPU",
        EPOCH_S if at is None else at / 1000 if at > 1e11 else at,
    )


def show(engine: FaultEngine, name: str) -> dict[str, Any]:
    """Return a device's state with the same keys as a check's result."""
    chip, network = engine.plane_levels(name)
    chip_healthy, network_healthy = engine.healthy(name)
    level = max((remedy for remedy in (chip, network) if remedy is not None), default=None)
    return {
        "level": level_name(level),
        "chip_level": level_name(chip) if chip is not None else NORMAL,
        "network_level": level_name(network),
        "health": _health(chip_healthy),
        "network_health": _health(network_healthy),
        "codes": list(engine.codes(name, network=False)),
        "network_codes": list(engine.codes(name, network=True)),
        "manually_separated": engine.held(name),
        "upgrade_reasons": [str(reason) for reason in engine.reasons(name)],
        "frequency_count": engine.counts(name),
        "config": engine.policy.flat(),
    }


def _health(healthy: bool) -> str:
    return "Healthy" if healthy else "Unhealthy"
