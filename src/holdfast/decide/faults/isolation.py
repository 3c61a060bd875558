"""The public interface of the fault engine: which devices may be used, and why.

`FaultEngine` computes each device's level (its most severe remedy) from fault events; `standing` and `standings` say
whether a device may be used, and why. All functions are pure. A supervisor uses them like this:

    engine = FaultEngine(policy, breaker=Breaker())
    engine.register(devices)
    changes = engine.handle(event, now)      # for each event
    wake = engine.next_wake()                # when to call `tick`
    changes += engine.tick(now)              # applies the deadlines before `now`
    for change in changes: …                 # change.after: the remedy that now applies; None: no fault
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.catalogue.fault_codes import canonical, describe
from holdfast.decide.faults.fault_engine import ChangeKind, FaultEngine, LevelChange, Reason
from holdfast.decide.faults.fault_policy import NEVER_S, Policy
from holdfast.decide.faults.fault_remedies import standing_of
from holdfast.decide.faults.fault_state import Breaker
from holdfast.model.faults import DeviceStanding, Remedy, Standing
from holdfast.model.human_format import Zone, clock, duration, natural, utc
from holdfast.model.job_spec import JobKind
from holdfast.model.noun_base import Noun

__all__ = [
    "RETRY_WAIT_S",
    "Breaker",
    "ChangeKind",
    "FaultEngine",
    "LevelChange",
    "LevelConsequence",
    "Policy",
    "Reason",
    "answer_of",
    "release_condition",
    "standing",
    "standings",
]

#: An inference job goes on for this many seconds after a RETRY_REQUEST fault, because it retries its requests
#: meanwhile.
RETRY_WAIT_S = 60.0


class LevelConsequence(Noun, frozen=True, kw_only=True):
    """The effects of a device's level (its most severe remedy) on a job that uses the device."""

    #: Whether to stop the attempt.
    stop: bool = False
    #: Whether the next attempt must not use the device.
    avoid: bool = False
    #: Whether the next attempt should use other devices while the fault lasts, if there are any.
    elsewhere: bool = False
    #: Whether to reset the device before it is used again.
    reset: bool = False
    #: Whether workers that registered for a notice get time to save before the stop.
    save: bool = True
    #: When to check again (seconds), because the fault may end by then; None: no check is needed.
    wait_until: float | None = None
    why: str = ""


def answer_of(
    device: str,
    remedy: Remedy | None,
    *,
    since: float,
    now: float,
    kind: JobKind = JobKind.TRAINING,
    on_subhealth: str = "ignore",
) -> LevelConsequence:
    """Return the effects of the level `remedy` on a job that uses the device. `since`: when the fault began (seconds).

    `kind`: training or inference. `on_subhealth`: `ignore`, `grace` (save, and restart without the device) or `force`
    (restart without it at once).
    """
    said = f"{device} asks for {remedy.name}" if remedy is not None else ""
    match remedy:
        case None | Remedy.NONE:
            return LevelConsequence()
        case Remedy.WATCH:
            if on_subhealth == "force":
                why = f"{said}, and the job leaves such devices at once (on_subhealth: force)"
                return LevelConsequence(stop=True, avoid=True, save=False, why=why)
            if on_subhealth == "grace":
                why = f"{said}, and the job saves and leaves such devices (on_subhealth: grace)"
                return LevelConsequence(stop=True, avoid=True, why=why)
            return LevelConsequence()
        case Remedy.RETRY_REQUEST:
            if kind is JobKind.INFERENCE:
                if now - since <= RETRY_WAIT_S:
                    until = since + RETRY_WAIT_S
                    return LevelConsequence(
                        wait_until=until, why=f"{said}; requests are retried for {RETRY_WAIT_S:.0f} s"
                    )
                return LevelConsequence(stop=True, avoid=True, why=f"{said} for longer than {RETRY_WAIT_S:.0f} s")
            return LevelConsequence(stop=True, elsewhere=True, why=said)
        case Remedy.RESTART_WORKERS:
            return LevelConsequence(stop=True, why=said)
        case Remedy.RESET_WHEN_IDLE:
            return LevelConsequence(reset=True, why=said)
        case Remedy.RESET_NOW:
            return LevelConsequence(stop=True, reset=True, why=said)
        case Remedy.AVOID:
            return LevelConsequence(avoid=True, why=f"{said}: the running job goes on, nothing new is placed on it")
        case Remedy.ISOLATE | Remedy.HOLD:
            return LevelConsequence(stop=True, avoid=True, why=said)


def standing(engine: FaultEngine, device: str, zone: Zone = utc) -> DeviceStanding:
    """Return the standing of one device (whether it may be used) as of the engine's latest `now`, with the reason in
    one sentence. `zone`: the time zone of the times in that sentence.
    """
    known = engine.devices.get(device)
    node = known.node if known is not None else ""
    level = engine.level(device)
    placed = standing_of(level)
    reasons = tuple(reason for reason in engine.reasons(device) if reason.counts)
    if level is None or engine.given_back(device):
        return DeviceStanding(device=device, node=node)
    deciding = [reason for reason in reasons if reason.remedy is level]
    codes = sorted({*engine.codes(device), *(reason.code for reason in reasons)})
    if deciding:
        first = min(deciding, key=lambda reason: reason.at)
        since, why = first.at, _why(engine, first, zone)
    else:
        since, why = _base(engine, device, level, zone)
    end = release_condition(engine, device, level, deciding)
    return DeviceStanding(
        device=device,
        node=node,
        standing=placed,
        codes=tuple(codes),
        since=since,
        reason=f"{why}; {end}" if end else why,
    )


def standings(engine: FaultEngine, zone: Zone = utc) -> tuple[DeviceStanding, ...]:
    """Return the standing of each known device (whether it may be used), sorted by name (gpu2 before gpu10)."""
    return tuple(standing(engine, name, zone) for name in sorted(engine.devices, key=natural))


def release_condition(engine: FaultEngine, device: str, level: Remedy, deciding: Iterable[Reason]) -> str:
    """Return the condition that makes the device usable again, in words; empty for a healthy device.

    `level`: the device's level (its most severe remedy). `deciding`: the escalations and holds that cause it.
    """
    found = list(deciding)
    if standing_of(level) is Standing.HEALTHY:
        return ""
    for reason in found:
        if reason.kind == "FaultDuration":
            rule = engine.policy.duration.get(canonical(reason.code))
            return f"ends once the fault has been gone for longer than {rule.recover_s} s" if rule else ""
    if found:
        rule_f = engine.policy.frequency.get(canonical(found[0].code))
        by_hand = f"`holdfast release {device} --reason …`"
        if rule_f is None or rule_f.release_s >= NEVER_S:
            return f"stays until a person gives it back with {by_hand}"
        return f"stays until the code is quiet for longer than {duration(rule_f.release_s)}, or {by_hand}"
    if not engine.lasts(device):
        return "it was momentary: nothing of it lasts"
    code = next((code for _, code in sorted(engine.active(device, level))), "CODE")
    told = f"`holdfast faults report --device {device} --code {code} --recover`"
    reset = Remedy.RESET_WHEN_IDLE <= level <= Remedy.RESET_NOW
    how = "a reset clears the fault" if reset else "its source reports that the fault is over"
    return f"ends when {how}, or {told}"


def _why(engine: FaultEngine, reason: Reason, zone: Zone) -> str:
    what = describe(reason.code)
    key = canonical(reason.code)
    match reason.kind:
        case "FaultFrequency":
            rule = engine.policy.frequency.get(key)
            if rule is not None:
                often = f"{rule.times} times" if rule.times > 1 else "once"
                since = clock(reason.at, zone)
                return f"{what}: {often} within {duration(rule.window_s)}, so {reason.remedy.name} since {since}"
            return f"{what}: came too often, {reason.remedy.name} since {clock(reason.at, zone)} by a rule that is gone"
        case "FaultDuration":
            lasting = engine.policy.duration.get(key)
            limit = f" for longer than {lasting.fault_s} s" if lasting is not None else " for too long"
            return f"{what}: lasted{limit}, so {reason.remedy.name} since {clock(reason.at, zone)}"
    return f"held since {clock(reason.at, zone)}; its reason was not kept"


def _base(engine: FaultEngine, device: str, level: Remedy, zone: Zone) -> tuple[float, str]:
    found = engine.active(device, level)
    if not found:
        return engine.clock / 1000, f"asks for {level.name}"
    at, code = min(found)
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return at, f"{describe(code)}{more}: {level.name} since {clock(at, zone)}"
