"""Converts OpenPAI's job file (protocol v2, YAML) to a job of holdfast. The page jobfile.md explains each key.

Sources: the protocol's specification, and the behaviour of OpenPAI's REST server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of, no_such
from holdfast.launch.jobfile.openpai_plugins import PLUGINS, hooks_of, plan_of
from holdfast.launch.jobfile.openpai_values import (
    cpus_of,
    image_of,
    job_name,
    memory_of,
    min_failed,
    min_succeeded,
    ports_of,
    restarts_of,
    shell_command,
)
from holdfast.launch.jobfile.runtime_section import judge_references, parameters_of
from holdfast.launch.jobfile.secret_values import secrets_of
from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import NAME, Completion, JobSpec, Resources, Role
from holdfast.model.runtime_plan import Hook

TYPES = ("dockerimage", "script", "data", "output")
_REFERENCE = Lazy(r"<%\s*\$(script|data|output|dockerimage)\.([^\s%]+)\s*%>")


class _JobV2(msgspec.Struct, rename="camel"):
    protocol_version: str | int | float
    name: str
    type: str = "job"
    version: Any = None
    contributor: Any = None
    description: Any = None
    prerequisites: Any = None
    parameters: Any = None
    secrets: Any = None
    job_retry_count: int | None = None
    task_roles: Any = None
    deployments: Any = None
    defaults: Any = None
    extras: Any = None
    local: Any = None
    slurm: Any = None
    kubernetes: Any = None


class _Prerequisite(msgspec.Struct, rename="camel"):
    name: str
    type: str
    uri: str | list[str] = ""
    protocol_version: str | int | float = 2
    version: str | int | float | None = None
    contributor: str | None = None
    description: str | None = None
    auth: dict[str, Any] | None = None
    plugin: str = ""
    callbacks: Any = None
    failure_policy: str = "fail"
    require: list[str] = []


class _RoleV2(msgspec.Struct, rename="camel"):
    commands: list[str]
    instances: int = 1
    completion: Any = None
    task_retry_count: int | None = None
    docker_image: str = ""
    data: str | None = None
    output: str | None = None
    script: str | None = None
    prerequisites: list[str] = []
    extra_container_options: Any = None
    resource_per_instance: Any = None


class _Completion(msgspec.Struct, rename="camel"):
    min_failed_instances: int | None = 1
    min_succeeded_instances: Any = "all"


class _Options(msgspec.Struct, rename="camel"):
    shm_mb: int | None = msgspec.field(default=None, name="shmMB")
    infiniband: bool = False


class _Resources(msgspec.Struct, rename="camel"):
    cpu: float | None = None
    memory_mb: int | None = msgspec.field(default=None, name="memoryMB")
    gpu: int | None = None
    ports: dict[str, int] | None = None


class _Deployment(msgspec.Struct, rename="camel"):
    name: str
    task_roles: Any = None
    version: Any = None
    description: Any = None


class _Around(msgspec.Struct, rename="camel"):
    pre_commands: list[str] = []
    post_commands: list[str] = []


class _Defaults(msgspec.Struct, rename="camel"):
    virtual_cluster: str | None = None
    deployment: str | None = None


def job_of(
    found: Mistakes,
    data: Mapping[Any, Any],
    written: Mapping[str, str],
    *,
    here: bool,
    binds: bool,
    fetches: bool = True,
) -> JobFile:
    """Return the job of a job file in this protocol. Add its mistakes to `found`.

    `written`: the texts of `parameters`. `here`: the workers run on this machine, which must have their resources.
    `binds`: workers get exclusive use of their resources. `fetches`: the values of secrets are read.
    """
    keys = found.read("", dict(data), _JobV2, "")
    if keys is None:
        return JobFile(JobSpec(name="", roles=()), None, ())
    notes: list[str] = []
    if str(keys.protocol_version) not in ("2", "2.0"):
        found.add("protocolVersion", f"expected 2, got {keys.protocol_version}")
    if keys.type != "job":
        found.add("type", f"expected job, got {keys.type!r}: the other types stand in `prerequisites` of a job")
    wanted = _prerequisites(found, keys.prerequisites, notes)
    defaults = found.read("defaults", keys.defaults or {}, _Defaults, "with `virtualCluster`, `deployment`")
    names = [name for name in keys.task_roles if isinstance(name, str)] if isinstance(keys.task_roles, dict) else []
    around = _deployment(found, keys.deployments, defaults.deployment if defaults else None, names)
    roles: list[Role] = []
    hooks: list[Hook] = []
    #: Maps a role to the values of its prerequisites, for references in its hooks.
    fields: dict[str, dict[str, str]] = {}
    retries = [keys.job_retry_count or 0]
    for name, said in found.entries(
        "taskRoles", keys.task_roles, "of names, as in `worker: {commands: [python t.py]}`"
    ):
        role, of_role, fields[name] = _role(found, name, said, wanted, around.get(name, _Around()), notes, here)
        if role is not None and of_role is not None:
            roles.append(role)
            if of_role.task_retry_count:
                retries.append(of_role.task_retry_count)
            for prerequisite in (wanted[one] for one in of_role.prerequisites if one in wanted):
                hooks += _callbacks(found, prerequisite, name)
    if not names:
        found.add("taskRoles", "expected at least one role, as in `worker: {commands: [python t.py]}`")
    if any(count != -2 for count in retries[1:]):
        notes.append(
            "taskRetryCount: no task starts again alone: all of them start again together, as often as the larger of "
            "jobRetryCount and taskRetryCount says"
        )
    plan = plan_of(found, keys.extras, names, notes)
    hooks = [one for hook in (*plan.hooks, *hooks) for one in _of_roles(found, hook, fields)]
    spec = JobSpec(
        name=job_name(found, "name", keys.name, notes),
        roles=tuple(roles),
        restarts=restarts_of(found, "jobRetryCount", -1 if -1 in retries else max(retries)),
        virtual_cluster=(defaults.virtual_cluster or "") if defaults else "",
        parameters=parameters_of(found, keys.parameters, written) if keys.parameters else {},
        runtime=msgspec.structs.replace(plan, hooks=tuple(hooks)),
        binds=binds,
        pai=True,
        task_directories=True,
    )
    secrets = secrets_of(found, keys.secrets, here=fetches) if keys.secrets else {}
    judge_references(found, spec, keys.secrets or (), {"roles": "taskRoles", "command": "commands"})
    return JobFile(spec, None, (), secrets=secrets, notes=tuple(dict.fromkeys(notes)))


def _prerequisites(found: Mistakes, said: Any, notes: list[str]) -> dict[str, _Prerequisite]:
    whole: dict[str, _Prerequisite] = {}
    if said is not None and not isinstance(said, list):
        found.add("prerequisites", f"expected a list, got {kind_of(said)}")
        return whole
    for i, item in enumerate(said or ()):
        where = f"prerequisites[{i}]"
        one = found.read(where, item, _Prerequisite, "such as `{name: image, type: dockerimage, uri: ubuntu}`")
        if one is None:
            continue
        if one.type not in TYPES:
            found.add(f"{where}.type", f"expected one of {', '.join(TYPES)}, got {one.type!r}")
        if one.name in whole:
            found.add(f"{where}.name", f"there are two prerequisites {one.name!r}")
        if not one.uri and not one.plugin:
            found.add(where, "the key `uri` is missing")
        if isinstance(one.uri, list) and one.type != "data":
            found.add(f"{where}.uri", "expected a text: only `data` may have a list")
        if one.auth is not None:
            notes.append(
                f"{where}.auth: holdfast logs in at no registry: the platform does (on Kubernetes the section's "
                "`pull_secrets` name its secrets)"
            )
        whole[one.name] = one
    return whole


def _callbacks(found: Mistakes, one: _Prerequisite, role: str) -> list[Hook]:
    """Return the hooks of a prerequisite (`one`) whose plug-in runs commands before or after a task. Add mistakes to
    `found`. `role`: the name of the role that uses the prerequisite.
    """
    where = f"prerequisites.{one.name}"
    if one.plugin not in ("", "cmd", f"{PLUGINS}.cmd"):
        found.add(f"{where}.plugin", f"there is no plug-in {one.plugin!r} for it; expected {PLUGINS}.cmd")
        return []
    return hooks_of(found, f"{where}.callbacks", one.callbacks, one.failure_policy, (role,)) if one.plugin else []


def _deployment(found: Mistakes, said: Any, chosen: str | None, roles: Collection[str]) -> dict[str, _Around]:
    """Return a map from each role to its pre- and post-commands, from the deployment that `defaults` selects
    (`chosen`). `said`: the file's `deployments`. Add mistakes to `found`.
    """
    deployments: dict[str, dict[str, _Around]] = {}
    if said is not None and not isinstance(said, list):
        found.add("deployments", f"expected a list, got {kind_of(said)}")
        return {}
    for i, item in enumerate(said or ()):
        where = f"deployments[{i}]"
        one = found.read(where, item, _Deployment, "such as `{name: prod, taskRoles: {…}}`")
        if one is None:
            continue
        around: dict[str, _Around] = {}
        for name, commands in found.entries(f"{where}.taskRoles", one.task_roles, "of roles"):
            if name not in roles:
                found.add(f"{where}.taskRoles.{name}", f"there is no such role; expected some of: {', '.join(roles)}")
            pair = found.read(f"{where}.taskRoles.{name}", commands, _Around, "with `preCommands`, `postCommands`")
            if pair is not None:
                around[name] = pair
        deployments[one.name] = around
    if chosen is not None and chosen not in deployments:
        found.add("defaults.deployment", no_such("deployment", chosen, deployments))
    return deployments.get(chosen or "", {})


def _role(
    found: Mistakes,
    name: str,
    said: Any,
    wanted: Mapping[str, _Prerequisite],
    around: _Around,
    notes: list[str],
    here: bool,
) -> tuple[Role | None, _RoleV2 | None, dict[str, str]]:
    where = f"taskRoles.{name}"
    if not NAME.fullmatch(name):
        found.add(where, "expected a role's name of letters, digits, `.`, `_` or `-`, at most 63, a letter in front")
    role = found.read(where, said, _RoleV2, "with `commands`, `dockerImage`, `resourcePerInstance`")
    if role is None:
        return None, None, {}
    if role.instances < 1:
        found.add(f"{where}.instances", f"expected 1 or more, got {role.instances}")
    for one in role.prerequisites:
        if one not in wanted:
            found.add(f"{where}.prerequisites", no_such("prerequisite", one, wanted))
    options = found.read(f"{where}.extraContainerOptions", role.extra_container_options or {}, _Options, "with `shmMB`")
    if options is not None and options.shm_mb:
        notes.append(
            f"{where}.extraContainerOptions.shmMB: /dev/shm keeps the size that the platform gives it (`shm` of the "
            "section `kubernetes:`)"
        )
    asked = found.read(
        f"{where}.resourcePerInstance", role.resource_per_instance or {}, _Resources, "such as `{cpu: 4}`"
    )
    policy = found.read(f"{where}.completion", role.completion or {}, _Completion, "such as `{minFailedInstances: 1}`")
    asked, policy = asked or _Resources(), policy or _Completion()
    for key, number in (("cpu", asked.cpu), ("memoryMB", asked.memory_mb), ("gpu", asked.gpu)):
        if number is not None and number < 0:
            found.add(f"{where}.resourcePerInstance.{key}", f"expected 0 or more, got {number:g}")
    others: dict[str, str] = {}
    image = ""
    references = {"dockerimage": role.docker_image, "script": role.script, "data": role.data, "output": role.output}
    for group in TYPES:
        key = "dockerImage" if group == "dockerimage" else group
        chosen, at = references[group], f"{where}.{key}"
        if not chosen:
            continue
        of_type = [one.name for one in wanted.values() if one.type == group]
        if chosen not in of_type:
            found.add(at, no_such(f"prerequisite of the type {group}", chosen, of_type))
            continue
        others |= _fields(group, wanted[chosen])
        if group == "dockerimage":
            image = image_of(found, at, str(wanted[chosen].uri))
    commands = [
        _referred(found, f"{where}.{key}[{i}]", command, others)
        for key, items in (
            ("preCommands", around.pre_commands),
            ("commands", role.commands),
            ("postCommands", around.post_commands),
        )
        for i, command in enumerate(items)
    ]
    return (
        Role(
            name=name,
            count=role.instances,
            command=shell_command(found, f"{where}.commands", commands, here=here),
            resources=Resources(
                memory_bytes=memory_of(found, f"{where}.resourcePerInstance.memoryMB", asked.memory_mb, here=here),
                cpus=cpus_of(asked.cpu),
                devices=asked.gpu,
            ),
            completion=Completion(
                min_failed=min_failed(policy.min_failed_instances, role.instances),
                min_succeeded=min_succeeded(
                    found, f"{where}.completion.minSucceededInstances", policy.min_succeeded_instances, role.instances
                ),
            ),
            image=image,
            ports=ports_of(found, f"{where}.resourcePerInstance.ports", asked.ports or {}),
            # A label without ports gets its variable too, with an empty value.
            env={
                f"PAI_CONTAINER_HOST_{label}_PORT_LIST": ""
                for label, number in (asked.ports or {}).items()
                if not number
            },
        ),
        role,
        others,
    )


def _of_roles(found: Mistakes, hook: Hook, fields: Mapping[str, Mapping[str, str]]) -> list[Hook]:
    """Fill the values of the roles' prerequisites into a hook. Return one hook for each group of roles with equal
    values.

    Add mistakes to `found`. `fields`: maps a role to its values by name.
    """
    *words, script = hook.command
    if not _REFERENCE.search(script):
        return [hook]
    texts: dict[str, list[str]] = {}
    for role in hook.roles or fields:
        text = _referred(found, f"the commands of {hook.when.value}", script, fields.get(role, {}))
        texts.setdefault(text, []).append(role)
    return [
        msgspec.structs.replace(hook, command=(*words, text), roles=hook.roles if len(texts) == 1 else tuple(roles))
        for text, roles in texts.items()
    ]


def _fields(group: str, one: _Prerequisite) -> dict[str, str]:
    """Return the values of a prerequisite (`one`) for references such as `<% $data.uri[0] %>`, by name. `group`: the
    beginning of the names, such as `data`.
    """
    fields = {"name": one.name, "type": one.type, "version": one.version, "contributor": one.contributor}
    fields |= {"description": one.description}
    uris = one.uri if isinstance(one.uri, list) else [one.uri]
    fields |= {f"uri[{i}]": uri for i, uri in enumerate(uris)} | {"uri": ",".join(uris)}
    return {f"{group}.{key}": str(value) for key, value in fields.items() if value is not None}


def _referred(found: Mistakes, where: str, text: str, others: Mapping[str, str]) -> str:
    """Replace the references to the role's prerequisites in a text. Add a mistake to `found` for an unknown
    prerequisite. `others`: the values of the role's prerequisites, by name.
    """
    pieces, end = [], 0
    for token in _REFERENCE.finditer(text):
        name = f"{token[1]}.{token[2]}"
        if name not in others:
            known = ", ".join(f"${one}" for one in others) or f"a `{token[1]}` of the role"
            found.add(where, f"there is no `${name}`; expected some of: {known}")
        pieces += [text[end : token.start()], others.get(name, "")]
        end = token.end()
    return "".join([*pieces, text[end:]])
