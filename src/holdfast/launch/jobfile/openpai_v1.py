"""Converts OpenPAI's older kind of job file (JSON, `jobName` and a list of `taskRoles`) to a job of holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.jobfile.job_file_mistakes import Mistakes, kind_of
from holdfast.launch.jobfile.job_file_values import env_of
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
from holdfast.model.job_spec import NAME, Completion, JobSpec, Resources, Role
from holdfast.model.runtime_plan import Prerequisite, RuntimePlan

#: Keys for OpenPAI's platform, which holdfast ignores with a note.
_IGNORED_KEYS = ("authFile", "dataDir", "outputDir", "gpuType", "gangAllocation", "extras", "version")


class _JobV1(msgspec.Struct, rename="camel"):
    job_name: str
    task_roles: Any
    image: str = ""
    virtual_cluster: str | None = None
    retry_count: int = 0
    code_dir: str | None = None
    job_envs: dict[str, str | int | float | bool] = {}
    kill_all_on_completed_task_number: int = 0
    auth_file: Any = None
    data_dir: Any = None
    output_dir: Any = None
    gpu_type: Any = None
    gang_allocation: Any = None
    extras: Any = None
    version: Any = None
    local: Any = None
    slurm: Any = None
    kubernetes: Any = None


class _Port(msgspec.Struct, rename="camel"):
    label: str
    port_number: int = 1
    begin_at: int = 0


class _RoleV1(msgspec.Struct, rename="camel"):
    name: str
    command: str
    task_number: int = 1
    cpu_number: float | None = None
    memory_mb: int | None = msgspec.field(default=None, name="memoryMB")
    shm_mb: int | None = msgspec.field(default=None, name="shmMB")
    gpu_number: int | None = None
    min_failed_task_count: int | None = 1
    min_succeeded_task_count: Any = None
    port_list: list[_Port] | None = None


def job_of(found: Mistakes, data: Mapping[Any, Any], *, here: bool, binds: bool) -> JobFile:
    """Return the job of a job file in the older format. Add its mistakes to `found`."""
    keys = found.read("", dict(data), _JobV1, "")
    if keys is None:
        return JobFile(JobSpec(name="", roles=()), None, ())
    notes: list[str] = []
    if given := [key for key in _IGNORED_KEYS if data.get(key)]:
        notes.append(f"{', '.join(given)}: OpenPAI's own, passed over")
    if keys.kill_all_on_completed_task_number:
        notes.append("killAllOnCompletedTaskNumber: minSucceededTaskCount of a role says when the job is complete")
    env = env_of(found, "jobEnvs", keys.job_envs)
    roles: list[Role] = []
    if not isinstance(keys.task_roles, list) or not keys.task_roles:
        found.add("taskRoles", f"expected a list with at least one role, got {kind_of(keys.task_roles)}")
    else:
        whole = (_role(found, f"taskRoles[{i}]", said, env, here, notes) for i, said in enumerate(keys.task_roles))
        roles = [role for role in whole if role is not None]
    if len({role.name for role in roles}) < len(roles):
        found.add("taskRoles", "two roles have the same name")
    wanted = (Prerequisite(name="code", uri=keys.code_dir),) if keys.code_dir else ()
    spec = JobSpec(
        name=job_name(found, "jobName", keys.job_name, notes),
        roles=tuple(roles),
        restarts=restarts_of(found, "retryCount", keys.retry_count),
        image=image_of(found, "image", keys.image) if keys.image else "",
        virtual_cluster=keys.virtual_cluster or "",
        runtime=RuntimePlan(prerequisites=wanted),
        binds=binds,
        pai=True,
        task_directories=True,
    )
    return JobFile(spec, None, (), notes=tuple(dict.fromkeys(notes)))


def _role(found: Mistakes, where: str, said: Any, env: dict[str, str], here: bool, notes: list[str]) -> Role | None:
    role = found.read(where, said, _RoleV1, "with `name`, `taskNumber`, `command`")
    if role is None:
        return None
    if not NAME.fullmatch(role.name):
        found.add(f"{where}.name", "expected letters, digits, `.`, `_` or `-`, at most 63, a letter or digit in front")
    if role.task_number < 1:
        found.add(f"{where}.taskNumber", f"expected 1 or more, got {role.task_number}")
    if role.shm_mb:
        notes.append(
            f"{where}.shmMB: /dev/shm keeps the size that the platform gives it (`shm` of the section `kubernetes:`)"
        )
    if begins := [str(port.begin_at) for port in role.port_list or () if port.begin_at]:
        notes.append(f"{where}.portList: free ports are reserved, and not those from {', '.join(begins)} on")
    for key, number in (("cpuNumber", role.cpu_number), ("memoryMB", role.memory_mb), ("gpuNumber", role.gpu_number)):
        if number is not None and number < 0:
            found.add(f"{where}.{key}", f"expected 0 or more, got {number:g}")
    ports = {port.label: port.port_number for port in role.port_list or ()}
    return Role(
        name=role.name,
        count=role.task_number,
        command=shell_command(found, f"{where}.command", [role.command], here=here),
        env=env,
        resources=Resources(
            memory_bytes=memory_of(found, f"{where}.memoryMB", role.memory_mb, here=here),
            cpus=cpus_of(role.cpu_number),
            devices=role.gpu_number,
        ),
        completion=Completion(
            min_failed=min_failed(role.min_failed_task_count, role.task_number),
            min_succeeded=min_succeeded(
                found, f"{where}.minSucceededTaskCount", role.min_succeeded_task_count, role.task_number
            ),
        ),
        ports=ports_of(found, f"{where}.portList", ports),
    )
