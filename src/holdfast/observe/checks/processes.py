"""Checks for other processes that use the cores, for many zombies, and for processes stuck in the kernel."""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.model.human_format import counted
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.safe_files import small_text

_KTHREADD = 2


class ProcessesParams(Params, frozen=True, kw_only=True):
    max_zombies: Annotated[int, Meta(ge=0, description="ended processes that no parent collected")] = 500
    max_stuck: Annotated[int, Meta(ge=0, description="processes in state D that do not move")] = 4
    window_s: Annotated[float, Meta(gt=0, description="how long such a process is watched before it counts")] = 1.0


class Processes(BuiltIn):
    name = "processes"
    question = "Are there heaps of zombies, or processes stuck in the kernel (state D)?"
    cost = "5 ms; 1 s more where something is in state D"
    Params = ProcessesParams
    retries = 1

    def look(self, context: Context) -> Verdict:
        params: ProcessesParams = self.params
        zombies: list[int] = []
        stuck: dict[int, str] = {}
        for pid in proc_files.pids():
            fields = proc_files.stat(pid)
            if not fields or fields[1] == str(_KTHREADD):
                continue
            if fields[0] == "Z":
                zombies.append(pid)
            elif fields[0] == "D":
                stuck[pid] = switches(pid)
        if len(stuck) > params.max_stuck:
            # A busy disk puts processes into state D for a moment. So count one as stuck only if it makes no context
            # switch during the pause.
            proc_files.pause(params.window_s)
            stuck = {
                pid: was
                for pid, was in stuck.items()
                if proc_files.stat(pid)[:1] == ["D"] and was and switches(pid) == was
            }
        problems = []
        if len(zombies) > params.max_zombies:
            parents: dict[str, int] = {}
            for pid in zombies:
                parent = (proc_files.stat(pid) or ["", "0"])[1]
                parents[parent] = parents.get(parent, 0) + 1
            worst = max(parents, key=lambda parent: parents[parent])
            problems.append(
                f"{counted(len(zombies), 'zombie')}, {params.max_zombies} allowed; {parents[worst]} of them are "
                f"children of pid {worst} ({proc_files.command(int(worst))})"
            )
        if len(stuck) > params.max_stuck:
            first = min(stuck)
            place = small_text(f"/proc/{first}/wchan")
            where = f" waits in {place}" if place not in ("", "0") else ""
            problems.append(
                f"{counted(len(stuck), 'process is', 'processes are')} stuck in the kernel (state D), "
                f"{params.max_stuck} allowed; "
                f"pid {first} ({proc_files.command(first)}){where}"
            )
        if problems:
            return self.bad(
                context, problems, "Stop the parent of the zombies; what is stuck in state D usually needs a reboot."
            )
        return good(f"{counted(len(zombies), 'zombie')}, {len(stuck)} in state D")


def switches(pid: int) -> str:
    """Return the process's counts of context switches from /proc, as text for a comparison."""
    rows = small_text(f"/proc/{pid}/status").splitlines()
    return " ".join(row.split()[-1] for row in rows if "ctxt_switches" in row)


class HogsParams(Params, frozen=True, kw_only=True):
    min_idle_percent: Annotated[float, Meta(ge=0, le=100, description="of the cores this job may use, idle")] = 50.0
    window_s: Annotated[float, Meta(gt=0, le=60, description="how long the use of the cores is watched")] = 0.5


class Hogs(BuiltIn):
    name = "hogs"
    question = "Are the cores free, or do other processes use them?"
    cost = "0.5 s of waiting, 10 ms of CPU"
    Params = HogsParams
    retries = 2
    interval_s = 1.0
    time_limit_s = 30.0

    def look(self, context: Context) -> Verdict:
        params: HogsParams = self.params
        mine = os.sched_getaffinity(0)
        before, used_before = idle_ticks(), used_ticks()
        proc_files.pause(params.window_s)
        after, used_after = idle_ticks(), used_ticks()
        idle = whole = 0
        for core in mine & before.keys() & after.keys():
            idle += after[core][0] - before[core][0]
            whole += after[core][1] - before[core][1]
        if not whole:
            return self.unsure(context, "/proc/stat does not tell how much of the cores is idle")
        percent = 100 * idle / whole
        figures = {"idle_percent": round(percent, 1), "cores": len(mine)}
        if percent >= params.min_idle_percent:
            return good(f"{percent:.0f} % of {counted(len(mine), 'core')} idle", figures)
        busy = sorted(((ticks - used_before.get(pid, ticks), pid) for pid, ticks in used_after.items()), reverse=True)
        seconds = params.window_s * os.sysconf("SC_CLK_TCK")
        grave = [(ticks / seconds, pid) for ticks, pid in busy[:3] if ticks > 0.1 * seconds]
        most = [f"pid {pid} ({proc_files.command(pid)}) {used:.1f}" for used, pid in grave]
        who = f"; cores used: {', '.join(most)}" if most else "; the host itself takes the time (steal)"
        return self.bad(
            context,
            f"{percent:.0f} % of {counted(len(mine), 'core')} idle, {params.min_idle_percent:g} % asked{who}",
            "End what an earlier job left behind, or wait until the other work is done.",
            blame="platform",
            figures=figures,
        )


def idle_ticks() -> dict[int, tuple[int, int]]:
    """Return core → (idle ticks, all ticks) since boot. Waiting for a disk counts as idle."""
    found = {}
    for line in small_text("/proc/stat").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:8]]
            found[int(name[3:])] = (ticks[3] + ticks[4], sum(ticks))
    return found


def used_ticks() -> dict[int, int]:
    """Return pid → CPU ticks used so far."""
    return {
        pid: int(fields[11]) + int(fields[12]) for pid in proc_files.pids() if len(fields := proc_files.stat(pid)) > 12
    }
