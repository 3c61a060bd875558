"""What bench/launchers.py measured, as docs/internals/benchmarks.md has it: tables, bars, the aims, what was met."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from _common import machine, median, spread, table
from _plot import bars_png, bars_text

AIM_RATIO, AIM_COLD, AIM_PSS = 0.1, 0.9, 0.6


@dataclass(slots=True)
class Run:
    """What became of one run. Seconds; None: it did not happen."""

    #: The machine's load as it began.
    load: float = 0.0
    first_line_s: float | None = None
    first_step_s: float | None = None
    #: From each death to the next common step.
    back_s: list[float] = field(default_factory=list)
    recovered: bool = False
    named: int | None = None
    launcher_cpu_s: float = 0.0
    launcher_pss: int = 0
    nursery_pss: int = 0
    workers_pss: int = 0
    wall_s: float = 0.0


#: (scenario, ranks) → launcher → its runs.
Results = dict[tuple[str, int], dict[str, list[Run]]]


def kept(file: Path) -> Results:
    """The runs that were written to the file before; none where there is no file."""
    results: Results = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            scenario, ranks, launcher, run = json.loads(line)
            results.setdefault((scenario, ranks), {}).setdefault(launcher, []).append(Run(**run))
    return results


def draw(results: Results, file: Path) -> None:
    """Deaths → common steps of every scenario, a panel each."""
    groups = {
        f"{scenario}, {ranks} ranks": backs
        for (scenario, ranks), by_launcher in results.items()
        if (backs := {name: _backs(runs) for name, runs in by_launcher.items() if _backs(runs)})
    }
    bars_png(file, "From a death to the next common step", "seconds", groups)


def told(results: Results, missing: list[str], over: str) -> str:
    """The results as the page has them."""
    lines = [f"{machine()}; launchers in turn, over {over}; medians, and what they lie between.", ""]
    for (scenario, ranks), by_launcher in results.items():
        rounds = max((len(runs) for runs in by_launcher.values()), default=0)
        loads = [run.load for runs in by_launcher.values() for run in runs]
        busy = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else "not run"
        lines += [f"**{scenario}, {ranks} ranks**, {rounds} rounds, {busy}", ""]
        lines.append(_healthy(by_launcher) if scenario == "none" else _trouble(by_launcher))
        lines.append("")
        if scenario != "none":
            backs = {name: _backs(done) for name, done in by_launcher.items() if _backs(done)}
            lines += ["```", bars_text({name: median(back) for name, back in backs.items()}, "s"), "```", ""]
    lines += _aims(results)
    if missing:
        lines += ["", f"Not installed here, hence left out: {', '.join(missing)}."]
    return "\n".join(lines)


def _backs(runs: list[Run]) -> list[float]:
    return [back for run in runs for back in run.back_s]


def _trouble(by_launcher: dict[str, list[Run]]) -> str:
    torchrun = [back for name, runs in by_launcher.items() if name.startswith("torchrun") for back in _backs(runs)]
    rows = []
    for name, runs in by_launcher.items():
        backs = _backs(runs)
        ratio = f"{median(backs) / median(torchrun):.3f}" if backs and torchrun else ""
        rows.append(
            [
                name,
                f"{sum(run.recovered for run in runs)} of {len(runs)}",
                spread(backs, "s", 2),
                ratio,
                f"{sum(run.named == 1 for run in runs)} of {len(runs)}",
            ]
        )
    return table(["launcher", "recovered", "death → common step", "× torchrun", "rank 1 named"], rows)


def _healthy(by_launcher: dict[str, list[Run]]) -> str:
    rows = []
    for name, runs in by_launcher.items():
        mib = 1 << 20
        rows.append(
            [
                name,
                spread([run.first_line_s for run in runs if run.first_line_s is not None], "s", 2),
                spread([run.first_step_s for run in runs if run.first_step_s is not None], "s", 2),
                spread([run.workers_pss / mib for run in runs], "MiB", 0),
                spread([run.nursery_pss / mib for run in runs], "MiB", 0),
                spread([run.launcher_pss / mib for run in runs], "MiB", 0),
                spread([run.launcher_cpu_s for run in runs], "s", 2),
            ]
        )
    head = [
        "launcher",
        "first line",
        "first common step",
        "PSS of workers",
        "of the nursery",
        "of the launcher",
        "its CPU",
    ]
    return table(head, rows)


def _aims(results: Results) -> list[str]:
    lines = []
    for (scenario, ranks), by_launcher in results.items():
        torchrun = [back for name, runs in by_launcher.items() if name.startswith("torchrun") for back in _backs(runs)]
        for name, aim in (("holdfast warm", AIM_RATIO), ("holdfast standby", AIM_RATIO), ("holdfast cold", AIM_COLD)):
            backs = _backs(by_launcher.get(name, []))
            if scenario == "kill" and torchrun and backs:
                ratio = median(backs) / median(torchrun)
                verdict = "met" if ratio <= aim else "missed"
                lines.append(
                    f"- {name}, {ranks} ranks, death → common step: at most {aim:g} × torchrun; {ratio:.3f}, {verdict}."
                )
        warm, cold = by_launcher.get("holdfast warm"), by_launcher.get("holdfast cold")
        if scenario == "none" and warm and cold and ranks > 2:
            whole = [run.workers_pss + run.nursery_pss for run in warm]
            ratio = median(whole) / median([run.workers_pss for run in cold])
            verdict = "met" if ratio <= AIM_PSS else "missed"
            lines.append(
                f"- {ranks} warm workers and their nursery at the first step, at most {AIM_PSS:g} × the PSS of {ranks} "
                f"cold ones: {ratio:.2f}, {verdict}."
            )
    troubled = [
        run
        for (scenario, _), by_launcher in results.items()
        if scenario != "none"
        for name, runs in by_launcher.items()
        if name.startswith("holdfast")
        for run in runs
    ]
    if troubled:
        recovered, named = sum(run.recovered for run in troubled), sum(run.named == 1 for run in troubled)
        lines.append(f"- holdfast, every run recovered: {recovered} of {len(troubled)}.")
        lines.append(f"- holdfast, the rank that died first named every time: {named} of {len(troubled)}.")
    return ["Aims:", "", *lines] if lines else []
