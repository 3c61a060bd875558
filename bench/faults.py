"""How fast the fault engine is, and what it costs: `python bench/faults.py` (`--smoke` for a quick look).

A bad day of a large cluster: most events are about faults that nobody acts on, some restart workers, some come and
go, a few escalate. Beside it, in the same run, an engine without state that folds a device's whole history again for
every event. CPU seconds of this process are counted, so that other load on the machine matters less.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from holdfast.decide.faults.engine import FaultEngine
from holdfast.decide.faults.policy import FrequencyRule, Policy
from holdfast.decide.faults.shipped import default_policy
from holdfast.model.faults import Assertion, FaultEvent, Remedy

START = 1_700_000_000.0
DAY_S = 86_400.0
CHUNK = 100_000
# (code, assertion, weight): correctable errors that ask for nothing, programs' Xids, flapping links, failing chips.
MIX = (
    ("80E21007", Assertion.ONCE, 50),
    ("92", Assertion.ONCE, 15),
    ("31", Assertion.ONCE, 5),
    ("8C204E00", Assertion.ONCE, 3),
    ("81078603", Assertion.OCCUR, 6),
    ("81078603", Assertion.RECOVER, 6),
    ("80C98008", Assertion.OCCUR, 2),
    ("80C98008", Assertion.RECOVER, 3),
    ("8C0E4E00", Assertion.OCCUR, 4),
    ("8C0E4E00", Assertion.RECOVER, 5),
    ("80E18005", Assertion.ONCE, 1),
)


def day(events: int, devices: int, seed: int) -> Iterator[list[FaultEvent]]:
    """The day's events in chunks, in order of time."""
    rng = random.Random(seed)
    names = [f"npu{number}" for number in range(devices)]
    kinds = [(code, assertion) for code, assertion, _ in MIX]
    weights = [weight for *_, weight in MIX]
    step = DAY_S / events
    for first in range(0, events, CHUNK):
        count = min(CHUNK, events - first)
        chosen = rng.choices(kinds, weights, k=count)
        where = rng.choices(names, k=count)
        yield [
            FaultEvent(device=device, code=code, assertion=assertion, at=START + (first + i) * step)
            for i, (device, (code, assertion)) in enumerate(zip(where, chosen, strict=True))
        ]


def play(engine: FaultEngine, events: int, devices: int, seed: int) -> tuple[float, int, float]:
    """CPU seconds in the engine, changes told, and the longest `next_wake` in microseconds."""
    spent, changes, slowest = 0.0, 0, 0.0
    for chunk in day(events, devices, seed):
        gc.collect()
        gc.disable()
        began = time.process_time()
        handle, told = engine.handle, 0
        upto = chunk[0].at + 1.0
        for event in chunk:
            at = event.at
            if at > upto:
                told += len(engine.tick(at))
                upto = at + 1.0
            if handle(event, at):
                told += 1
        spent += time.process_time() - began
        changes += told
        for _ in range(3):
            began = time.process_time()
            engine.next_wake()
            slowest = max(slowest, time.process_time() - began)
        gc.enable()
        engine.sweep()
    return spent, changes, slowest * 1e6


def naive(policy: Policy, events: int, devices: int, seed: int) -> float:
    """CPU seconds of folding each device's whole history again at every event."""
    history: dict[str, list[FaultEvent]] = {}
    spent = 0.0
    for chunk in day(events, devices, seed):
        began = time.process_time()
        for event in chunk:
            told = history.setdefault(event.device, [])
            told.append(event)
            engine = FaultEngine(policy)
            for each in told:
                engine.tick(each.at)
                engine.handle(each, each.at)
            engine.level(event.device)
        spent += time.process_time() - began
    return spent


def healthy_bytes(devices: int) -> float:
    """Resident bytes a healthy device, its name included."""
    engine = FaultEngine(default_policy())
    gc.collect()
    before = _resident()
    engine.register(f"npu{number}" for number in range(devices))
    gc.collect()
    return (_resident() - before) / devices


def recovered_bytes(devices: int) -> float:
    """Resident bytes a device that had a fault, and is healthy again and swept."""
    engine = FaultEngine(default_policy())
    gc.collect()
    before = _resident()
    for number in range(devices):
        engine.handle(FaultEvent(device=f"npu{number}", code="8C0E4E00", assertion=Assertion.OCCUR, at=START), START)
        done = FaultEvent(device=f"npu{number}", code="8C0E4E00", assertion=Assertion.RECOVER, at=START + 1)
        engine.handle(done, START + 1)
    engine.tick(START + DAY_S)
    engine.sweep()
    gc.collect()
    return (_resident() - before) / devices


def reload_seconds(engine: FaultEngine, now: float) -> float:
    """CPU seconds of a reload that changes the rules of 800 codes."""
    old = engine.policy
    codes = sorted(old.levels)[:800]
    rule = FrequencyRule(window_s=3600, times=50, remedy=Remedy.ISOLATE, release_s=600)
    policy = Policy(
        levels={**old.levels, "8C0E4E00": Remedy.WATCH},
        frequency={**old.frequency, **dict.fromkeys(codes, rule)},
        duration=old.duration,
        grace=old.grace,
    )
    began = time.process_time()
    engine.reload(policy, now)
    return time.process_time() - began


def _resident() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small numbers, a few seconds")
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--devices", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    events = args.events or (40_000 if args.smoke else 10_000_000)
    devices = args.devices or (1_000 if args.smoke else 100_000)
    few = min(events, 4_000 if args.smoke else 40_000)
    per_healthy, per_recovered = healthy_bytes(devices), recovered_bytes(devices)
    engine = FaultEngine(default_policy())
    engine.register(f"npu{number}" for number in range(devices))
    spent, changes, slowest = play(engine, events, devices, args.seed)
    held = sum(engine.held(f"npu{number}") for number in range(devices))
    again = naive(default_policy(), few, max(1, few // 100), args.seed)
    print(f"events                       {events:>12,} over {devices:,} devices, one day; {changes:,} changes told")
    print(f"engine                       {events / spent:>12,.0f} events per CPU second")
    print(f"naive (history of ~100)      {few / again:>12,.0f} events per CPU second")
    print(f"next_wake, the longest       {slowest:>12,.1f} microseconds")
    print(f"healthy device               {per_healthy:>12,.0f} bytes")
    print(f"device healthy again         {per_recovered:>12,.0f} bytes")
    print(f"held at the end              {held:>12,} devices")
    print(f"reload of 800 codes' rules   {reload_seconds(engine, START + DAY_S + 1):>12,.3f} CPU seconds")


if __name__ == "__main__":
    main()
