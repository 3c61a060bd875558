"""Checks whether the CPU runs at full speed: enough cores, no clock limit, no overheating."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.model.human_format import counted
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.safe_files import small_text


class CpuParams(Params, frozen=True, kw_only=True):
    min_cores: Annotated[float, Meta(ge=0, description="cores the job may use (affinity, quota)")] = 0.0
    min_clock_percent: Annotated[
        float, Meta(ge=0, le=100, description="the clock's upper bound, in percent of what the CPU can do")
    ] = 50.0
    max_throttled_percent: Annotated[
        float,
        Meta(ge=0, le=100, description="scheduling periods that the container's quota cut short"),
    ] = 100.0
    sys: Annotated[str, Meta(description="where sysfs is mounted")] = "/sys"


class Cpu(BuiltIn):
    name = "cpu"
    question = "Does the CPU run at its speed, or is it throttled by heat, a clock limit or a quota?"
    cost = "3 ms"
    Params = CpuParams
    retries = 2
    running_s = 60.0

    def look(self, context: Context) -> Verdict:
        params: CpuParams = self.params
        root = Path(params.sys)
        problems = [*held_down(root, params.min_clock_percent), *too_hot(root)]
        cores = usable_cores()
        figures = {"cores": cores}
        if cores < params.min_cores:
            problems.append(f"{cores:g} cores usable, {params.min_cores:g} asked")
        for file in proc_files.cgroup_files("cpu", "cpu.stat"):
            rows = dict(line.split() for line in small_text(file).splitlines())
            periods, cut = int(rows.get("nr_periods", 0)), int(rows.get("nr_throttled", 0))
            if periods and 100 * cut / periods > params.max_throttled_percent:
                problems.append(f"its quota cut {100 * cut / periods:.0f} % of {periods} periods short ({file.parent})")
        if problems:
            return self.bad(
                context,
                problems,
                "Look at cooling, power caps and the governor (`cpupower frequency-info`), or raise the quota.",
                figures=figures,
            )
        return good(f"{cores:g} cores", figures)


def held_down(root: Path, percent: float) -> list[str]:
    """Return a problem if a core's clock limit is below `percent` of its maximum."""
    slow: list[tuple[int, int, int]] = []
    for folder in root.glob("devices/system/cpu/cpu[0-9]*/cpufreq"):
        most, bound = proc_files.number(folder / "cpuinfo_max_freq"), proc_files.number(folder / "scaling_max_freq")
        if most and bound and bound * 100 < most * percent:
            slow.append((int(folder.parent.name[3:]), bound, most))
    if not slow:
        return []
    core, bound, most = min(slow)
    ghz = f"{bound / 1e6:.2f} of {most / 1e6:.2f} GHz"
    return [f"the clock of {counted(len(slow), 'core')} is held down: cpu{core} may run at {ghz}, {percent:g} % asked"]


def too_hot(root: Path) -> list[str]:
    """Return a problem for each thermal zone at its hot or critical trip point, and for throttling by heat."""
    problems = []
    for zone in sorted(root.glob("class/thermal/thermal_zone*")):
        now = proc_files.number(zone / "temp")
        for kind in sorted(zone.glob("trip_point_*_type")):
            if small_text(kind) not in ("hot", "critical"):
                continue
            trip = proc_files.number(kind.with_name(kind.name.replace("_type", "_temp")))
            if now is not None and trip is not None and 0 < trip <= now:
                name = small_text(zone / "type") or zone.name
                problems.append(
                    f"{name} is at {now / 1000:.0f} °C, its {small_text(kind)} point is {trip / 1000:.0f} °C"
                )
    for core in sorted(root.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle")):
        # A rising total shows that throttling happens now. A count alone may be from long ago.
        first = proc_files.number(core / "core_throttle_total_time_ms")
        if first:
            proc_files.pause(0.02)
            again = proc_files.number(core / "core_throttle_total_time_ms")
            if again is not None and again > first:
                problems.append(f"{core.parent.name} is being throttled by heat right now")
                break
    return problems


def usable_cores() -> float:
    """Return the number of cores that this process may use under the container's quota."""
    cores = float(len(os.sched_getaffinity(0)))
    for file in proc_files.cgroup_files("cpu", "cpu.max"):
        quota, _, period = small_text(file).partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, int(quota) / int(period))
    for file in proc_files.cgroup_files("cpu", "cpu.cfs_quota_us"):
        bound, length = proc_files.number(file), proc_files.number(file.parent / "cpu.cfs_period_us")
        if bound and length and bound > 0:
            cores = min(cores, bound / length)
    return cores
