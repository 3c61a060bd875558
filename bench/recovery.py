"""From a rank's death to the next step that all ranks finished, next to other launchers and to the bare start.

The same script of two gloo ranks (bench/trainer.py) runs under each launcher in turn, in one session. The floor is a
bare start of the two processes, without any launcher, to their first common step, taken once a round: a recovery that
starts both anew cannot be faster. Launchers that are not installed are left out, and that is said.

- kill: rank 1 kills itself at step 6 (SIGKILL); the launcher may restart. Recovered, how fast, and who was named?
- told: rank 1 kills itself, rank 0 sleeps; how long until rank 0 gets SIGTERM?
- both: rank 1 kills itself, and rank 0 leaves with status 1 the moment it notices. Who is named?
- raise: rank 1 raises an exception, and rank 0 leaves with status 1 the moment it notices. Who is named?

    python bench/recovery.py [--runs 7] [--only holdfast,torchrun] [--smoke]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _common import beside_python, end, holdfast, machine, median, spread, surroundings, table
from _over_tcp import OWN_PORT

TRAINER = Path(__file__).resolve().parent / "trainer.py"
#: A run that has not ended by then has not recovered.
LIMIT_S = 60.0
AIM_RATIO, AIM_TOLD_MS = 1.08, 10.0

Command = tuple[list[str], dict[str, str]]


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@dataclass(frozen=True, slots=True)
class Launcher:
    """How it is called, and how it names the culprit."""

    name: str
    #: (restarts, directory of the run) → the command before the script, and its environment; None: not installed.
    command: Callable[[int, Path], Command | None]
    #: (directory, what it printed) → the rank it blames first.
    named: Callable[[Path, str], int | None]


def _holdfast(restarts: int, out: Path) -> Command:
    options = ["--no-checks", "--nproc-per-node", "2", "--max-restarts", str(restarts), "--same-failure", "off"]
    return [*holdfast(), "run", *options, "--report", str(out / "report.json")], {}


def _named_by_holdfast(out: Path, _printed: str) -> int | None:
    try:
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    first = report["attempts"][0]["report"]["first"]
    return None if first is None else int(first["rank"])


@functools.cache
def starts(program: str) -> bool:
    """Whether it tells its options: one that was installed without all that it imports does not."""
    return subprocess.run([program, "--help"], capture_output=True, check=False).returncode == 0


def _elastic(program: str, *words: str, fresh_store: bool = False) -> Callable[[int, Path], Command | None]:
    def command(restarts: int, _out: Path) -> Command | None:
        found = beside_python(program)
        if found is None or not starts(found):
            return None
        given = [word.format(port=port()) for word in words]
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if fresh_store else {}
        return [found, "--nproc-per-node", "2", "--max-restarts", str(restarts), *given], env

    return command


def _dlrover(restarts: int, out: Path) -> Command | None:
    found = _elastic("dlrover-run")(restarts, out)
    if found is None:
        return None
    command, env = found
    return [sys.executable, str(Path(__file__).with_name("_dlrover.py")), *command], env


def _named_by_elastic(_out: Path, printed: str) -> int | None:
    box = re.search(r"Root Cause \(first observed failure\):.*?rank\s*:\s*(\d+)", printed, re.DOTALL)
    line = re.search(r"failed \(exitcode: -?\d+\) local_rank: (\d+)", printed)
    found = box or line
    return None if found is None else int(found[1])


LAUNCHERS = (
    Launcher("holdfast", _holdfast, _named_by_holdfast),
    Launcher("torchrun static", _elastic("torchrun", "--master-port", "{port}"), _named_by_elastic),
    Launcher("torchrun standalone", _elastic("torchrun", "--standalone"), _named_by_elastic),
    Launcher("torchrun fresh store", _elastic("torchrun", "--standalone", fresh_store=True), _named_by_elastic),
    Launcher(
        "ft_launcher",
        _elastic("ft_launcher", "--rdzv-endpoint", "127.0.0.1:{port}", "--ignore-missing-fault-tol-cfg"),
        _named_by_elastic,
    ),
    Launcher("dlrover-run", _dlrover, _named_by_elastic),
)


@dataclass(slots=True)
class Run:
    """What became of one run. Times in seconds; None: it did not happen."""

    recovered_s: float | None = None
    #: Until both scripts of the next attempt had begun: all of it is the launcher's, and Python's own start.
    again_s: float | None = None
    told_s: float | None = None
    named: int | None = None


@dataclass(slots=True)
class Result:
    kill: list[Run] = field(default_factory=list)
    told: list[Run] = field(default_factory=list)
    both: list[Run] = field(default_factory=list)
    raised: list[Run] = field(default_factory=list)


def events(out: Path) -> list[dict[str, object]]:
    found = [
        {**json.loads(line), "rank": int(file.stem.removeprefix("rank-"))}
        for file in out.glob("rank-*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(found, key=lambda event: float(event["at"]))


def first_common_step(told: Sequence[dict[str, object]], after: float) -> float | None:
    """When both ranks of one later start had finished a step."""
    old = {event["pid"] for event in told if float(str(event["at"])) <= after}
    firsts: dict[object, float] = {}
    for event in told:
        if event["what"] == "step" and event["pid"] not in old:
            firsts.setdefault(event["rank"], float(str(event["at"])))
    return max(firsts.values()) if len(firsts) == 2 else None


def begun_again(told: Sequence[dict[str, object]], after: float) -> float | None:
    """When the scripts of both ranks had begun again."""
    begun = {event["rank"]: float(str(event["at"])) for event in told if event["what"] == "start"}
    return max(begun.values()) if len(begun) == 2 and min(begun.values()) > after else None


def floor(over: str, out: Path, env: dict[str, str]) -> float:
    """The bare start of both, in seconds to their first common step."""
    out.mkdir()
    env = {**env, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    begun = time.monotonic()
    both = [
        subprocess.Popen(
            [sys.executable, "-u", TRAINER, "--out", out, "--over", over, "--steps", "2"],
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in (0, 1)
    ]
    for process in both:
        process.wait(LIMIT_S)
    stepped = first_common_step(events(out), begun)
    if stepped is None:
        raise SystemExit(f"the bare start of {TRAINER} failed: there is no floor to measure against")
    return stepped - begun


def run(launcher: Launcher, restarts: int, words: Sequence[str], out: Path, env: dict[str, str]) -> Run | None:
    """One run of the trainer under a launcher; None where that is not installed."""
    out.mkdir()
    if (found := launcher.command(restarts, out)) is None:
        return None
    command, more = found
    with (out / "printed").open("wb") as printed:
        process = subprocess.Popen(
            [*command, str(TRAINER), "--out", str(out), *words],
            env={**env, **more},
            cwd=out,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(LIMIT_S)
            over = True
        except subprocess.TimeoutExpired:
            end(process)
            over = False
    told = events(out)
    death = next((float(str(event["at"])) for event in told if event["what"] == "death"), None)
    if death is None:
        raise SystemExit(f"{launcher.name}: nobody died; see what it printed:\n{(out / 'printed').read_text()}")
    stop = [float(str(event["at"])) for event in told if event["what"] == "told to stop"]
    stepped, again = first_common_step(told, death), begun_again(told, death)
    return Run(
        again_s=again - death if again is not None else None,
        recovered_s=stepped - death if stepped is not None and over and process.returncode == 0 else None,
        told_s=stop[0] - death if stop else None,
        named=launcher.named(out, (out / "printed").read_text(encoding="utf-8", errors="replace")),
    )


def scenarios(over: str) -> dict[str, tuple[int, list[str]]]:
    """Name → restarts allowed, and the trainer's words."""
    dying = ["--die-at", "6"]
    return {
        "kill": (3, ["--over", over, *dying]),
        "told": (0, ["--over", "nothing", "--steps", "600", *dying]),
        "both": (0, ["--over", over, *dying, "--leave-fast"]),
        "raised": (0, ["--over", over, *dying, "--leave-fast", "--die-of", "raise"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default="", help="launchers whose names begin so, separated by commas")
    parser.add_argument("--scenarios", default="kill,told,both,raised")
    parser.add_argument("--smoke", action="store_true", help="holdfast alone, once, without torch: does it work?")
    options = parser.parse_args()
    over = "tcp" if options.smoke or importlib.util.find_spec("torch") is None else "gloo"
    runs = 1 if options.smoke else options.runs
    only = ("holdfast",) if options.smoke else tuple(options.only.split(","))
    chosen = [launcher for launcher in LAUNCHERS if launcher.name.startswith(only)]
    results = {launcher.name: Result() for launcher in chosen}
    floors: list[float] = []
    missing: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        place = Path(name)
        env = surroundings(place / "home", {"PYTHONWARNINGS": "ignore", **(OWN_PORT if over == "tcp" else {})})
        floor(over, place / "first", env)  # .pyc files and the disk's cache
        for turn in range(runs):
            floors.append(floor(over, place / f"floor-{turn}", env))
            for scenario, (restarts, words) in scenarios(over).items():
                if scenario not in options.scenarios.split(","):
                    continue
                for launcher in chosen:
                    out = place / f"{scenario}-{turn}-{launcher.name.replace(' ', '-')}"
                    if launcher.name in missing:
                        continue
                    done = run(launcher, restarts, words, out, env)
                    if done is None:
                        missing.add(launcher.name)
                        continue
                    getattr(results[launcher.name], scenario).append(done)
                    print(f"{turn + 1}/{runs} {scenario} {launcher.name}: {done}", file=sys.stderr, flush=True)
    found = {name: result for name, result in results.items() if name not in missing}
    print(told(found, floors, sorted(missing), over, runs))


def told(results: dict[str, Result], floors: list[float], missing: list[str], over: str, runs: int) -> str:
    """The result as the page has it."""
    rows = []
    for name, result in results.items():
        back = [(run.recovered_s, base) for run, base in zip(result.kill, floors, strict=False) if run.recovered_s]
        ratios = [recovered / base for recovered, base in back]
        stops = [run.told_s * 1000 for run in result.told if run.told_s is not None]
        rows.append(
            [
                name,
                f"{len(back)} of {len(result.kill)}",
                spread([recovered for recovered, _ in back], "s", 2),
                spread(ratios, "", 2),
                spread([run.again_s for run in result.kill if run.again_s is not None], "s", 2),
                spread(stops, "ms"),
                *[
                    f"{sum(run.named == 1 for run in done)} of {len(done)}"
                    for done in (result.kill, result.told, result.both, result.raised)
                ],
            ]
        )
    head = [
        "launcher",
        "recovered",
        "death → common step",
        "× floor",
        "death → both begun",
        "told to stop",
        "kill",
        "told",
        "both",
        "raise",
    ]
    lines = [
        f"{machine()}; {runs} rounds in turn over {over}; medians, and what they lie between.",
        f"Floor, the bare start of both ranks to their first common step: {spread(floors, 's', 2)}.",
        "The last four columns: how often rank 1, which died first, was named.",
        "",
        table(head, rows),
        "",
    ]
    if missing:
        lines.append(f"Not installed here, hence left out: {', '.join(missing)}.")
    ours = results.get("holdfast")
    if ours is not None and ours.kill:
        ratio = [run.recovered_s / base for run, base in zip(ours.kill, floors, strict=False) if run.recovered_s]
        stops = [run.told_s * 1000 for run in ours.told if run.told_s is not None]
        if ratio and stops:
            lines.append(
                f"Aims: at most {AIM_RATIO:g} × the floor (here {median(ratio):.2f}); survivors told to stop within "
                f"{AIM_TOLD_MS:g} ms (here at most {max(stops):.1f}); every run recovered, and rank 1 named every time."
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
