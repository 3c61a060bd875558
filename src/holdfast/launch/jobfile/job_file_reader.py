"""Reads a job file into a `JobFile`. Wrong input raises one error that lists every mistake with its path and the
expected value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import BadUsage
from holdfast.launch.jobfile import openpai, openpai_v1
from holdfast.launch.jobfile.foreign_files import refuse_foreign
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.jobfile.job_file_keys import ALIASES, CompletionKeys, JobKeys, ResourceKeys, RestartKeys, RoleKeys
from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of, malformed, wrong
from holdfast.launch.jobfile.job_file_values import command_of, env_of, written
from holdfast.launch.jobfile.runtime_section import judge_references, parameters_of, runtime_of
from holdfast.launch.jobfile.secret_values import secrets_of
from holdfast.lazy_pattern import Lazy
from holdfast.model import amounts
from holdfast.model.check_results import CheckChoice
from holdfast.model.job_spec import NAME, VISIBLE, Completion, JobSpec, Resources, RestartPolicy, Role, Timers
from holdfast.model.runtime_plan import RuntimePlan
from holdfast.safe_files import read_given
from holdfast.settings.value_kinds import ValueKind as SettingKind
from holdfast.settings.value_kinds import times
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, yaml_value

PORT = Lazy(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,62}")
MOST_WORKERS = 100_000
MOST_PORTS = 1_000
DURATIONS = ("grace", "hang_timeout", "hang_warning", "time_limit")
EXAMPLE = "roles: {worker: {count: 2, command: [python, train.py]}}"


def load(path: Path, *, binds: bool = True, runs: bool = True) -> JobFile:
    """Read a job file. Raises `BadUsage`, whose message lists every mistake.

    `binds`: workers get exclusive use of the resources that they request. `runs`: the workers run on this machine.
    """
    return parsed(path, text_of(path), binds=binds, runs=runs)


def text_of(path: Path) -> bytes:
    """Return the bytes of a job file. Raises `BadUsage` if the file cannot be read."""
    try:
        return read_given(path, MOST_CONFIG_BYTES)
    except OSError as error:
        raise BadUsage(f"job file {path}: {error.strerror}", hint=f"ls -l {path}") from None


def parsed(path: Path, text: bytes, *, here: bool = True, binds: bool = True, runs: bool = True) -> JobFile:
    """Parse a job file's text. Raises `BadUsage`.

    `here`: the job is started from this machine, so the values of its secrets are read. `binds`: workers get exclusive
    use of the resources that they request. `runs`: the workers run on this machine, which must have these resources.
    """
    try:
        data = yaml_value(text)
    except Malformed as error:
        refuse_foreign(path, text)
        raise malformed(path, error) from None
    if not isinstance(data, dict) or not ("roles" in data or "taskRoles" in data):
        refuse_foreign(path, text)
    if not isinstance(data, dict):
        raise wrong(path, "", f"expected a mapping such as `name: x` and `{EXAMPLE}`, got {kind_of(data)}")
    found = Mistakes(path)
    if "protocolVersion" in data or "jobName" in data:
        if "protocolVersion" in data:
            on = here and binds and runs
            job = openpai.job_of(found, data, written(text, "parameters"), here=on, binds=binds, fetches=here)
        else:
            job = openpai_v1.job_of(found, data, here=here and binds and runs, binds=binds)
    else:
        job = _job(found, data, text, here, binds and runs)
    found.end()
    return job


def _job(found: Mistakes, data: dict[Any, Any], text: bytes, here: bool, binds: bool) -> JobFile:
    """Return the job that the file describes. It is complete only if no mistake was found."""
    for other, key in ALIASES.items():
        if other in data:
            if key in data:
                found.add(other, f"`{key}` says the same: expected one of the two")
            data = {key if name == other else name: value for name, value in data.items()}
    keys = found.read("", data, JobKeys, "")
    said = keys or _as_far_as_it_goes(data)
    if keys is not None:
        _judge(found, keys)
    timers = Timers(grace_s=found.seconds("grace", said.grace))
    hang_timeout_s = _limit_s(found, "hang_timeout", said.hang_timeout)
    hang_warning_s = found.seconds("hang_warning", said.hang_warning)
    time_limit_s = _limit_s(found, "time_limit", said.time_limit)
    restarts = _restarts(found, said.restarts)
    roles = _roles(found, said.roles, here and binds)
    checks = None if said.checks is None else tuple(_check(found, i, item) for i, item in enumerate(said.checks))
    runtime, parameters = RuntimePlan(), {}
    if said.prerequisites or said.plugins or said.parameters:
        runtime = runtime_of(found, said.prerequisites, said.plugins, [role.name for role in roles])
        parameters = parameters_of(found, said.parameters, written(text, "parameters"))
    secrets = secrets_of(found, said.secrets, here=here) if said.secrets else {}
    spec = JobSpec(
        name=said.name,
        roles=roles,
        kind=said.kind,
        restarts=restarts,
        timers=timers,
        checks=checks,
        hang_timeout_s=hang_timeout_s,
        hang_warning_s=hang_warning_s,
        time_limit_s=time_limit_s,
        on_subhealth=said.on_subhealth,
        user=said.user,
        image=said.image,
        virtual_cluster=said.virtual_cluster,
        parameters=parameters,
        runtime=runtime,
        binds=binds,
    )
    if b"<%" in text:
        judge_references(found, spec, said.secrets or (), {"roles": "roles", "command": "command"})
    if spec.world_size > MOST_WORKERS:
        found.add("roles", f"expected at most {MOST_WORKERS} workers, got {spec.world_size}")
    told = {"on-event": said.on_event, "on-end": said.on_end, "summary": said.summary}
    return JobFile(spec, said.warm, tuple(said.preload), secrets=secrets, told=told, notify=tuple(said.notify))


def _as_far_as_it_goes(data: dict[Any, Any]) -> JobKeys:
    """Read the sections and durations of an invalid file only to find their mistakes, so that all mistakes are reported
    together.
    """
    durations = {key: data[key] for key in DURATIONS if isinstance(data.get(key), int | float | str)}
    return JobKeys(
        **durations,
        name="",
        roles=data.get("roles", {}),
        restarts=data.get("restarts", {}),
        parameters=data.get("parameters"),
        secrets=data.get("secrets"),
        prerequisites=data.get("prerequisites"),
        plugins=data.get("plugins"),
    )


def _judge(found: Mistakes, job: JobKeys) -> None:
    """Check the values at the top level of the job file, and add mistakes to `found`."""
    if not NAME.fullmatch(job.name):
        found.add("name", f"expected letters, digits, `.`, `_` or `-`, at most 63, got {job.name!r}")
    if job.roles == {}:
        found.add("roles", f"expected at least one role, as in `{EXAMPLE}`")
    if job.on_subhealth.lower() == "hotswitch":
        found.add(
            "on_subhealth",
            "hotSwitch (a spare worker takes over while the job runs on) is not available; expected ignore, grace or "
            "force: grace lets the workers save, and starts them again without the device",
        )
    elif job.on_subhealth not in ("ignore", "grace", "force"):
        found.add("on_subhealth", f"expected ignore, grace or force, got {job.on_subhealth!r}")
    _image(found, "image", job.image)
    for key, text in (("user", job.user), ("virtualCluster", job.virtual_cluster)):
        if text != text.strip() or not text.isprintable():
            found.add(key, f"expected a name in one line, without spaces around it, got {text!r}")


def _limit_s(found: Mistakes, key: str, value: float | str | None) -> float | None:
    return None if value is None else found.seconds(key, value, least=0.001)


def _restarts(found: Mistakes, said: Any) -> RestartPolicy:
    keys = found.read("restarts", said, RestartKeys, "such as `{max_restarts: 5}`")
    if keys is None:
        return RestartPolicy()
    numbers = msgspec.structs.asdict(keys)
    same = times(numbers.pop("same_failure"))
    if same is None:
        found.add("restarts.same_failure", f"expected {SettingKind.TIMES.value}, got {said['same_failure']!r}")
    for key, value in numbers.items():
        if key.endswith("_s"):
            numbers[key] = found.seconds(f"restarts.{key}", value)
        elif value < 0:
            found.add(f"restarts.{key}", f"expected 0 or more, got {value}")
    return RestartPolicy(**numbers, same_failure=same or 0)


def _roles(found: Mistakes, said: Any, here: bool) -> tuple[Role, ...]:
    if not isinstance(said, dict):
        found.add("roles", f"expected a mapping of names, as in `{EXAMPLE}`, got {kind_of(said)}")
        return ()
    whole = (_role(found, name, role, here) for name, role in said.items())
    return tuple(role for role in whole if role is not None)


def _role(found: Mistakes, name: Any, data: Any, here: bool) -> Role | None:
    where = f"roles.{name}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        found.add(where, "expected a role's name of letters, digits, `.`, `_` or `-`, at most 63")
        return None
    role = found.read(where, data, RoleKeys, "with `count` and `command`")
    if role is None:
        # Keep the role's name, so that references to the role are not reported as mistakes.
        return Role(name=name, count=0, command=())
    if role.count < 1:
        found.add(f"{where}.count", f"expected 1 or more, got {role.count}")
    _image(found, f"{where}.image", role.image)
    for label, number in role.ports.items():
        if not PORT.fullmatch(label):
            found.add(f"{where}.ports.{label}", "expected a label of letters, digits and `_`, as in `{http: 1}`")
        if not 1 <= number <= MOST_PORTS:
            found.add(
                f"{where}.ports.{label}", f"expected how many ports each worker needs, 1 to {MOST_PORTS}, got {number}"
            )
    env = env_of(found, f"{where}.env", role.env)
    resources = _resources(found, f"{where}.resources", role.resources, here)
    for variable in VISIBLE if resources.devices is not None else ():
        if variable in env:
            found.add(f"{where}.env.{variable}", "`resources.devices` says the same: expected one of the two")
    return Role(
        name=name,
        count=role.count,
        command=command_of(found, f"{where}.command", role.command),
        env=env,
        resources=resources,
        completion=_completion(found, f"{where}.completion", role.completion, role.count),
        image=role.image,
        ports=role.ports,
    )


def _image(found: Mistakes, where: str, image: str) -> None:
    if image and (not image.isprintable() or " " in image):
        found.add(where, f"expected an image such as registry.example/train:1.2, without spaces, got {image!r}")


def _completion(found: Mistakes, where: str, said: Any, count: int) -> Completion:
    keys = found.read(where, said, CompletionKeys, "such as `{min_succeeded: 1}`")
    if keys is None:
        return Completion()
    for key in ("min_failed", "min_succeeded"):
        number = getattr(keys, key)
        if number is not None and not 1 <= number <= count:
            found.add(f"{where}.{key}", f"expected 1 to {count} (its count), or null, got {number}")
    return Completion(min_failed=keys.min_failed, min_succeeded=keys.min_succeeded)


def _resources(found: Mistakes, where: str, said: Any, here: bool) -> Resources:
    """Read a role's resources from the file's value `said`. Add mistakes to `found`. If `here` is true, resources that
    exceed this machine's are a mistake.
    """
    asked = found.read(where, said, ResourceKeys, "such as `{memory: 16GiB, cpus: 4, devices: 1}`")
    if asked is None:
        return Resources()
    memory = None
    if asked.memory is not None:
        memory = amounts.size_bytes(asked.memory)
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory is None or memory < 1:
            found.add(f"{where}.memory", f"expected {amounts.SIZE}, got {asked.memory!r}")
        elif here and memory > total:
            found.add(
                f"{where}.memory",
                f"expected at most this machine's {total / 2**30:.1f} GiB, got {memory / 2**30:.1f}",
            )
    cpus = os.cpu_count() or 1
    if asked.cpus is not None and not 0 < asked.cpus <= (cpus if here else float("inf")):
        found.add(f"{where}.cpus", f"expected more than 0 and at most this machine's {cpus}, got {asked.cpus:g}")
    if asked.devices is not None and asked.devices < 0:
        found.add(f"{where}.devices", f"expected 0 or more, got {asked.devices}")
    return Resources(memory_bytes=memory, cpus=asked.cpus, devices=asked.devices)


def _check(found: Mistakes, index: int, item: str | dict[str, dict[str, Any] | None]) -> CheckChoice:
    if isinstance(item, str):
        return CheckChoice(name=item)
    if len(item) != 1:
        found.add(f"checks[{index}]", "expected a check's name, or one with its parameters: {disk: {min_free: 50G}}")
        return CheckChoice(name="")
    [(name, params)] = item.items()
    return CheckChoice(name=name, params=params or {})
