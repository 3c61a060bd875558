"""The plan of a job's checks. Before anything starts, the checks are chosen and loaded, and their parameters are
validated."""

from __future__ import annotations

from typing import Any

from holdfast.check_registry import Profile
from holdfast.decide.gate import CheckStep
from holdfast.errors import BadUsage
from holdfast.model.check_results import CheckChoice
from holdfast.model.noun_base import Noun


class PlannedCheck(Noun, frozen=True, kw_only=True):
    """One planned check: its profile, its parameters, and the step with its time limit and retries."""

    profile: Profile
    params: dict[str, Any] = {}
    step: CheckStep

    @property
    def name(self) -> str:
        return self.profile.info.name


class CheckPlan(Noun, frozen=True, kw_only=True):
    """The checks of a job, in order. An empty plan means that checks are disabled."""

    checks: tuple[PlannedCheck, ...] = ()

    @property
    def disabled(self) -> bool:
        return not self.checks


class DuringJob(Noun, frozen=True, kw_only=True):
    """A check of the plan that also runs during the job, every `interval_s` seconds."""

    check: PlannedCheck
    interval_s: float


def choices_from_text(text: str, where: str = "--checks") -> tuple[CheckChoice, ...]:
    """Parse the value of `--checks`: `disk,memory` or `disk:min_free=50GB;paths=/data,memory`. Raises BadUsage for any
    other form. `where`: the source of the value, for messages.
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
    """Return the checks of a plan that also run during the job."""
    return [
        DuringJob(check=check, interval_s=check.profile.info.interval_s)
        for check in plan.checks
        if check.profile.info.during_job
    ]
