"""The base class of checks that measure the same in every worker group, and compare the groups."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.observe.checks.worker_groups import cores, percent, run_groups, slow_ones


class GangParams(Params, frozen=True, kw_only=True):
    groups: Annotated[int, Meta(ge=0, le=1024, description="worker groups; 0: one a core, at most 16")] = 0
    slow_factor: Annotated[float, Meta(gt=1, description="times the median at which a group counts as slow")] = 2.0
    wait_s: Annotated[float, Meta(gt=0, description="how long the groups may take")] = 20.0


class GangCheck(BuiltIn):
    """A check that calls `measure` in every group, and finds slow groups by the median."""

    Params = GangParams
    needs_gang = True
    independent = False
    lane = ""
    retries = 2
    time_limit_s = 60.0
    #: The measured work as a noun, for messages: `a matrix product`.
    what: ClassVar[str]
    remedy = "Run the check again on the idle node; if the same one is slow or wrong again, take it out of service."

    def prepare(self) -> None:
        """Load the modules and data that the groups need, once before the groups are forked."""

    def count(self) -> int:
        return self.params.groups or min(len(cores()), 16)

    def label(self, index: int) -> str:
        usable = cores()
        return f"group {index} (cpu{usable[index % len(usable)]})"

    def measure(self, index: int) -> float:
        """Do this group's work, in the group's process. Return its duration in seconds. Raises if the result is wrong.
        `index`: the group's number.
        """
        raise NotImplementedError

    def look(self, context: Context) -> Verdict:
        self.prepare()
        indices = range(self.count())
        answers = run_groups(indices, self.measure, self.params.wait_s)
        problems = [f"{self.label(answer.index)}: {answer.error}" for answer in answers if answer.error]
        failed = [answer.index for answer in answers if answer.error]
        times = {answer.index: float(answer.value) for answer in answers if not answer.error}
        figures: dict[str, Any] = {"groups": len(indices)}
        if times:
            median, slow = slow_ones(times, self.params.slow_factor)
            figures |= {"median_s": round(median, 6), "spread_percent": round(percent(list(times.values())), 1)}
            figures |= {f"{self.label(index)} s": round(time, 6) for index, time in times.items()}
            for index, factor in slow.items():
                failed.append(index)
                problems.append(
                    f"{self.label(index)} took {1000 * times[index]:.1f} ms for {self.what}, {factor:.1f} times the "
                    f"median of {len(times)} groups, {self.params.slow_factor:g} allowed"
                )
        if problems:
            return self.bad(
                context, problems, self.remedy, figures=figures, devices=[self.label(index) for index in failed]
            )
        return good(f"{len(times)} groups, {figures['spread_percent']:.0f} % apart", figures)
