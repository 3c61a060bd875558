"""Loads the checks of a job and validates their parameters before the job starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike

from holdfast.check_registry import COMMON, DEFAULT, CheckRegistry, validated
from holdfast.decide.gate import CheckStep
from holdfast.errors import BadUsage
from holdfast.launch.check_plan import CheckPlan, PlannedCheck
from holdfast.model import amounts
from holdfast.model.check_results import CheckChoice, CheckInfo, InconclusivePolicy
from holdfast.node.prechecks.check_process import describe_in_child


def plan_checks(
    choices: Sequence[CheckChoice] | None,
    *,
    plugins: Iterable[str | PathLike[str]] = (),
    timeout_s: float | None = None,
    inconclusive: InconclusivePolicy = InconclusivePolicy.WARN,
    where: str = "",
) -> CheckPlan:
    """Decide which checks run, before anything starts.

    `choices`: the chosen checks; None: the default set and all checks of `plugins`; (): none. `plugins`: files with
    further checks. `timeout_s`: seconds for each check with its retries. `inconclusive`: how to treat a check without a
    clear result. `where`: prefix of error messages.

    Raises BadUsage on an unknown name or parameter (the message suggests the nearest known one), and on a plugin that
    does not load.
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
        limit_s = found.info.limit_s if timeout_s is None else timeout_s
        planned.append(
            PlannedCheck(
                profile=found,
                params=own,
                step=CheckStep(
                    name=choice.name,
                    retries=int(common.get("retries", found.retries)),
                    interval_s=amounts.seconds(common.get("interval", found.interval_s)) or 0.0,
                    limit_s=amounts.seconds(common.get("timeout", limit_s)) or 0.0,
                    alone=found.alone,
                    only_warn=common.get("failure") == "warn",
                    inconclusive=InconclusivePolicy(common.get("inconclusive") or found.inconclusive or inconclusive),
                ),
            )
        )
    return CheckPlan(checks=tuple(planned))


def catalogue(plugins: Iterable[str | PathLike[str]] = (), names: Sequence[str] = ()) -> list[CheckInfo]:
    """Return every check that can be chosen (or only `names`), for `holdfast check --list`. A broken check has its
    error in the list.

    Raises BadUsage on an unknown name.
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
