"""Converts `extras` of OpenPAI's protocol v2: the plug-ins of OpenPAI's runtime, and keys for other parts of
OpenPAI."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of
from holdfast.launch.jobfile.openpai_values import script_of
from holdfast.launch.jobfile.runtime_section import public_keys
from holdfast.model.runtime_plan import Daemon, Hook, HookMoment, OnFailure, Prerequisite, RuntimePlan, Ssh

PLUGINS = "com.microsoft.pai.runtimeplugin"
KNOWN = ("ssh", "cmd", "git", "tensorboard", "teamwise_storage")
_MOMENTS = {
    "taskStarts": HookMoment.BEFORE,
    "containerStarts": HookMoment.BEFORE,
    "taskSucceeds": HookMoment.SUCCEEDED,
    "taskFails": HookMoment.FAILED,
    "containerEnds": HookMoment.ENDED,
    "always": HookMoment.ENDED,
}


class _Plugin(msgspec.Struct, rename="camel"):
    plugin: str
    parameters: dict[str, Any] | None = None
    failure_policy: str = "fail"
    task_roles: list[str] = []


def plan_of(found: Mistakes, extras: Any, roles: Collection[str], notes: list[str]) -> RuntimePlan:
    """Return the plan that the plug-ins request. Add mistakes to `found`, and a note for each key that holdfast
    ignores. `extras`: that section of the file. `roles`: the names of the job's roles.
    """
    plan = RuntimePlan()
    if extras is None:
        return plan
    if not isinstance(extras, dict):
        found.add("extras", f"expected a mapping, got {kind_of(extras)}")
        return plan
    if strange := [str(key)[:60] for key in extras if key not in (PLUGINS, "submitFrom", "gangAllocation")]:
        notes.append(f"extras: {', '.join(strange)}: for other parts of OpenPAI, passed over")
    if "hivedScheduler" in strange:
        notes.append(
            "extras.hivedScheduler: its priorities and SKUs choose no machines here: `qos` and `constraint` of "
            "the section `slurm:`, `priority_class` and `node_selector` of `kubernetes:` do"
        )
    if extras.get("gangAllocation") is False:
        notes.append("extras.gangAllocation: all workers start together here")
    said = extras.get(PLUGINS) or []
    if not isinstance(said, list):
        found.add(f"extras.{PLUGINS}", f"expected a list of plug-ins, got {kind_of(said)}")
        return plan
    for i, item in enumerate(said):
        where = f"extras.{PLUGINS}[{i}]"
        if (
            isinstance(item, dict) and "taskroles" in item
        ):  # OpenPAI accepts any key here, and its examples have this one
            item = {"taskRoles" if key == "taskroles" else key: value for key, value in item.items()}
        one = found.read(where, item, _Plugin, "such as `{plugin: ssh, parameters: {jobssh: true}}`")
        if one is None:
            continue
        if one.failure_policy not in ("fail", "ignore"):
            found.add(f"{where}.failurePolicy", f"expected fail or ignore, got {one.failure_policy!r}")
        if wrong := [role for role in one.task_roles if role not in roles]:
            found.add(f"{where}.taskRoles", f"there is no role {wrong[0]!r}; expected some of: {', '.join(roles)}")
        plan = _with(found, where, one, plan, roles, notes)
    return plan


def hooks_of(found: Mistakes, where: str, said: Any, policy: str, roles: tuple[str, ...]) -> list[Hook]:
    """Convert a list of `callbacks` (`said`) to hooks, which are commands at the start and the end of a task.

    Add mistakes to `found`. `policy`: the `failurePolicy` of the plug-in. `roles`: the roles whose tasks run the hooks.
    """
    hooks = []
    if said is not None and not isinstance(said, list):
        found.add(where, f"expected a list, got {kind_of(said)}")
        return []
    for i, item in enumerate(said or ()):
        at = f"{where}[{i}]"
        event = item.get("event") if isinstance(item, dict) else None
        if event not in _MOMENTS:
            found.add(f"{at}.event", f"expected one of {', '.join(_MOMENTS)}, got {event!r}")
            continue
        hooks.append(_hook(found, f"{at}.commands", item.get("commands"), _MOMENTS[event], policy, roles))
    return hooks


def _with(
    found: Mistakes, where: str, one: _Plugin, plan: RuntimePlan, roles: Collection[str], notes: list[str]
) -> RuntimePlan:
    given, only = one.parameters or {}, tuple(one.task_roles)
    match one.plugin:
        case "ssh":
            return replace(plan, ssh=_ssh(found, where, given, one.failure_policy == "fail") or plan.ssh)
        case "cmd":
            callbacks = f"{where}.parameters.callbacks"
            hooks = hooks_of(found, callbacks, given.get("callbacks"), one.failure_policy, only)
            for key, when in (("preCommands", HookMoment.BEFORE), ("postCommands", HookMoment.ENDED)):
                if key in given:
                    hooks.append(_hook(found, f"{where}.parameters.{key}", given[key], when, one.failure_policy, only))
            return replace(plan, hooks=(*plan.hooks, *hooks))
        case "git":
            return replace(plan, prerequisites=(*plan.prerequisites, *_clone(found, where, given, plan, notes)))
        case "tensorboard":
            return replace(plan, daemons=(*plan.daemons, *_tensorboard(found, where, given, tuple(roles)[:1])))
        case "teamwise_storage":
            notes.append(
                f"{where}: holdfast mounts no storage of OpenPAI: what the commands read has to lie where they look"
            )
        case _ if one.failure_policy == "ignore":
            notes.append(f"{where}: there is no plug-in {one.plugin} here, and its failure is to be ignored")
        case _:
            known = ", ".join(KNOWN)
            found.add(
                f"{where}.plugin",
                f"there is no plug-in {one.plugin!r} here; expected one of {known}, or `failurePolicy: ignore`",
            )
    return plan


def _ssh(found: Mistakes, where: str, given: dict[str, Any], required: bool) -> Ssh | None:
    user, keys = given.get("userssh"), tuple[str, ...]()
    if isinstance(user, dict) and user.get("value"):
        keys = public_keys(found, f"{where}.parameters.userssh.value", str(user["value"]).splitlines())
    wanted = str(given.get("jobssh", False)).lower() == "true"
    return Ssh(keys=keys, required=required) if wanted or keys else None


def _hook(found: Mistakes, where: str, said: Any, when: HookMoment, policy: str, roles: tuple[str, ...]) -> Hook:
    commands = [str(command) for command in said] if isinstance(said, list) else [said] if isinstance(said, str) else []
    script = script_of(found, where, commands)
    on_failure = OnFailure.IGNORE if policy == "ignore" else OnFailure.FAIL
    return Hook(when=when, command=("bash", "-c", script), roles=roles, on_failure=on_failure)


def _clone(
    found: Mistakes, where: str, given: dict[str, Any], plan: RuntimePlan, notes: list[str]
) -> list[Prerequisite]:
    repository = given.get("repo")
    if not isinstance(repository, str) or not repository.strip():
        found.add(f"{where}.parameters.repo", "expected the address of a repository")
        return []
    if given.get("options"):
        notes.append(f"{where}.parameters.options: the repository is fetched without further options of git")
    into = str(given.get("clone_dir") or "")
    name = (into or repository).rstrip("/").rpartition("/")[2].removesuffix(".git") or "code"
    taken = {one.name for one in plan.prerequisites}
    name = name if name not in taken else f"{name}-{len(taken)}"
    variable = "HOLDFAST_DATA_" + "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    notes.append(f"{where}: the repository {name} lies where {variable} says")
    return [Prerequisite(name=name, uri=f"git+{repository.strip().removeprefix('git+')}", into=into)]


def _tensorboard(found: Mistakes, where: str, given: dict[str, Any], roles: tuple[str, ...]) -> list[Daemon]:
    logs, port = given.get("logPath"), given.get("port")
    if not isinstance(logs, dict) or not logs:
        found.add(f"{where}.parameters.logPath", "expected names with the directories of their logs")
        return []
    spec = ",".join(f"{name}:{path}" for name, path in logs.items())
    words = ["exec", "tensorboard", "--bind_all", "--logdir_spec", spec]
    if port is not None:
        words += ["--port", str(port)]
    return [Daemon(name="tensorboard", command=("sh", "-c", shlex.join(words)), roles=roles)]
