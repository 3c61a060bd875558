"""Jobs on a real Slurm: a node fails, with a spare and without; and a story of ten failures. holdfast beside others.

The cluster is that of the tests (tests/slurm/real_slurm.py: slurmctld, munge and slurmd in namespaces of this machine,
so it takes root and Slurm's packages). One script (tests/drill_trainer.py: three ranks, one a node, that step over
plain sockets and save each step) runs in a batch job under each launcher in turn, in one session.

- spare: of four nodes of the job three are needed; the one of rank 1 loses its power. Plain torchrun has no use for a
  fourth node, and takes three of the four.
- requeue: the job has three nodes of four, and needs them; the one of rank 1 loses its power.
- late: the same with SlurmdTimeout 30 s in place of 3: a tenth of Slurm's default.
  In all three: how long until three ranks of a later start have finished a step together?
- story: ten failures in fixed moments, the same for each launcher: ranks that die, nodes that lose their power and
  come back, a preemption, `scontrol requeue`. An operator looks every LOOKS_S seconds: a job that has ended is
  submitted again; one that has not stepped for PATIENCE_S is cancelled and submitted again. Which share of the time
  was productive (steps that were kept, by what a step takes)?

    python bench/slurm.py [--runs 3] [--only "holdfast;srun torchrun, plain"] [--scenarios spare,late,story] [--seed 1]
                          [--keep FILE.jsonl] [--write] [--smoke]

Slurm's own times are set far shorter than a production's (SlurmdTimeout in place of 300 s, cred_expire 5 s in place of
120): what waits for Slurm looks better here than it is. Torch is not imported by the trainer.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from _common import beside_python, holdfast, machine, median, put, spread, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests" / "slurm"))

from real_slurm import Slurm, missing

from drilling import TRAINER, Workers

#: Whether the job has a fourth node, and SlurmdTimeout.
LOSSES = {"spare": (True, 3), "requeue": (False, 3), "late": (False, 30)}


def limit_s(scenario: str) -> float:
    """What has not happened by then does not happen."""
    return 60.0 + 2 * LOSSES[scenario][1]


STEP_S = 0.1
#: Between two failures of the story; after the last one; how long a node is without power.
EVERY_S, AFTERWARDS_S, BACK_S = 25.0, 40.0, 20.0
LOOKS_S, PATIENCE_S = 10.0, 40.0
#: In place of 60: how long agents dial an owner whose node is lost, before they have the job started again.
OWNER_WAIT_S = 10
PREEMPTING = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
URGENT = "PartitionName=urgent Nodes=n[1-4] PriorityTier=10 State=UP"
#: MASTER_PORT is the trainer's.
OWN_PORT = "export TORCHELASTIC_USE_AGENT_STORE=False TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"


@dataclass(frozen=True, slots=True)
class Launcher:
    name: str
    sbatch: tuple[str, ...]
    #: (is there a spare) → the lines before the script; None: not installed.
    command: Callable[[bool], str | None]
    #: Whether it has a use for a fourth node.
    spares: bool = True


def _ours(*how: str) -> Callable[[bool], str]:
    def command(spare: bool) -> str:
        options = ("--no-checks", "--nnodes", "3", *(("--spares", "1") if spare else ()), *how)
        shorter = ("--owner-wait", str(OWNER_WAIT_S), "--rdzv-conf", "last_call_timeout=1")
        return " ".join(["exec", *holdfast(), "run", *options, *shorter])

    return command


def _theirs(program: str, nnodes: str, spare_nnodes: str, *more: str) -> Callable[[bool], str | None]:
    """As PyTorch's documentation has it: the first node of the job hosts the store."""

    def command(spare: bool) -> str | None:
        found = beside_python(program)
        words = (
            *("srun", *(("--no-kill",) if "--max-restarts" in more else ()), found or "", "--nproc-per-node", "1"),
            *("--nnodes", spare_nnodes if spare else nnodes, "--rdzv-id", "$RANDOM", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", "$(hostname):29500", *more),
        )
        return " ".join(words) if found else None

    return command


#: `--no-kill`, restarts: what makes the others go on.
RESTARTS = ("--max-restarts", "10", "--rdzv-conf", "last_call_timeout=1")
LAUNCHERS = (
    Launcher("holdfast", ("--no-kill", "--requeue"), _ours("--no-warm")),
    Launcher("holdfast warm", ("--no-kill", "--requeue"), _ours("--warm")),
    Launcher("srun torchrun, plain", ("--requeue",), _theirs("torchrun", "3", "3"), spares=False),
    Launcher("srun torchrun, elastic", ("--no-kill", "--requeue"), _theirs("torchrun", "2:3", "3:4", *RESTARTS)),
    Launcher(
        "srun ft_launcher, elastic",
        ("--no-kill", "--requeue"),
        _theirs("ft_launcher", "2:3", "3:4", *RESTARTS, "--ignore-missing-fault-tol-cfg"),
    ),
)


class Job(Workers):
    """One job under a launcher, and those that an operator submits in its place."""

    def __init__(self, slurm: Slurm, launcher: Launcher, spare: bool) -> None:
        super().__init__(slurm.home / "out")
        self.slurm, self.launcher, self.spare = slurm, launcher, spare and launcher.spares
        self.ids: list[int] = []
        self.submitted_at = 0.0

    def submit(self) -> bool:
        """False where the launcher is not installed."""
        command = self.launcher.command(self.spare)
        if command is None:
            return False
        script = f"{OWN_PORT}\n{command} {TRAINER} {self.out} {STEP_S}"
        self.submitted_at = time.time()
        nodes = 4 if self.spare else 3
        self.ids.append(self.slurm.sbatch(script, f"-N{nodes}", "-n", str(nodes), *self.launcher.sbatch))
        return True

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = 90.0) -> None:
        self.slurm.wait(what, why, timeout_s)

    def stepped(self, after: float, ranks: int = 3) -> float | None:
        """When so many ranks that began later had finished a step."""
        begun = {(e["host"], e["pid"]) for e in self.events("start") if e["at"] > after}
        firsts: dict[int, float] = {}
        for event in self.events("step"):
            if (event["host"], event["pid"]) in begun:
                firsts.setdefault(event["rank"], event["at"])
        return max(firsts.values()) if len(firsts) >= ranks else None

    def host_of(self, rank: int) -> str | None:
        """Where the rank last stepped."""
        steps = self.events("step", rank)
        return str(steps[-1]["host"]) if steps else None


@dataclass(slots=True)
class Loss:
    """What became of one lost node, in seconds; None: not within the limit."""

    back_s: float | None = None
    #: Slurm's, of the job, where no rank stepped any more.
    state: str = ""


def loss(launcher: Launcher, scenario: str) -> Loss | None:
    """None where the launcher is not installed."""
    spare, slurmd_timeout = LOSSES[scenario]
    with Slurm(4, cpus=2, conf={"SlurmdTimeout": str(slurmd_timeout)}) as slurm:
        job = Job(slurm, launcher, spare)
        if not job.submit():
            return None
        job.wait(lambda: job.stepped(0.0), f"three ranks step under {launcher.name}")
        victim = job.host_of(1)
        assert victim is not None
        at = time.time()
        slurm.off(victim)
        while time.time() < at + limit_s(scenario):
            if (back := job.stepped(at)) is not None:
                return Loss(back - at)
            time.sleep(0.1)
        return Loss(None, slurm.job(job.ids[-1])["JobState"])


# ------------------------------------------------------------------------------------------ the story of ten failures


def drawn(seed: int) -> list[tuple[str, int]]:
    """Ten failures in their order: what, and of which rank."""
    dice = random.Random(seed)
    what = ["kill", "kill", "kill", "raise", "segv", "power", "power", "power", "preempt", "requeue"]
    dice.shuffle(what)
    return [(each, dice.randrange(3)) for each in what]


@dataclass(slots=True)
class Story:
    #: Steps that were kept, by what a step takes, over the time of the story.
    share: float = 0.0
    #: How often it was submitted: by the operator, but for once.
    jobs: int = 0
    moments: list[str] = field(default_factory=list)


def story(launcher: Launcher, seed: int) -> Story | None:
    settings = {**PREEMPTING}
    with Slurm(4, cpus=2, conf=settings, main="PriorityTier=1 GraceTime=10", lines=[URGENT]) as slurm:
        job = Job(slurm, launcher, spare=True)
        if not job.submit():
            return None
        job.wait(lambda: job.stepped(0.0), f"three ranks step under {launcher.name}")
        begun = time.time()
        before = _kept(job)
        found = Story()
        plan: list[tuple[float, Callable[[], object]]] = []
        for number, (what, rank) in enumerate(drawn(seed), 1):
            moment = begun + number * EVERY_S
            plan.append((moment, lambda what=what, rank=rank: _strike(slurm, job, what, rank, plan)))  # type: ignore[misc] # mypy infers no type for a lambda with defaults
        end = begun + 10 * EVERY_S + AFTERWARDS_S
        looks = begun + LOOKS_S
        while (now := time.time()) < end:
            for due in [each for each in plan if each[0] <= now]:
                plan.remove(due)
                due[1]()
            if now >= looks:
                looks += LOOKS_S
                _operate(slurm, job, found)
            time.sleep(0.1)
        found.share = (_kept(job) - before) * STEP_S / (end - begun)
        found.jobs = len(job.ids)
        return found


def _kept(job: Job) -> int:
    path = job.out / "saved"
    return int(path.read_text(encoding="ascii")) if path.exists() else 0


def _strike(slurm: Slurm, job: Job, what: str, rank: int, plan: list[tuple[float, Callable[[], object]]]) -> None:
    steps = job.events("step")
    lives = bool(steps) and steps[-1]["at"] > time.time() - 2
    print(f"  {what} of rank {rank}{'' if lives else ' (no rank steps now)'}", file=sys.stderr, flush=True)
    match what:
        case "power":
            victim = job.host_of(rank)
            if victim is not None and slurm.node(victim).on:
                slurm.off(victim)
                plan.append((time.time() + BACK_S, lambda: slurm.boot(victim)))
        case "preempt":
            slurm.sbatch("sleep 5", "-N4", "-p", "urgent", "--time=1")
        case "requeue":
            slurm.start("scontrol", "requeue", str(job.ids[-1])).wait()
        case _ if lives:
            job.order(rank, what)
        case _:
            pass  # there is no rank that could die


def _operate(slurm: Slurm, job: Job, found: Story) -> None:
    state = slurm.job(job.ids[-1])["JobState"]
    moments = [event["at"] for event in job.events("step")]
    idle_s = time.time() - max([*moments, job.submitted_at])
    if state in ("PENDING", "CONFIGURING", "COMPLETING", "REQUEUED") or (state == "RUNNING" and idle_s < PATIENCE_S):
        return
    found.moments.append(f"{state} after {idle_s:.0f} s without a step")
    print(f"  the operator submits again: {found.moments[-1]}", file=sys.stderr, flush=True)
    if state == "RUNNING":
        slurm.start("scancel", str(job.ids[-1])).wait()
    job.submit()


# ------------------------------------------------------------------------------------------------------------- the page


@dataclass(slots=True)
class Results:
    #: By scenario and launcher.
    losses: dict[tuple[str, str], list[Loss]] = field(default_factory=dict)
    stories: dict[str, list[Story]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def add(self, scenario: str, name: str, told: Loss | Story) -> None:
        if isinstance(told, Story):
            self.stories.setdefault(name, []).append(told)
        else:
            self.losses.setdefault((scenario, name), []).append(told)


def measure(runs: int, only: Sequence[str], scenarios: Sequence[str], seed: int, keep: Path | None) -> Results:
    results = kept(keep) if keep is not None else Results()
    for turn in range(runs):
        for scenario in scenarios:
            for launcher in LAUNCHERS:
                had = len(results.losses.get((scenario, launcher.name), ()))
                had += len(results.stories.get(launcher.name, ())) if scenario == "story" else 0
                if not launcher.name.startswith(tuple(only)) or launcher.name in results.absent or had > turn:
                    continue
                try:
                    told = story(launcher, seed + turn) if scenario == "story" else loss(launcher, scenario)
                except AssertionError as error:
                    print(f"{scenario} {launcher.name}: {error}", file=sys.stderr)
                    told = Story() if scenario == "story" else Loss()
                print(f"{turn + 1}/{runs} {scenario} {launcher.name}: {told}", file=sys.stderr, flush=True)
                if told is None:
                    results.absent.append(launcher.name)
                    continue
                results.add(scenario, launcher.name, told)
                if keep is not None:
                    with keep.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps([scenario, launcher.name, asdict(told)]) + "\n")
    return results


def kept(file: Path) -> Results:
    """What earlier runs have written down."""
    results = Results()
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        scenario, name, told = json.loads(line)
        results.add(scenario, name, Story(**told) if scenario == "story" else Loss(**told))
    return results


def _seconds(losses: Sequence[Loss], scenario: str, ours_s: float) -> str:
    """`28.9 (28.1 to 33.0) s, × 3.5`: beside holdfast's."""
    if not losses:
        return ""
    found = known(losses)
    if not found:
        states = sorted({loss.state for loss in losses if loss.state})
        return f"not in {limit_s(scenario):g} s" + (f" (job {', '.join(states)})" if states else "")
    less = f", {len(losses) - len(found)} of {len(losses)} not" if len(found) < len(losses) else ""
    return spread(found, "s") + less + (f", × {median(found) / ours_s:.1f}" if ours_s else "")


def known(losses: Iterable[Loss]) -> list[float]:
    return [loss.back_s for loss in losses if loss.back_s is not None]


def page(results: Results, seed: int) -> str:
    names = [each.name for each in LAUNCHERS]
    scenarios = [each for each in LOSSES if any(key[0] == each for key in results.losses)]
    ours = {each: known(results.losses.get((each, "holdfast"), ())) for each in scenarios}
    counts = sorted({*map(len, results.losses.values()), *map(len, results.stories.values())})
    runs = f"{counts[0]} to {counts[-1]} runs" if counts[1:] else f"{counts[0]} runs" if counts else "no runs"
    lines = [f"{machine()}; Slurm 22.05; {runs}: medians, what they lie between, and how often holdfast's.", ""]
    rows = []
    for name in names:
        by = [results.losses.get((each, name), []) for each in scenarios]
        cells = [
            _seconds(losses, each, median(ours[each]) if ours[each] else 0.0)
            for each, losses in zip(scenarios, by, strict=True)
        ]
        if any(cells):
            rows.append([name, *cells])
    if rows:
        head = {
            "spare": "power cut → common step, with a spare",
            "requeue": "without: in another run, SlurmdTimeout 3 s",
            "late": "the same, SlurmdTimeout 30 s",
        }
        lines += [table(["launcher", *(head[each] for each in scenarios)], rows), ""]
    stories = [
        [
            name,
            spread([100 * each.share for each in told], "%", 0),
            f"{median(each.jobs - 1 for each in told):g}",
        ]
        for name in names
        if (told := results.stories.get(name))
    ]
    if stories:
        list_of = ", ".join(
            f"{what} (rank {rank})" if what not in ("preempt", "requeue") else what for what, rank in drawn(seed)
        )
        lines += [
            f"Ten failures, one every {EVERY_S:g} s (the first story: {list_of}):",
            "",
            table(["launcher", "productive share of the time", "submitted again by the operator"], stories),
            "",
        ]
    if results.absent:
        lines.append(f"Not installed here, hence left out: {', '.join(results.absent)}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="launchers whose names begin so, separated by semicolons")
    parser.add_argument("--scenarios", default="spare,requeue,late,story")
    parser.add_argument("--seed", type=int, default=1, help="of the first story; each run has the next")
    parser.add_argument("--keep", type=Path, help="write each run to this file, and do not repeat those it has")
    parser.add_argument("--write", action="store_true", help="put the result into docs/internals/benchmarks.md")
    parser.add_argument("--smoke", action="store_true", help="holdfast alone, once, with a spare: does it work?")
    options = parser.parse_args()
    if why := missing():
        print(f"{why}: nothing was measured")
        return
    scenarios = options.scenarios.split(",")
    if unknown := [name for name in scenarios if name not in (*LOSSES, "story")]:
        raise SystemExit(f"no scenario {', '.join(unknown)}: expected {', '.join(LOSSES)} or story")
    only, runs = options.only.split(";"), options.runs
    if options.smoke:
        only, runs, scenarios = ["holdfast warm"], 1, ["spare"]
    results = measure(runs, only, scenarios, options.seed, options.keep)
    text = page(results, options.seed)
    print(text)
    if options.smoke and not all(known(by) for by in results.losses.values()):
        raise SystemExit("the job did not go on: see above")
    if options.write:
        put("slurm", text)


if __name__ == "__main__":
    main()
