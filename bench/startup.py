"""From the shell to the worker's first line, next to plain `python`; and what the supervisor costs while it waits.

A launch is timed twice: by the wall, and by the CPU that every process of it had used when the first line arrived.
They agree on a quiet machine; on a busy one only the second means something.

    python bench/startup.py [--runs 21] [--idle 10] [--smoke]
"""

from __future__ import annotations

import argparse
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _common import (
    beside_python,
    children,
    cpu_s,
    holdfast,
    machine,
    memory_bytes,
    running,
    spread,
    surroundings,
    table,
    tree,
)

FIRST = b"first line"
SCRIPT = """import sys, time
print("first line", flush=True)
sys.stdin.read()
"""
SHELL = "echo first line; exec sleep 60"
AIM_MS, AIM_MB, AIM_CPU = 100.0, 40.0, 0.5
#: What a supervisor does once, in its first quiet seconds, is no idling.
SETTLE_S = 6.0


@dataclass(frozen=True, slots=True)
class Start:
    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Idle:
    supervisor_pss: int
    supervisor_rss: int
    guard_pss: int
    guard_rss: int
    cpu_share: float


def start(command: Sequence[str], env: dict[str, str], cwd: Path) -> Start:
    """One launch: until its first line is in our hands."""
    begun = time.perf_counter()
    with running(command, env, cwd) as process:
        assert process.stdout is not None
        seen = b""
        while FIRST not in seen:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise SystemExit(f"{' '.join(command)}: no first line")
            seen += data
        wall = time.perf_counter() - begun
        used = cpu_s(tree(process.pid))
    return Start(wall * 1000, used * 1000)


def idle(env: dict[str, str], cwd: Path, idle_s: float, settle_s: float) -> Idle:
    """A gang of two that does nothing: what its guard and supervisor take."""
    command = [*holdfast(), "run", "--no-checks", "--nproc-per-node", "2", "--no-python", "sleep", "600"]
    with running(command, env, cwd) as process:
        assert process.stderr is not None
        while b"are up" not in process.stderr.readline():
            pass
        (supervisor,) = children(process.pid)
        time.sleep(settle_s)
        before, began = cpu_s([process.pid, supervisor]), time.perf_counter()
        time.sleep(idle_s)
        share = (cpu_s([process.pid, supervisor]) - before) / (time.perf_counter() - began)
        supervisor_pss, supervisor_rss = memory_bytes(supervisor)
        guard_pss, guard_rss = memory_bytes(process.pid)
    return Idle(supervisor_pss, supervisor_rss, guard_pss, guard_rss, share)


def importing(env: dict[str, str], cwd: Path, runs: int) -> list[tuple[str, int, float]]:
    """(part, modules, ms) of what `python -X importtime` counts: each module's own best time, by whose it is."""
    best: dict[str, int] = {}
    for _ in range(runs):
        command = [sys.executable, "-X", "importtime", "-m", "holdfast", "run", "--no-checks", "--no-python", "true"]
        told = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=True, timeout=120).stderr
        for own, name in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", told, re.MULTILINE):
            best[name] = min(best.get(name, 1 << 40), int(own))
    third = ("click", "msgspec", "typing_extensions", "re2", "yaml", "rich", "psutil")
    parts: dict[str, list[int]] = {}
    for name, own in best.items():
        top, _, rest = name.partition(".")
        if top == "holdfast":
            part = f"holdfast.{rest.split('.')[0]}" if rest else "holdfast"
        else:
            part = top if top in third else "standard library"
        parts.setdefault(part, []).append(own)
    return sorted(((part, len(own), sum(own) / 1000) for part, own in parts.items()), key=lambda row: -row[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds to watch the supervisor do nothing")
    parser.add_argument("--smoke", action="store_true", help="once, briefly: whether it works, not how fast")
    options = parser.parse_args()
    runs = 1 if options.smoke else options.runs
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        cwd = Path(name)
        env = surroundings(cwd / "home")
        (cwd / "first.py").write_text(SCRIPT, encoding="utf-8")
        python, run = [sys.executable, "-u"], [*holdfast(), "run", "--no-checks"]
        commands = {
            "python first.py": [*python, "first.py"],
            "holdfast run --no-checks first.py": [*run, "first.py"],
            "holdfast run --no-checks --no-python sh": [*run, "--no-python", "sh", "-c", SHELL],
            "python -c 'import click'": [*python, "-c", "import click; " + SCRIPT.replace("\n", ";").rstrip(";")],
        }
        if not options.smoke and (torchrun := beside_python("torchrun")):
            commands["torchrun --standalone first.py"] = [torchrun, "--standalone", "first.py"]
        for command in commands.values():
            start(command, env, cwd)  # the first time writes the .pyc files
        times: dict[str, list[Start]] = {what: [] for what in commands}
        for _ in range(runs):
            for what, command in commands.items():
                times[what].append(start(command, env, cwd))
        waiting = idle(env, cwd, 0.2 if options.smoke else options.idle, 0.2 if options.smoke else SETTLE_S)
        parts = importing(env, cwd, 1 if options.smoke else 7)
    print(told(times, waiting, parts, runs, options.idle))


def told(
    times: dict[str, list[Start]], waiting: Idle, parts: list[tuple[str, int, float]], runs: int, idle_s: float
) -> str:
    """The result as the page has it."""
    plain, *others = times
    rows = []
    for what, done in times.items():
        over = ["", ""]
        if what in others:
            pairs = list(zip(done, times[plain], strict=True))
            over = [
                spread([own.wall_ms - base.wall_ms for own, base in pairs]),
                spread([own.cpu_ms - base.cpu_ms for own, base in pairs]),
            ]
        rows.append([what, spread([s.wall_ms for s in done]), spread([s.cpu_ms for s in done]), *over])
    mb = 1e6
    both = (waiting.supervisor_pss + waiting.guard_pss) / mb
    costs = [
        ["supervisor", f"{waiting.supervisor_pss / mb:.1f}", f"{waiting.supervisor_rss / mb:.1f}"],
        ["guard", f"{waiting.guard_pss / mb:.1f}", f"{waiting.guard_rss / mb:.1f}"],
        ["both", f"{both:.1f}", ""],
    ]
    return "\n".join(
        [
            f"{machine()}; {runs} rounds in turn; medians, and what they lie between.",
            "",
            f"To the worker's first line, in ms (aim: at most {AIM_MS:g} of CPU over plain `python`):",
            "",
            table(["command", "wall", "CPU", "wall over python", "CPU over python"], rows),
            "",
            f"Memory while a gang runs, in MB (aim: under {AIM_MB:g}):",
            "",
            table(["process", "PSS", "RSS"], costs),
            "",
            f"CPU while idle, both over {idle_s:g} s: {waiting.cpu_share:.3%} of a core (aim: under {AIM_CPU:g} %).",
            "",
            "What is imported on the way (`python -X importtime`, each module's best):",
            "",
            table(["part", "modules", "ms"], [[part, str(count), f"{ms:.1f}"] for part, count, ms in parts]),
            "",
        ]
    )


if __name__ == "__main__":
    main()
