"""How fast the fault engine is, and what it costs: `python bench/faults.py` (`--smoke` for a quick look).

A bad day of a large cluster: most events are about faults that nobody acts on, some restart workers, some come and go,
a few escalate. They arrive in batches of a second. Beside it, in the same run, an engine without state that folds a
device's whole history again for every event. CPU seconds of this process are counted, the garbage collector's and the
forgetting of what is over included, so that other load on the machine matters less; the yardstick says how fast the
machine was meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import msgspec
from _common import machine, table

from holdfast.decide.faults.fault_engine import FaultEngine
from holdfast.decide.faults.fault_policy import FrequencyRule, Policy
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Assertion, FaultEvent, Remedy

START = 1_700_000_000.0
DAY_S = 86_400.0
SWEEP_S = 60.0
#: The day is told in so many parts: what grows shows.
PARTS = 20
YARD = 200_000
#: Some machines count CPU time in ticks: a short piece may take none.
CLOCK_TICK_S = 1e-3
#: Events whose instructions are counted.
COUNTED = 20_000
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
Mix = tuple[tuple[str, Assertion, int], ...]


def day(events: int, devices: int, seed: int, mix: Mix = MIX, lasts_s: float = DAY_S) -> Iterator[list[FaultEvent]]:
    """The day's events in order of time, a second at a time."""
    rng = random.Random(seed)
    names = [f"npu{number}" for number in range(devices)]
    kinds = [(code, assertion) for code, assertion, _ in mix]
    weights = [weight for *_, weight in mix]
    step = lasts_s / events
    done = 0
    for second in range(1, round(lasts_s) + 1):
        upto = min(events, round(second / lasts_s * events))
        if upto == done:
            continue
        chosen = rng.choices(kinds, weights, k=upto - done)
        where = rng.choices(names, k=upto - done)
        yield [
            FaultEvent(device=device, code=code, assertion=assertion, at=START + (done + i) * step)
            for i, (device, (code, assertion)) in enumerate(zip(where, chosen, strict=True))
        ]
        done = upto


class Play:
    """A day through an engine: CPU seconds of each part of the day, and the longest calls."""

    def __init__(self, engine: FaultEngine) -> None:
        self.engine = engine
        self.parts: list[float] = []
        self.yards: list[float] = []
        self.collecting = 0.0
        self.sweeping = 0.0
        self.told = 0
        self.wakes: list[float] = []
        self.longest = {"batch": 0.0, "batch without collections": 0.0, "sweep": 0.0}
        self._timed = False

    def through(self, events: int, devices: int, seed: int, mix: Mix = MIX, lasts_s: float = DAY_S) -> Play:
        gc.collect()
        gc.callbacks.append(self._collected)
        try:
            self._through(events, devices, seed, mix, lasts_s)
        finally:
            gc.callbacks.remove(self._collected)
        return self

    def _through(self, events: int, devices: int, seed: int, mix: Mix, lasts_s: float) -> None:
        engine, clock, longest = self.engine, time.process_time, self.longest
        spent, done, swept = 0.0, 0, START
        for batch in day(events, devices, seed, mix, lasts_s):
            now = float(int(batch[-1].at) + 1)
            self._timed = True
            collected = self.collecting
            began = clock()
            told = engine.handle_all(batch, now)
            handled = clock()
            own = handled - began - (self.collecting - collected)
            engine.next_wake()
            asked = ended = clock()
            if now - swept >= SWEEP_S:
                swept = now
                engine.sweep()
                ended = clock()
                self.sweeping += ended - asked
                longest["sweep"] = max(longest["sweep"], ended - asked)
            self._timed = False
            self.told += len(told)
            self.wakes.append(asked - handled)
            longest["batch"] = max(longest["batch"], handled - began)
            longest["batch without collections"] = max(longest["batch without collections"], own)
            spent += ended - began
            done += len(batch)
            if done >= events * (len(self.parts) + 1) // PARTS:
                self.parts.append(spent)
                self.yards.append(yardstick())
                spent = 0.0

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if self._timed:
            self.collecting += time.process_time() if phase == "stop" else -time.process_time()


def yardstick() -> float:
    """Steps of a bare Python loop per CPU second: how fast the machine is just now."""
    began, number = time.process_time(), 0
    while number < YARD:
        number += 1
    return YARD / max(time.process_time() - began, CLOCK_TICK_S)


def naive(policy: Policy, events: int, devices: int, seed: int) -> float:
    """CPU seconds of folding each device's whole history again at every event."""
    history: dict[str, list[FaultEvent]] = {}
    spent = 0.0
    for batch in day(events, devices, seed):
        began = time.process_time()
        for event in batch:
            told = history.setdefault(event.device, [])
            told.append(event)
            engine = FaultEngine(policy)
            for each in told:
                engine.tick(each.at)
                engine.handle(each, each.at)
            engine.level(event.device)
        spent += time.process_time() - began
    return spent


def engine_of(devices: int) -> FaultEngine:
    engine = FaultEngine(default_policy())
    engine.register(f"npu{number}" for number in range(devices))
    return engine


def bytes_each(devices: int) -> dict[str, float]:
    """Resident bytes a device that is healthy, that has a fault, and that is healthy again and swept."""
    default_policy()
    gc.collect()
    before, said = _resident(), {}

    def note(what: str) -> None:
        gc.collect()
        said[what] = (_resident() - before) / devices

    engine = engine_of(devices)
    note("healthy, its name included")
    for step, assertion in enumerate((Assertion.OCCUR, Assertion.RECOVER)):
        for name in list(engine.devices):
            event = FaultEvent(device=name, code="8C0E4E00", assertion=assertion, at=START + step)
            engine.handle(event, START + step)
        if assertion is Assertion.OCCUR:
            note("with an active fault")
    engine.tick(START + DAY_S)
    engine.sweep()
    note("healthy again")
    return said


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


def decoded(events: int, devices: int, seed: int) -> float:
    """Events per CPU second from JSON lines to structs, which comes before all this."""
    batches = [msgspec.json.encode(batch) for batch in day(events, devices, seed)]
    decoder = msgspec.json.Decoder(list[FaultEvent])
    began = time.process_time()
    for batch in batches:
        decoder.decode(batch)
    return events / max(time.process_time() - began, CLOCK_TICK_S)


def profile(events: int, devices: int, seed: int, lasts_s: float) -> tuple[Counter[str], int]:
    """Where CPU time goes, looked at every millisecond: samples of the engine by function, and all of them."""
    seen: Counter[str] = Counter()

    def look(_: int, frame: FrameType | None) -> None:
        # What is written in C counts for the engine's function that called it.
        while frame is not None and "faults" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None and "decide" in frame.f_code.co_filename:
            seen[frame.f_code.co_qualname] += 1

    play = Play(engine_of(devices))
    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    try:
        play.through(events, devices, seed, lasts_s=lasts_s)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    return seen, sum(seen.values())


def instructions(devices: int, events: int, seed: int) -> list[tuple[str, str]]:
    """Instructions an event of each kind, by valgrind: no busy neighbour changes them. Empty where it is missing."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return []

    def counted(code: str, number: int) -> int:
        words = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", sys.executable]
        options = ["--only", code, "--events", str(number), "--devices", str(devices), "--seed", str(seed)]
        done = subprocess.run(
            [*words, __file__, *options],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
        assert found is not None, done.stderr
        return int(found[1].replace(",", ""))

    codes = [*sorted({code for code, *_ in MIX}), "mix"]
    return [(code, f"{(counted(code, events) - counted(code, 0)) / events:,.0f}") for code in codes]


def only(code: str, events: int, devices: int, seed: int) -> None:
    """A stream of one kind through an engine, for `instructions`. With no events all but the engine's work is done."""
    mix = MIX if code == "mix" else tuple(kind for kind in MIX if kind[0] == code)
    engine, most = engine_of(devices), max(events, COUNTED)
    batches = list(day(most, devices, seed, mix, DAY_S * most / 10_000_000))
    for batch in batches if events else ():
        engine.handle_all(batch, float(int(batch[-1].at) + 1))


def _resident() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small numbers, a few seconds")
    parser.add_argument("--events", type=int, default=None)
    parser.add_argument("--devices", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        only(args.only, args.events, args.devices, args.seed)
        return
    events = args.events or (40_000 if args.smoke else 10_000_000)
    devices = args.devices or (1_000 if args.smoke else 100_000)
    seed, few, some = args.seed, min(events, 4_000 if args.smoke else 40_000), max(1, events // 50)
    sizes = list(bytes_each(devices).items())
    before = _resident()
    engine = engine_of(devices)
    play = Play(engine).through(events, devices, seed)
    grown = (_resident() - before) / devices
    spent = sum(play.parts)
    held = sum(engine.held(name) for name in engine.devices)
    states = sum(len(device.codes) for device in engine.devices.values() if device is not None)
    reloaded = reload_seconds(engine, START + DAY_S + 1)
    del engine, play.engine
    again = naive(default_policy(), few, max(1, few // 100), seed)
    wakes = sorted(play.wakes)
    per_part = events / PARTS
    print(
        f"{machine()}. {events:,} events over {devices:,} devices in one simulated day, {play.told:,} changes told, "
        f"{held:,} devices held at its end. Yardstick: {median(play.yards) / 1e6:.0f} million steps of a bare Python "
        f"loop per CPU second (between {min(play.yards) / 1e6:.0f} and {max(play.yards) / 1e6:.0f} during the run).\n"
    )
    rows = [
        ("events per CPU second", f"{events / spent:,.0f}", "300,000"),
        ("… in the best and the worst 20th of the day",
         f"{per_part / min(play.parts):,.0f} and {per_part / max(play.parts):,.0f}", ""),
        ("… of a naive engine, with a history of about 100 a device", f"{few / again:,.0f}", ""),
        ("share of the garbage collector, of forgetting",
         f"{play.collecting / spent:.0%}, {play.sweeping / spent:.0%}", ""),
        ("steps of the yardstick an event", f"{median(play.yards) * spent / events:,.1f}", ""),
        ("`next_wake`: median, longest of " + f"{len(wakes):,}",
         f"{median(wakes) * 1e6:.1f} µs, {wakes[-1] * 1e6:,.0f} µs", "microseconds"),
        ("longest batch of a second, longest `sweep`",
         f"{play.longest['batch'] * 1e3:.1f} ms, {play.longest['sweep'] * 1e3:.1f} ms", ""),
        ("… the garbage collector's part taken off", f"{play.longest['batch without collections'] * 1e3:.1f} ms", ""),
        (f"reload with other rules for 800 codes, {states:,} states", f"{reloaded * 1e3:,.0f} ms", "well below 1 s"),
        ("decoding from JSON, events per CPU second", f"{decoded(some, devices, seed):,.0f}", "outside the aim"),
        *((f"bytes a device {what}", f"{size:,.0f}", "under 1,024" * ("fault" not in what)) for what, size in sizes),
        ("bytes a device at the end of the day, bad ones included", f"{grown:,.0f}", ""),
    ]  # fmt: skip
    print(table(("", "measured", "aim"), rows), end="\n\n")
    lasts_s = DAY_S / 50
    kinds = sorted({(code, assertion is Assertion.ONCE) for code, assertion, _ in MIX})
    streams = []
    for code, momentary in kinds:
        mix = tuple(kind for kind in MIX if kind[0] == code)
        alone = Play(engine_of(devices)).through(some, devices, seed, mix, lasts_s)
        rate, yard = some / sum(alone.parts), median(alone.yards)
        streams.append((code, "momentary" if momentary else "lasting", f"{rate:,.0f}", f"{yard / rate:,.1f}"))
    print("Each kind of event in a stream of its own, from the start:\n")
    print(table(("code", "", "events per CPU second", "steps of the yardstick an event"), streams), end="\n\n")
    if found := [] if args.smoke else instructions(devices, COUNTED, seed):
        print("Instructions an event, counted by valgrind:\n")
        print(table(("code", "instructions"), found), end="\n\n")
    seen, samples = profile(some, devices, seed, lasts_s)
    print("Where the mixed stream's time goes (samples of the engine's own functions, what they call in C included):\n")
    print(table(("function", "share"), [(name, f"{n / max(samples, 1):.0%}") for name, n in seen.most_common(12)]))


if __name__ == "__main__":
    main()
