"""Which checks a job has, settled before anything starts: chosen, loaded, their parameters checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from holdfast.decide.gate import Step
from holdfast.errors import BadUsage
from holdfast.loop.prechecks.process import describe_in_child
from holdfast.model.base import Noun
from holdfast.model.checks import CheckChoice, CheckInfo, InconclusivePolicy
from holdfast.plugins import COMMON, DEFAULT, CheckRegistry, Profile, validated


class PlannedCheck(Noun, frozen=True, kw_only=True):
    """One check with everything settled: what to load, with which parameters, how long, how often."""

    profile: Profile
    params: dict[str, Any] = {}
    step: Step

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


def plan_checks(
    choices: Sequence[CheckChoice] | None,
    *,
    plugins: Iterable[str | PathLike[str]] = (),
    timeout_s: float | None = None,
    inconclusive: InconclusivePolicy = InconclusivePolicy.WARN,
    where: str = "",
) -> CheckPlan:
    """Settle which checks run, before anything starts.

    `choices` None: the default set and all that `plugins` bring; (): none. `timeout_s` bounds each check with its
    retries. Raises BadUsage on an unknown name or parameter (naming the nearest), and on a plugin that does not load.
    """
    shelf = CheckRegistry(plugins, describe_in_child=describe_in_child)
    if choices is None:
        choices = (*DEFAULT, *(CheckChoice(name=name) for name in shelf.from_plugins))
    planned: list[PlannedCheck] = []
    for choice in choices:
        try:
            found = shelf.profile(choice.name)
        except BadUsage as error:
            raise BadUsage(f"{where}: {error.message}" if where else error.message, hint=error.hint) from None
        own = validated(found, choice.params, where)
        common = {key: value for key, value in choice.params.items() if key in COMMON and key not in own}
        limit_s = float(common.get("timeout", timeout_s if timeout_s is not None else found.info.limit_s))
        planned.append(
            PlannedCheck(
                profile=found,
                params=own,
                step=Step(
                    name=choice.name,
                    retries=int(common.get("retries", found.retries)),
                    interval_s=float(common.get("interval", found.interval_s)),
                    limit_s=limit_s,
                    alone=found.alone,
                    only_warn=common.get("failure") == "warn",
                    inconclusive=InconclusivePolicy(common.get("inconclusive") or found.inconclusive or inconclusive),
                ),
            )
        )
    return CheckPlan(checks=tuple(planned))


def catalogue(plugins: Iterable[str | PathLike[str]] = (), names: Sequence[str] = ()) -> list[CheckInfo]:
    """Every check that can be chosen (or only `names`), for `holdfast check --list`; one that does not load says why.

    Raises BadUsage on a name that does not exist.
    """
    shelf = CheckRegistry(plugins, describe_in_child=describe_in_child)
    if names:
        return [shelf.profile(name, in_full=True).info for name in names]
    found: list[CheckInfo] = []
    for name in shelf.names():
        try:
            found.append(shelf.profile(name, in_full=True).info)
        except BadUsage as error:
            found.append(CheckInfo(name=name, question=f"(cannot be loaded: {error.message})", source="entry point"))
    return found


def during_job(plan: CheckPlan) -> list[DuringJob]:
    """The checks of a plan that may also run during the job, with their intervals in seconds."""
    return [
        DuringJob(check=check, interval_s=check.profile.info.interval_s)
        for check in plan.checks
        if check.profile.info.during_job
    ]
