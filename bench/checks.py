"""What the pre-checks cost, what they find, and how often they cry wolf.

The default set's time and CPU; the time it adds before a worker's first line; every planted trouble, found or not;
healthy rounds, and whatever was reported in them; and the search in pairs, simulated.

    python bench/checks.py [--runs 21] [--healthy 50] [--trials 200] [--write] [--smoke]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _common import holdfast, machine, median, put, running, spread, surroundings, table

from holdfast.model.check_results import CheckChoice, CheckOutcome, Finding, Site
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.pair_search import Pair, search
from holdfast.node.check_entry import CheckPlan, CheckRound, choices_from_text, plan_checks, run_round
from holdfast_testing import planted_troubles

AIM_MS = 100.0
FIRST = b"first line"
GANG = "matmul,bandwidth,pairs"


@dataclass(frozen=True, slots=True)
class Round:
    wall_ms: float
    cpu_ms: float
    findings: dict[str, Finding]

    @property
    def reported(self) -> list[str]:
        return [
            f"{name}: {each.message}" for name, each in self.findings.items() if each.answer is not CheckOutcome.GOOD
        ]


def cpu_ms() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return 1000 * sum(each.ru_utime + each.ru_stime for each in used)


def one_round(plan: CheckPlan, cwd: Path, job: JobSpec | None = None) -> Round:
    began, used = time.perf_counter(), cpu_ms()
    site = Site(node="node-1", cwd=str(cwd), home=str(cwd))
    current = CheckRound(plan, site=site, now=time.monotonic(), job=job, keep_going=True)
    run_round(current, time.monotonic)
    findings = {step.name: last for step, _, _, last in current.progress() if last is not None}
    return Round(1000 * (time.perf_counter() - began), cpu_ms() - used, findings)


def to_first_line(command: Sequence[str], env: dict[str, str], cwd: Path) -> tuple[float, float]:
    """Milliseconds until the worker's first line is in our hands, and of CPU for the whole run."""
    began, used = time.perf_counter(), cpu_ms()
    with running(command, env, cwd) as process:
        assert process.stdout is not None
        seen = b""
        while FIRST not in seen:
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                raise SystemExit(f"{' '.join(command)}: no first line")
            seen += data
        took = 1000 * (time.perf_counter() - began)
        process.wait(timeout=60)
    return took, cpu_ms() - used


# ---------------------------------------------------------------------------------------------------- planted troubles


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong, the check that must find it, and a word its message must hold."""

    what: str
    check: str
    word: str
    params: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@contextmanager
def full_disk(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.tmpfs(folder / "full", "size=1m") as point:
        (point / "ballast").write_bytes(bytes(1 << 20))
        yield Trouble("a full tmpfs", "disk", "0 of 1.05 MB free", {"paths": [str(point)]})


@contextmanager
def no_inodes(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.tmpfs(folder / "inodes", "size=500m,nr_inodes=8") as point:
        for number in range(7):
            (point / str(number)).touch()
        yield Trouble("no inodes", "disk", "0 of 8 inodes free", {"paths": [str(point)]})


@contextmanager
def tiny_shm(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.tmpfs(folder / "shm", "size=4m") as point:
        yield Trouble("a tiny /dev/shm", "shm", "4.19 of 4.19 MB free", {"path": str(point)})


@contextmanager
def read_only(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.tmpfs(folder / "ro", "ro") as point:
        yield Trouble("a read-only mount", "mounts", "is mounted read-only", {"paths": [str(point)]})


@contextmanager
def dead_server(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.dead_mount(folder / "dead") as point:
        yield Trouble("a dead file server (hanging FUSE)", "mounts", "has not answered", {"paths": [str(point)]})


@contextmanager
def lost_server(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.dead_mount(folder / "lost", lost=True) as point:
        yield Trouble("a lost file server", "mounts", "has lost its server", {"paths": [str(point)]})


@contextmanager
def busy_port(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.busy_port() as port:
        yield Trouble("a busy port", "ports", f"port {port} is taken by pid", {"ports": [port]})


@contextmanager
def hog(folder: Path) -> Iterator[Trouble]:
    with planted_troubles.hogs(sorted(os.sched_getaffinity(0))[:2]):
        yield Trouble("a hog on two cores", "hogs", "cores idle, ")


def of_program(what: str, text: str, word: str) -> Callable[[Path], Any]:
    @contextmanager
    def plant(folder: Path) -> Iterator[Trouble]:
        script = folder / "train.py"
        script.write_text(text, encoding="utf-8")
        yield Trouble(what, "files", word, command=(sys.executable, str(script)))

    return plant


def of_gang(what: str, name: str, body: str, word: str, params: dict[str, Any]) -> Callable[[Path], Any]:
    """A group of this machine that misbehaves: a check of its own, out of a plugin file."""

    @contextmanager
    def plant(folder: Path) -> Iterator[Trouble]:
        text = "from holdfast_testing import planted_troubles as troubles\n\n"
        text += f"class {name}(troubles.{body}):\n    name = {name.lower()!r}\n"
        (folder / f"{name.lower()}.py").write_text(text, encoding="utf-8")
        yield Trouble(what, name.lower(), word, params)

    return plant


PLANTS: tuple[Callable[[Path], Any], ...] = (
    full_disk,
    no_inodes,
    tiny_shm,
    read_only,
    dead_server,
    lost_server,
    busy_port,
    hog,
    of_program("a missing module", "import os\nimport not_installed_9\n", "not_installed_9"),
    of_program("a syntax error in the script", "def f(:\n    pass\n", "does not parse"),
    of_gang("a slow group", "Slow", "SlowGroup", "group 1 (cpu", {"groups": 3}),
    of_gang("a wrong product", "Wrong", "WrongGroup", "of a known product are wrong", {"groups": 3, "slow_factor": 99}),
    of_gang("a group that garbles data", "Garbles", "BadPair", "group 0: ", {"groups": 4}),
)


def find(plant: Callable[[Path], Any], folder: Path) -> tuple[str, str, bool, str]:
    """What was planted, its check, whether it was found, and the words for it."""
    try:
        with plant(folder) as trouble:
            files = [path for path in [folder / f"{trouble.check}.py"] if path.exists()]
            choice = CheckChoice(name=trouble.check, params={**trouble.params, "retries": 0})
            roles = (Role(name="worker", count=1, command=trouble.command),) if trouble.command else ()
            job = JobSpec(name="bench", roles=roles) if roles else None
            done = one_round(plan_checks((choice,), plugins=files, timeout_s=30), folder, job)
            said = done.findings[trouble.check]
            message = said.message.replace(f"{folder}/", "")
            return (
                trouble.what,
                trouble.check,
                said.answer is CheckOutcome.BAD and trouble.word in said.message,
                message,
            )
    except planted_troubles.CannotPlant as why:
        return plant.__name__.replace("_", " "), "", True, f"not planted here: {why}"


# ------------------------------------------------------------------------------------------------- the search in pairs


def exact(count: int, bad: int, trials: int, how: str) -> tuple[float, float]:
    """In how many of the trials exactly the bad nodes were named, and the exchanges a node took part in."""
    right, met = 0, 0
    for trial in range(trials):
        dice = random.Random(f"{count}/{bad}/{trial}/{how}")
        victims = set(dice.sample(range(count), bad))

        def run(wave: Sequence[Pair], dice: random.Random = dice, victims: set[int] = victims) -> list[float | None]:
            answers: list[float | None] = []
            for pair in wave:
                took = dice.uniform(0.9, 1.4)
                hit = victims.intersection(pair)
                fails = how == "fail" or (how == "mixed" and min(hit, default=0) % 2 == 0)
                answers.append(took if not hit else None if fails else took * 5)
            return answers

        found = search(count, run)
        right += found.bad == victims and not found.suspects
        met += 2 * len(found.times)
    return right / trials, met / trials / count


def simulated(trials: int) -> str:
    rows = []
    for count in (3, 4, 5, 8, 9, 16, 33, 64, 255, 1024):
        few = max(3, trials * 8 // count) if count > 8 else trials
        for bad in sorted({1, max(1, count // 6), count // 3}):
            scores = [exact(count, bad, few, how) for how in ("fail", "slow", "mixed")]
            rows.append([
                str(count), str(bad), str(few), *[f"{100 * share:.0f} %" for share, _ in scores], f"{scores[2][1]:.1f}",
            ])  # fmt: skip
    return table(["nodes", "bad", "trials", "fail", "slow", "mixed", "exchanges a node"], rows)


# --------------------------------------------------------------------------------------------------------- all of it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21, help="of each timing")
    parser.add_argument("--healthy", type=int, default=50, help="rounds in which nothing may be reported")
    parser.add_argument("--trials", type=int, default=200, help="simulated searches for each number of nodes")
    parser.add_argument("--write", action="store_true", help="put the result into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="once, briefly: whether it works, not how fast")
    options = parser.parse_args()
    runs, healthy, trials = (1, 2, 5) if options.smoke else (options.runs, options.healthy, options.trials)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        cwd = Path(name)
        env = surroundings(cwd / "home")
        planning, plan = timed(lambda: plan_checks(None))
        rounds = [one_round(plan, cwd) for _ in range(runs)]
        script = ["--no-python", "echo", FIRST.decode()]
        without, with_checks = ([*holdfast(), "run", *flags, *script] for flags in (["--no-checks"], []))
        starts: list[tuple[tuple[float, float], tuple[float, float]]] = []
        for number in range(runs + 1):
            pair = to_first_line(without, env, cwd), to_first_line(with_checks, env, cwd)
            if number:  # the first writes the .pyc files
                starts.append(pair)
        found = [find(plant, Path(tempfile.mkdtemp(dir=cwd))) for plant in PLANTS]
        everything = (*plan.checks, *plan_checks(choices_from_text(GANG)).checks)
        wolf = [line for _ in range(healthy) for line in one_round(CheckPlan(checks=everything), cwd).reported]
    text = "\n\n".join([
        timings(planning, rounds, starts, runs),
        planted(found),
        f"Healthy rounds: {healthy} of the default set with {GANG}; reported in them: {len(wolf)}."
        + "".join(f"\n- {line}" for line in wolf[:10]),
        f"The search in pairs, simulated: how often exactly the bad nodes were named.\n\n{simulated(trials)}",
        f"({machine()})",
    ])  # fmt: skip
    print(text)
    if options.write:
        put("checks", text)
    if not all(right for _, _, right, _ in found) or (wolf and not options.smoke):
        raise SystemExit(1)


def timed(work: Callable[[], CheckPlan]) -> tuple[float, CheckPlan]:
    began = time.perf_counter()
    made = work()
    return 1000 * (time.perf_counter() - began), made


def timings(
    planning_ms: float, rounds: list[Round], starts: list[tuple[tuple[float, float], tuple[float, float]]], runs: int
) -> str:
    added = [with_checks[0] - without[0] for without, with_checks in starts]
    added_cpu = [with_checks[1] - without[1] for without, with_checks in starts]
    verdict = "within" if median(added) <= AIM_MS else "over"
    rows = [
        ["planning the default set, cold", f"{planning_ms:.1f} ms"],
        ["a round of the default set, wall", spread([each.wall_ms for each in rounds], "ms")],
        ["a round of the default set, CPU of all its processes", spread([each.cpu_ms for each in rounds], "ms")],
        ["`holdfast run --no-checks` to the first line", spread([without[0] for without, _ in starts], "ms")],
        ["`holdfast run` to the first line", spread([with_checks[0] for _, with_checks in starts], "ms")],
        [f"added by the checks, wall ({verdict} the aim of {AIM_MS:.0f} ms)", spread(added, "ms")],
        ["added by the checks, CPU of all processes", spread(added_cpu, "ms")],
    ]
    return table(["what", f"median of {runs} (lowest to highest)"], rows)


def planted(found: list[tuple[str, str, bool, str]]) -> str:
    hits = sum(right for _, _, right, _ in found)
    rows = [[what, check, "yes" if right else "NO", said[:100]] for what, check, right, said in found]
    return f"Planted troubles found: {hits} of {len(found)}.\n\n" + table(["planted", "check", "found", "said"], rows)


if __name__ == "__main__":
    main()
