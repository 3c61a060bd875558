"""Holdfast cold, warm and standby next to other launchers: starts, deaths, hangs, storms, and what they cost.

One script (bench/gang_trainer.py) runs under each launcher in turn, scenario by scenario, in one session. Launchers
that are not installed are left out, and that is said.

- kill: rank 1 kills itself (SIGKILL) at a step.            - raise: it raises an exception.
- double: rank 0 dies 30 ms after rank 1. Who is named?     - stubborn: rank 0 ignores SIGTERM when rank 1 dies.
- hang: rank 1 stops (SIGSTOP); holdfast gets --hang-timeout 3, the others have no such thing but their own.
- storm: rank 1 kills itself in five attempts in a row.     - none: nothing happens; what does the launcher cost?

    python bench/launchers.py [--runs 7] [--ranks 2,8] [--only holdfast,torchrun] [--scenarios kill,none]
                              [--keep FILE.jsonl] [--plot FILE.png] [--smoke]

A scenario may name its own ranks and runs: `--scenarios kill,none@8:3`. With --keep every run is written down as it
ends, and the runs that the file has are not made again: the whole takes hours, and may be taken in parts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from _common import cpu_s, end, holdfast, memory_bytes, surroundings, tree
from _launchers_page import Results, Run, draw, kept, told
from _over_tcp import OWN_PORT
from recovery import LAUNCHERS as OTHERS
from recovery import events

TRAINER = Path(__file__).resolve().parent / "gang_trainer.py"
STORM = 5
GRACE_S = 2.0
HANG_S = 3.0
#: What a run may take longer for each rank: they share the cores.
SLOWER_S = 3.0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    words: tuple[str, ...]
    restarts: int = 3
    #: Of holdfast: the others have nothing that means the same.
    options: tuple[str, ...] = ()
    limit_s: float = 30.0


SCENARIOS = (
    Scenario("kill", ("--trouble", "kill")),
    Scenario("raise", ("--trouble", "raise")),
    Scenario("double", ("--trouble", "double")),
    Scenario("stubborn", ("--trouble", "stubborn"), options=("--grace", str(GRACE_S)), limit_s=90.0),
    Scenario(
        "hang", ("--trouble", "hang"), options=("--hang-timeout", str(HANG_S), "--grace", str(GRACE_S)), limit_s=25.0
    ),
    Scenario("storm", ("--trouble", "kill", "--times", str(STORM), "--at", "20"), restarts=10, limit_s=150.0),
    Scenario("none", ()),
)

Start = Callable[[int, Path, int, Scenario], tuple[list[str], dict[str, str]] | None]


@dataclass(frozen=True, slots=True)
class Launcher:
    name: str
    #: (restarts, directory, ranks, scenario) → the command before the script and its environment; None: not there.
    start: Start
    named: Callable[[Path, str], int | None]


def _ours(*how: str) -> Start:
    def start(restarts: int, out: Path, ranks: int, scenario: Scenario) -> tuple[list[str], dict[str, str]]:
        words = [
            "--no-checks",
            "--nproc-per-node",
            str(ranks),
            "--max-restarts",
            str(restarts),
            "--same-failure",
            "off",
            *how,
            *scenario.options,
        ]
        return [*holdfast(), "run", *words, "--report", str(out / "report.json")], {}

    return start


def _theirs(index: int) -> Start:
    def start(restarts: int, out: Path, ranks: int, scenario: Scenario) -> tuple[list[str], dict[str, str]] | None:
        found = OTHERS[index].command(restarts, out)
        if found is None:
            return None
        command, env = found
        command[command.index("--nproc-per-node") + 1] = str(ranks)
        return command, env

    return start


LAUNCHERS = (
    Launcher("holdfast cold", _ours("--no-warm"), OTHERS[0].named),
    Launcher("holdfast warm", _ours("--warm"), OTHERS[0].named),
    Launcher("holdfast standby", _ours("--warm", "--standby"), OTHERS[0].named),
    *(Launcher(other.name, _theirs(index), other.named) for index, other in enumerate(OTHERS) if index),
)


def common_steps(told: Sequence[dict[str, object]], ranks: int) -> list[float]:
    """When all ranks of one start had finished their first step; one moment for each start that got so far."""
    firsts: dict[object, dict[object, float]] = {}
    for event in told:
        if event["what"] == "step":
            firsts.setdefault(event["rank"], {}).setdefault(event["pid"], float(str(event["at"])))
    if len(firsts) < ranks:
        return []
    return [max(moments) for moments in zip(*(by_pid.values() for by_pid in firsts.values()), strict=False)]


def weigh(process: subprocess.Popen[bytes], out: Path, ranks: int, run: Run, scenario_s: float) -> None:
    """Memory and CPU of launcher and workers, once every rank has finished a step."""
    until = time.monotonic() + scenario_s
    while len(list(out.glob("stepped-*"))) < ranks and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    workers = {int(str(event["pid"])) for event in events(out)}
    below = set(tree(process.pid))
    mine = {pid for worker in workers & below for pid in tree(worker)}
    script = str(TRAINER).encode()
    for pid in sorted(below):
        try:
            pss, _ = memory_bytes(pid)
            nursery = pid not in mine and script in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2:3]
        except OSError:
            continue  # it has just left
        if pid in mine:
            run.workers_pss += pss
        elif nursery:
            run.nursery_pss += pss
        else:
            run.launcher_pss += pss
            run.launcher_cpu_s += cpu_s([pid])


def run_once(
    launcher: Launcher, scenario: Scenario, ranks: int, over: str, out: Path, env: dict[str, str]
) -> Run | None:
    """One run; None where the launcher is not installed."""
    out.mkdir()
    found = launcher.start(scenario.restarts, out, ranks, scenario)
    if found is None:
        return None
    command, more = found
    run = Run(load=os.getloadavg()[0])
    with (out / "printed").open("wb") as printed:
        begun = time.monotonic()
        process = subprocess.Popen(
            [*command, str(TRAINER), "--out", str(out), "--over", over, *scenario.words],
            env={**env, **more},
            cwd=out,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        try:
            if scenario.name == "none":
                weigh(process, out, ranks, run, scenario.limit_s)
            process.wait(scenario.limit_s + SLOWER_S * ranks)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            if process.poll() is None:
                end(process)
        run.wall_s = time.monotonic() - begun
    told = events(out)
    for pid in {int(str(event["pid"])) for event in told}:
        if str(out) in _words(pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)  # left behind by its launcher
    deaths = [float(str(event["at"])) for event in told if event["what"] == "death"]
    steps = common_steps(told, ranks)
    starts = [float(str(event["at"])) for event in told if event["what"] == "start"]
    run.first_line_s = min(starts) - begun if starts else None
    run.first_step_s = steps[0] - begun if steps else None
    run.back_s = [min(later) - death for death in deaths if (later := [at for at in steps if at > death])]
    run.recovered = ended and process.returncode == 0
    said = (out / "printed").read_text(encoding="utf-8", errors="replace")
    run.named = launcher.named(out, said)
    if not run.recovered:
        print("\n".join(["did not recover; its last lines:", *said.splitlines()[-20:]]), file=sys.stderr)
    return run


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def planned(words: str, ranks: str, runs: int) -> list[tuple[Scenario, int, int]]:
    """`kill,none@8:3` → each scenario with its ranks and runs; those that name none get all `ranks`, and `runs`."""
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    plan = []
    for word in words.split(","):
        rest, _, own_runs = word.partition(":")
        name, _, own_ranks = rest.partition("@")
        if name not in by_name:
            raise SystemExit(f"no scenario {name!r}: expected {', '.join(by_name)}")
        plan += [(by_name[name], int(count), int(own_runs or runs)) for count in (own_ranks or ranks).split(",")]
    return plan


def measure(options: argparse.Namespace, over: str) -> tuple[Results, list[str]]:
    only = ("holdfast warm",) if options.smoke else tuple(options.only.split(","))
    chosen = [launcher for launcher in LAUNCHERS if launcher.name.startswith(only)]
    results: Results = {} if options.keep is None else kept(options.keep)
    missing: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
            for scenario, ranks, runs in planned(options.scenarios, options.ranks, options.runs):
                for turn in range(runs):
                    _turn(chosen, scenario, ranks, turn, over, Path(name), results, missing, options.keep)
    except KeyboardInterrupt:
        print("interrupted: this is what was measured until then", file=sys.stderr)
    return _in_order(results), missing


def _in_order(results: Results) -> Results:
    """By ranks, scenarios and launchers as they stand above, whatever was measured first."""
    order = [scenario.name for scenario in SCENARIOS]
    found = sorted(results.items(), key=lambda item: (item[0][1], order.index(item[0][0])))
    names = [launcher.name for launcher in LAUNCHERS]
    return {what: {name: runs[name] for name in names if name in runs} for what, runs in found}


def _turn(
    chosen: list[Launcher],
    scenario: Scenario,
    ranks: int,
    turn: int,
    over: str,
    place: Path,
    results: Results,
    missing: list[str],
    keep: Path | None,
) -> None:
    """One run of each launcher that has not had so many yet."""
    env = surroundings(place / "home", {"PYTHONWARNINGS": "ignore", **(OWN_PORT if over == "tcp" else {})})
    by_launcher = results.setdefault((scenario.name, ranks), {})
    for launcher in chosen:
        if launcher.name in missing or len(by_launcher.get(launcher.name, ())) > turn:
            continue
        out = place / f"{scenario.name}-{ranks}-{turn}-{launcher.name.replace(' ', '-')}"
        run = run_once(launcher, scenario, ranks, over, out, env)
        if run is None:
            missing.append(launcher.name)
            continue
        by_launcher.setdefault(launcher.name, []).append(run)
        print(f"{turn + 1} {ranks} {scenario.name} {launcher.name}: {run}", file=sys.stderr, flush=True)
        if keep is not None:
            with keep.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([scenario.name, ranks, launcher.name, asdict(run)]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--only", default="", help="launchers whose names begin so, separated by commas")
    parser.add_argument(
        "--scenarios", metavar="NAME[@RANKS][:RUNS],…", default=",".join(scenario.name for scenario in SCENARIOS)
    )
    parser.add_argument("--keep", type=Path, help="write each run to this file, and do not repeat those it has")
    parser.add_argument("--plot", type=Path, help="draw deaths → common steps into this PNG file")
    parser.add_argument("--smoke", action="store_true", help="holdfast warm alone, once, without torch: does it work?")
    options = parser.parse_args()
    if options.smoke:
        options.runs, options.ranks, options.scenarios = 1, "2", "kill,none"
    over = "tcp" if options.smoke or importlib.util.find_spec("torch") is None else "gloo"
    results, missing = measure(options, over)
    if options.smoke and not all(run.recovered for by in results.values() for runs in by.values() for run in runs):
        raise SystemExit("a run did not recover")
    print(told(results, missing, over))
    if options.plot is not None:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
