"""Which checks a job has, settled before anything starts: chosen, loaded, their parameters checked."""

from __future__ import annotations

from typing import Any

from holdfast.check_registry import Profile
from holdfast.decide.gate import CheckStep
from holdfast.errors import BadUsage
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun


class PlannedCheck(Noun, frozen=True, kw_only=True):
    """One check with everything settled: what to load, with which parameters, how long, how often."""

    profile: Profile
    params: dict[str, Any] = {}
    step: CheckStep

    @property
    def name(self) -> str:
        return self.profile.info.name


class CheckPlan(Noun, frozen=True, kw_only=True):
    """The checks of a job, in order. Empty: DISABLED."""

    checks: tuple[PlannedCheck, ...] = ()

    @property
    def disabled(self) -> bool:
        return not self.checks


class DuringJob(Noun, frozen=True, kw_only=True):
    """A check of the plan that also runs during the job, every `interval_s` seconds."""

    check: PlannedCheck
    interval_s: float


def choices_from_text(text: str, where: str = "--checks") -> tuple[CheckChoice, ...]:
    """`disk,memory` or `disk:min_free=50GB;paths=/data,memory`: the value of `--checks`.

    Raises BadUsage on anything else.
    """
    choices: list[CheckChoice] = []
    for part in text.split(","):
        if not part.strip():
            continue
        name, _, rest = part.strip().partition(":")
        params: dict[str, Any] = {}
        for setting in rest.split(";") if rest else ():
            key, equals, value = setting.partition("=")
            if not equals or not key.strip():
                raise BadUsage(f"{where}: `{part.strip()}`: expected NAME:PARAMETER=VALUE;PARAMETER=VALUE")
            params[key.strip()] = value.strip()
        choices.append(CheckChoice(name=name, params=params))
    if not choices:
        raise BadUsage(f"{where}: expected names of checks, found nothing", hint="holdfast check --list")
    return tuple(choices)


def during_job(plan: CheckPlan) -> list[DuringJob]:
    """The checks of a plan that may also run during the job, with their intervals in seconds."""
    return [
        DuringJob(check=check, interval_s=check.profile.info.interval_s)
        for check in plan.checks
        if check.profile.info.during_job
    ]
