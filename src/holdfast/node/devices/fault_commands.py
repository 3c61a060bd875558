"""The entry point for `holdfast faults`, `holdfast devices` and `holdfast release`: device faults, and the states of
devices (standings).
"""

from __future__ import annotations

import os
import pwd
from typing import Any

import msgspec

from holdfast.catalogue.fault_codes import all_codes, canonical, describe
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.fault_remedies import level_name, remedy_of
from holdfast.decide.faults.isolation import FaultEngine, LevelChange
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.model.human_format import duration
from holdfast.node.devices.fault_event_lines import event_refusal, is_case, play_cases, play_events
from holdfast.node.devices.fault_log import FaultLog
from holdfast.node.devices.policy_files import LintedFile, LoadedPolicy, lint, load_policy
from holdfast.observe.devices.device_discovery import local_devices
from holdfast.record.held_devices import publish
from holdfast.wire.fault_news import notify_all

__all__ = [
    "FaultLog",
    "LevelChange",
    "LintedFile",
    "LoadedPolicy",
    "Policy",
    "event_refusal",
    "explain_event",
    "is_case",
    "lint",
    "list_codes",
    "list_devices",
    "load_policy",
    "notify_all",
    "play_cases",
    "play_events",
    "publish",
    "user_name",
]


def user_name() -> str:
    """Return the name of the user who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def list_codes(policy: Policy) -> list[dict[str, Any]]:
    """List every fault code that the policy or a catalogue names, with its level (required remedy), name and rules."""
    rows = []
    table = all_codes()
    for code in sorted({*policy.levels, *policy.frequency, *policy.duration, *table}):
        known = table.get(code)
        severity = known.severity if known is not None else Severity.MAJOR
        remedy = remedy_of(code, severity, policy.levels)
        counted, lasting = policy.frequency.get(code), policy.duration.get(code)
        rows.append(
            {
                "code": policy.spell(code),
                "remedy": remedy.name,
                "level": level_name(remedy),
                "listed": code in policy.levels,
                "vendor": known.vendor if known is not None else "",
                "name": known.name if known is not None else "",
                "frequency": None if counted is None else msgspec.to_builtins(counted),
                "duration": None if lasting is None else msgspec.to_builtins(lasting),
            }
        )
    return rows


def list_devices(log: FaultLog) -> list[dict[str, Any]]:
    """List every device of the fault log and of this machine, each with its state (standing), active codes, counts,
    start time and reason.
    """
    log.engine.register(local_devices())
    rows = []
    for stands in log.standings():
        engine = log.engine
        rows.append(
            {
                "device": stands.device,
                "node": stands.node,
                "standing": str(stands.standing),
                "codes": list(stands.codes),
                "since": stands.since,
                "reason": stands.reason,
                "remedy": level.name if (level := engine.level(stands.device)) is not None else None,
                "counts": engine.counts(stands.device),
                "counted": [_counted(engine, code, count) for code, count in engine.counts(stands.device).items()],
                "upgrade_reasons": [str(reason) for reason in engine.reasons(stands.device)],
            }
        )
    return rows


def _counted(engine: FaultEngine, code: str, count: int) -> str:
    rule = engine.policy.frequency.get(canonical(code))
    if rule is None:
        return f"{code} {count}"
    return f"{code}: {count} of {rule.times} within {duration(rule.window_s)} before {rule.remedy.name}"


def explain_event(event: FaultEvent, policy: Policy) -> str:
    """Return a sentence about the remedy that the code of a fault event requires on its own."""
    key = canonical(event.code)
    if event.assertion is Assertion.RECOVER:
        return f"{describe(event.code)} is over"
    remedy = remedy_of(key, event.severity, policy.levels)
    if key not in policy.levels and key not in all_codes():
        return f"{event.code} is in no list of codes: by its severity ({event.severity}) it asks for {remedy.name}"
    named = f" ({level_name(remedy)})" if policy.seed_names else ""
    return f"{describe(event.code)} asks for {remedy.name}{named}"
