"""Jobs over nodes: a death, a power cut, a spare, the loss of the owner; holdfast beside torchrun and ft_launcher.

Every node is a set of Linux namespaces on this machine (tests/netns.py), so it takes root. One script
(tests/drill_trainer.py, ranks that step over plain sockets, one a node) runs under each launcher in turn, in one
session.

- told: rank 2 kills itself while the others only sleep; how long until the last of the others gets SIGTERM?
- death: rank 2 kills itself; how long until all three ranks of a later start have finished a step?
- power: a node loses its power, the gang may go on with two; how long until two ranks have finished a step together?
- spare: the same with a fourth node that is kept ready; and how much of it is left when the loss is known?
- owner: the launcher on the first node (holdfast: its owner) is killed; what becomes of the job?

    python bench/nodes.py [--runs 5] [--only holdfast,torchrun] [--scenarios told,power] [--write] [--smoke]

Torch is not imported by the trainer: what is compared is what launchers do, not what an import costs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from _common import beside_python, holdfast, machine, median, put, spread, surroundings, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from drilling import TRAINER, Cluster
from netns import Net, Started, kill, missing

#: What has not happened by then does not happen.
LIMIT_S = 40.0
LEASE_S, DRIFT_S, BEAT_S = 6.0, 1.0, 1.0
AIM_TOLD_S, AIM_ADOPTED_S = 0.030, 1.0
#: MASTER_PORT is the trainer's: what says so to holdfast, and to the others.
OWN_PORT = {"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True, slots=True)
class Launcher:
    name: str
    #: (job, node, `--nnodes`) → the command before the script; None: not installed.
    words: Callable[[Cluster, int, str], list[str] | None]
    #: What asks for one spare node beyond `--nnodes`; None: there are none.
    spares: tuple[str, ...] | None = None
    #: The name of the process that owns the job on the first node; empty: the launcher itself.
    owner: str = ""


def _ours(*how: str) -> Callable[[Cluster, int, str], list[str]]:
    def words(job: Cluster, number: int, nnodes: str) -> list[str]:
        return [
            *(*holdfast(), "run", "--no-checks", "--nnodes", nnodes, "--rdzv-endpoint", job.endpoint, *how),
            *("--rdzv-conf", "last_call_timeout=1", "--report", str(job.net[number].place / "report.json")),
        ]

    return words


def _elastic(program: str, *more: str) -> Callable[[Cluster, int, str], list[str] | None]:
    def words(job: Cluster, number: int, nnodes: str) -> list[str] | None:
        found = beside_python(program)
        if found is None:
            return None
        return [
            *(found, "--nnodes", nnodes, "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", job.endpoint, "--local-addr", job.net[number].address, *more),
            *("--rdzv-conf", f"is_host={int(number == 1)},last_call_timeout=1"),
        ]

    return words


LAUNCHERS = (
    Launcher("holdfast", _ours("--no-warm"), ("--spares", "1"), "holdfast-owner"),
    Launcher("holdfast warm", _ours("--warm"), ("--spares", "1"), "holdfast-owner"),
    Launcher("torchrun", _elastic("torchrun")),
    Launcher("ft_launcher", _elastic("ft_launcher", "--ignore-missing-fault-tol-cfg")),
)


@dataclass(slots=True)
class Run:
    """What became of one run, in seconds; None: it did not happen within LIMIT_S."""

    told_s: float | None = None
    back_s: float | None = None
    #: From the loss until the attempt was over for the owner; of holdfast alone, which tells.
    known_s: float | None = None
    #: From the loss until every other node's launcher had ended.
    ended_s: float | None = None
    steps_lost: int | None = None


def start(job: Cluster, launcher: Launcher, nnodes: str, options: Sequence[str], script: Sequence[str | Path]) -> bool:
    """The launcher on every node; False where it is not installed."""
    for node in job.net:
        words = launcher.words(job, node.number, nnodes)
        if words is None:
            return False
        job.runs[node.number] = node.start(*words, *options, *script, env=OWN_PORT)
    return True


def until(what: Callable[[], float | None], runs: Iterable[Started] = ()) -> float | None:
    """What it answers once it is not None; None after LIMIT_S, or when all of these have ended."""
    end = time.monotonic() + LIMIT_S
    watched = list(runs)
    while time.monotonic() < end:
        over = bool(watched) and all(run.outside.poll() is not None for run in watched)
        if (found := what()) is not None or over:
            return found
        time.sleep(0.02)
    return None


def stepped(job: Cluster, after: float, ranks: int) -> float | None:
    """When all ranks of one start later than that had finished their first step."""
    starts = [e for e in job.events("start") if e["at"] > after and e["ranks"] == ranks]
    for attempt in sorted({e["attempt"] for e in starts}):
        firsts: dict[int, float] = {}
        for event in job.events("step"):
            if event["attempt"] == attempt and event["at"] > after:
                firsts.setdefault(event["rank"], event["at"])
        if len(firsts) >= ranks:
            return max(firsts.values())
    return None


def running(job: Cluster, ranks: int) -> None:
    job.wait(lambda: stepped(job, 0.0, ranks) is not None, f"{ranks} ranks step together", LIMIT_S)


def told(job: Cluster, launcher: Launcher) -> Run | None:
    if not start(job, launcher, "3", (), (TRAINER, job.out, "0.03", "apart")):
        return None
    running(job, 3)
    job.order(2, "kill")
    death = until(lambda: next((e["at"] for e in job.events("ordered")), None), job.runs.values())
    assert death is not None

    def others() -> float | None:
        stops = [e["at"] for e in job.events("stopped") if e["rank"] != 2]
        return max(stops) if len(stops) >= 2 else None

    last = until(others, job.runs.values())
    return Run(told_s=last - death if last is not None else None)


def death(job: Cluster, launcher: Launcher) -> Run | None:
    if not start(job, launcher, "3", (), (TRAINER, job.out)):
        return None
    running(job, 3)
    job.order(2, "kill")
    at = until(lambda: next((e["at"] for e in job.events("ordered")), None), job.runs.values())
    assert at is not None
    back = until(lambda: stepped(job, at, 3), job.runs.values())
    return _after(job, Run(back_s=back - at if back is not None else None), at)


def _after(job: Cluster, run: Run, at: float, but: Sequence[int] = ()) -> Run:
    """What the report says of it, where there is one."""
    if run.back_s is None:
        return run
    job.finish()
    left = [started for number, started in job.runs.items() if number not in but]
    until(lambda: 0.0 if all(started.outside.poll() is not None for started in left) else None)
    path = job.net[1].place / "report.json"
    if path.exists():
        report = json.loads(path.read_text(encoding="utf-8"))
        run.known_s = report["attempts"][0]["ended_at"] - at
    return run


def lost(job: Cluster, launcher: Launcher, nnodes: str, options: Sequence[str], ranks: int) -> Run | None:
    if not start(job, launcher, nnodes, options, (TRAINER, job.out)):
        return None
    running(job, 3)
    at = time.time()
    victim = job.hosts(1)[2]
    [node] = [node for node in job.net if node.host == victim]
    node.power_cut()
    left = [started for number, started in job.runs.items() if number != node.number]
    back = until(lambda: stepped(job, at, ranks), left)
    return _after(job, Run(back_s=back - at if back is not None else None), at, [node.number])


def power(job: Cluster, launcher: Launcher) -> Run | None:
    return lost(job, launcher, "2:3", (), 2)


def spare(job: Cluster, launcher: Launcher) -> Run | None:
    return lost(job, launcher, "3", launcher.spares or (), 3)


def owner(job: Cluster, launcher: Launcher) -> Run | None:
    if not start(job, launcher, "3", (), (TRAINER, job.out)):
        return None
    running(job, 3)
    first = job.net[1]
    before = len(job.events("step", 0))
    at = time.time()
    if not launcher.owner:
        os.kill(job.runs[1].pid, signal.SIGKILL)
        others = [job.runs[2], job.runs[3]]
        ended = until(lambda: time.time() if all(o.outside.poll() is not None for o in others) else None)
        return Run(ended_s=ended - at if ended is not None else None)
    kill(*first.named(launcher.owner))
    back = until(lambda: job.adopted(1), job.runs.values())
    job.wait(lambda: len(job.events("step", 0)) > before + 30, "it steps on", LIMIT_S)
    steps = [e["step"] for e in job.events("step", 0)]
    restarted = len(job.attempts()) > 1
    lost_steps = len(steps) - len(set(steps)) if not restarted else -1
    return _after(job, Run(back_s=back - at if back is not None else None, steps_lost=lost_steps), at)


#: And how many nodes each takes.
SCENARIOS: dict[str, tuple[Callable[[Cluster, Launcher], Run | None], int]] = {
    "told": (told, 3),
    "death": (death, 3),
    "power": (power, 3),
    "spare": (spare, 4),
    "owner": (owner, 3),
}


def run_once(launcher: Launcher, scenario: str, place: Path) -> Run | None:
    """One run in a net of its own; None where the launcher is not installed, or has nothing of the kind."""
    do, count = SCENARIOS[scenario]
    if scenario == "spare" and launcher.spares is None:
        return None
    place.mkdir()
    with Net(place, count, env=surroundings(place / "home", {"PYTHONWARNINGS": "ignore"}), clocks_apart=False) as net:
        job = Cluster(net, place, "bench")
        try:
            return do(job, launcher)
        except AssertionError as error:
            print(f"{launcher.name}: {scenario}: {error}", file=sys.stderr)
            return Run()


#: By scenario, by launcher.
Results = dict[str, dict[str, list[Run]]]


def measure(runs: int, only: Sequence[str], scenarios: Sequence[str]) -> tuple[Results, list[str]]:
    results: Results = {scenario: {} for scenario in scenarios}
    absent: list[str] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        for turn in range(runs):
            for scenario in scenarios:
                for launcher in LAUNCHERS:
                    if not launcher.name.startswith(tuple(only)) or launcher.name in absent:
                        continue
                    if scenario == "spare" and launcher.spares is None:
                        continue
                    run = run_once(launcher, scenario, Path(name) / f"{turn}-{scenario}-{launcher.name}")
                    if run is None:
                        absent.append(launcher.name)
                        continue
                    results[scenario].setdefault(launcher.name, []).append(run)
                    print(f"{turn + 1}/{runs} {scenario} {launcher.name}: {run}", file=sys.stderr, flush=True)
    return results, absent


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _seconds(values: Iterable[float | None]) -> str:
    """`0.31 (0.28 to 0.40) s`, and how often it did not happen."""
    told = list(values)
    found = known(told)
    if not found:
        return f"not in {LIMIT_S:g} s" if told else ""
    less = f", {len(told) - len(found)} of {len(told)} not in {LIMIT_S:g} s" if len(found) < len(told) else ""
    return spread(found, "s", 3 if median(found) < 1 else 2) + less


def page(results: Results, absent: Sequence[str], runs: int) -> str:
    """The result as the page has it."""
    names = [launcher.name for launcher in LAUNCHERS if any(launcher.name in by for by in results.values())]
    of = {scenario: results.get(scenario, {}) for scenario in SCENARIOS}
    losses = [
        [
            name,
            _seconds(run.told_s for run in of["told"].get(name, [])),
            _seconds(run.back_s for run in of["death"].get(name, [])),
            _seconds(run.back_s for run in of["power"].get(name, [])),
        ]
        for name in names
    ]
    spares = [
        [name, _seconds(run.back_s for run in by), _seconds(_since_known(by)), _seconds(_since_known(in_place))]
        for name, by in of["spare"].items()
        for in_place in [of["death"].get(name, [])]
    ]
    owners = [
        [name, _seconds(run.back_s for run in by), "goes on", str(sum(known(run.steps_lost for run in by)))]
        if launcher.owner
        else [name, "never", f"ends: {_seconds(run.ended_s for run in by)}", "all"]
        for launcher in LAUNCHERS
        for name, by in of["owner"].items()
        if name == launcher.name
    ]
    tables = [
        (["launcher", "death → others told", "death → common step", "power cut → common step, 2 of 3 nodes"], losses),
        (
            ["launcher", "power cut → common step on a spare", "the loss is known → step", "a death is known → step"],
            spares,
        ),
        (["launcher", "owner killed → attempt adopted", "every node's run", "steps lost"], owners),
    ]
    lines = [f"{machine()}; {runs} rounds in turn; medians, and what they lie between.", ""]
    for head, rows in tables:
        if rows:
            lines += [table(head, rows), ""]
    if absent:
        lines += [f"Not installed here, hence left out: {', '.join(absent)}.", ""]
    return "\n".join([*lines, *aims(results)])


def _since_known(runs: Sequence[Run]) -> list[float]:
    return [run.back_s - run.known_s for run in runs if run.back_s is not None and run.known_s is not None]


def aims(results: Results) -> list[str]:
    """What nodes are to cost, and what they do. A restart's own time is that of the same launcher after a death."""
    found = ["Aims:", ""]

    def say(what: str, aim_s: float, values: Sequence[float]) -> None:
        if values:
            met = "met" if median(values) <= aim_s else "missed"
            found.append(f"- {what}: at most {aim_s:.3g} s; {median(values):.3g} s, {met}.")

    for name in ("holdfast", "holdfast warm"):
        of = {scenario: by.get(name, []) for scenario, by in results.items()}
        in_place = _since_known(of.get("death", []))
        say(f"{name}, death → all others told", AIM_TOLD_S, known(run.told_s for run in of.get("told", [])))
        if in_place:
            most = LEASE_S + DRIFT_S + BEAT_S + median(in_place)
            say(
                f"{name}, power cut → common step (lease {LEASE_S:g} s, drift {DRIFT_S:g} s, a beat {BEAT_S:g} s, and "
                "the restart of a death)",
                most,
                known(run.back_s for run in of.get("power", [])),
            )
            say(
                f"{name}, promotion of a spare, no slower than a restart in place",
                median(in_place),
                _since_known(of.get("spare", [])),
            )
        say(f"{name}, owner killed → adopted", AIM_ADOPTED_S, known(run.back_s for run in of.get("owner", [])))
    return found if len(found) > 2 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="launchers whose names begin so, separated by commas")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--write", action="store_true", help="put the result into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="holdfast alone, once: does it work?")
    options = parser.parse_args()
    if why := missing():
        print(f"{why}: nothing was measured")
        return
    scenarios = options.scenarios.split(",")
    if unknown := [name for name in scenarios if name not in SCENARIOS]:
        raise SystemExit(f"no scenario {', '.join(unknown)}: expected {', '.join(SCENARIOS)}")
    only, runs = options.only.split(","), options.runs
    if options.smoke:
        only, runs, scenarios = ["holdfast warm"], 1, ["told", "death", "owner"]
    results, absent = measure(runs, only, scenarios)
    text = page(results, absent, runs)
    print(text)
    if options.smoke and not all(
        known((run.told_s, run.back_s, run.ended_s)) for by in results.values() for done in by.values() for run in done
    ):
        raise SystemExit("something did not happen: see above")
    if options.write:
        put("nodes", text)


if __name__ == "__main__":
    main()
