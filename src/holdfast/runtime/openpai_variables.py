"""Build the environment variables that OpenPAI's runtime sets.

Jobs that were written for OpenPAI read their role, their index, and their peers' addresses from these variables. The
variables' names contain the roles' names and the labels unchanged. This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model.gang_protocol import Peers
from holdfast.model.job_spec import JobSpec, Placement, Role
from holdfast.model.peer_addresses import SSH, Task, tasks_of

#: The label of the port for variables with room for a single port.
HTTP = "http"
#: Maximum size of the variables about the gang's tasks in a worker's environment, in bytes. The kernel accepts no
#: longer string. All strings together may fill a quarter of the stack limit (2 MiB of 8 MiB), and each process that a
#: worker starts copies them.
MOST_BYTES = 128 * 1024
_MIB = 1 << 20


class PeerNames(msgspec.Struct, frozen=True):
    """The names and addresses of all tasks of a gang. They are built once per attempt, for all workers."""

    tasks: dict[tuple[str, int], Task]
    #: The environment variables that describe all tasks of the gang, by name.
    whole: dict[str, str]
    #: The part of these variables that each worker has in its environment: all of them, or only those about each role's
    #: first task if all would be too large.
    brief: dict[str, str]

    @property
    def cut(self) -> bool:
        """Whether workers find some variables only in a file, and not in their environment."""
        return len(self.brief) < len(self.whole)


def peer_names(peers: Peers) -> PeerNames:
    """Build the variables that describe all tasks of the gang to each other."""
    tasks = {(task.role, task.index): task for task in tasks_of(peers)}
    whole: dict[str, str] = {}
    for task in tasks.values():
        whole.update(_of_task(task))
    whole.update(_lists(peers, tasks.values()))
    if sum(len(name) + len(value) + 2 for name, value in whole.items()) <= MOST_BYTES:
        return PeerNames(tasks, whole, whole)
    first = [_of_task(task) for task in tasks.values() if task.index == 0]
    return PeerNames(tasks, whole, {name: value for of_task in first for name, value in of_task.items()})


def named_in(names: PeerNames, texts: Iterable[str]) -> dict[str, str]:
    """Return the variables about the gang's tasks whose names occur in `texts`, such as commands.

    Return {} if each worker's environment has all variables anyway.
    """
    if not names.cut:
        return {}
    found: dict[str, str] = {}
    for text in texts:
        for piece in text.split("PAI_")[1:]:
            name = "PAI_" + _name_at_start(piece)
            while name and name not in names.whole:
                # In `$PAI_HOST_IP_w_7.log` the name ends before `.log`. So shorten the text until a known name is left.
                name = name[: max(name.rfind("."), name.rfind("-"), 0)]
            if name:
                found[name] = names.whole[name]
    return found


def file_text(names: PeerNames) -> str:
    """Return the contents of the file with all variables about the gang's tasks: lines `NAME=value` without quotes."""
    return "".join(f"{name}={value}\n" for name, value in names.whole.items())


def variables(
    spec: JobSpec, placement: Placement, names: PeerNames, *, user: str, attempt: int, cwd: str = ""
) -> dict[str, str]:
    """Return the OpenPAI variables of the worker at `placement`. torchrun's variables are not among them.

    `names`: the variables about the gang's tasks.
    `user`: name of the user who runs the job, unless the spec names another.
    `attempt`: number of the attempt, from 1.
    `cwd`: directory of the worker.
    """
    own = names.tasks.get((placement.role, placement.role_rank))
    return {
        **_of_job(spec, names, spec.user or user, attempt),
        "PAI_WORK_DIR": cwd,
        **_of_placement(spec, placement, names),
        **names.brief,
        **(_of_task(own) | _own(own) if own is not None else {}),
    }


def _of_job(spec: JobSpec, names: PeerNames, user: str, attempt: int) -> dict[str, str]:
    roles = ",".join(role.name for role in spec.roles)
    found = {
        "PAI_FRAMEWORK_NAME": f"{user}~{spec.name}",
        "PAI_JOB_NAME": spec.name,
        "PAI_USER_NAME": user,
        "PAI_USERNAME": user,
        "PAI_JOB_VC_NAME": spec.virtual_cluster,
        "PAI_DEFAULT_FS_URI": "",
        "PAI_TASK_ROLE_COUNT": str(len(spec.roles)),
        "PAI_TASK_ROLES_NUM": str(len(spec.roles)),
        "PAI_JOB_TASK_ROLE_COUNT": str(len(spec.roles)),
        "PAI_TASK_ROLE_LIST": roles,
        "PAI_JOB_TASK_ROLE_LIST": roles,
        "PAI_TASKS_NUM": str(len(names.tasks)),
        "PAI_JOB_TASK_COUNT": str(len(names.tasks)),
        "FC_FRAMEWORK_NAME": f"{user}~{spec.name}",
        "FC_FRAMEWORK_ATTEMPT_ID": str(attempt - 1),
    }
    for role in spec.roles:
        found[f"PAI_TASK_ROLE_TASK_COUNT_{role.name}"] = _count(role, names)
        found[f"PAI_RESOURCE_{role.name}"] = ",".join(_resources(role))
        found[f"PAI_MIN_FAILED_TASK_COUNT_{role.name}"] = _or_never(role.completion.min_failed)
        found[f"PAI_MIN_SUCCEEDED_TASK_COUNT_{role.name}"] = _or_never(role.completion.min_succeeded)
    return found


def _of_placement(spec: JobSpec, placement: Placement, names: PeerNames) -> dict[str, str]:
    role = next(role for role in spec.roles if role.name == placement.role)
    devices, cpus, memory, shared = _resources(role)
    return {
        "PAI_TASK_ROLE_NAME": placement.role,
        "PAI_TASK_ROLE_INDEX": str(spec.roles.index(role)),
        "PAI_TASK_INDEX": str(placement.role_rank),
        "PAI_CURRENT_TASK_ROLE_NAME": placement.role,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(placement.role_rank),
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT": _count(role, names),
        "PAI_CURRENT_TASK_ROLE_GPU_COUNT": devices,
        "PAI_CURRENT_TASK_ROLE_CPU_COUNT": cpus,
        "PAI_CURRENT_TASK_ROLE_MEM_MB": memory,
        "PAI_CURRENT_TASK_ROLE_SHM_MB": shared,
        "PAI_CURRENT_TASK_ROLE_MIN_FAILED_TASK_COUNT": _or_never(role.completion.min_failed),
        "PAI_CURRENT_TASK_ROLE_MIN_SUCCEEDED_TASK_COUNT": _or_never(role.completion.min_succeeded),
        "FC_TASKROLE_NAME": placement.role,
        "FC_TASK_INDEX": str(placement.role_rank),
    }


def _of_task(task: Task) -> dict[str, str]:
    """Return the variables that describe a task to its peers: its address, and its ports by label."""
    found = {f"PAI_HOST_IP_{task.role}_{task.index}": task.host}
    for label, ports in task.ports.items():
        found[f"PAI_PORT_LIST_{task.role}_{task.index}_{label}"] = _joined(ports)
        found[f"PAI_{task.role}_{task.index}_{label}_PORT"] = _joined(ports)
    return found


def _own(task: Task) -> dict[str, str]:
    """Return the variables that describe the worker's own task."""
    found = {
        "PAI_CURRENT_CONTAINER_IP": task.host,
        "PAI_CONTAINER_HOST_IP": task.host,
        "PAI_CONTAINER_HOST_PORT_LIST": "".join(f"{label}:{_joined(ports)};" for label, ports in task.ports.items()),
    }
    for label, ports in task.ports.items():
        found[f"PAI_CONTAINER_HOST_{label}_PORT_LIST"] = _joined(ports)
    if (port := _first(task)) is not None:
        found |= {"PAI_CURRENT_CONTAINER_PORT": str(port), "PAI_CONTAINER_HOST_PORT": str(port)}
    if SSH in task.ports:
        found["PAI_CONTAINER_SSH_PORT"] = str(task.ports[SSH][0])
    return found


def _lists(peers: Peers, tasks: Iterable[Task]) -> dict[str, str]:
    hosts: dict[str, list[str]] = {role: [] for role in peers.tasks}
    instances = []
    for task in tasks:
        port = _first(task)
        host = f"[{task.host}]" if ":" in task.host and port is not None else task.host
        hosts[task.role].append(host if port is None else f"{host}:{port}")
        instances.append(f"{task.role}:{task.index}")
    return {f"PAI_TASK_ROLE_{role}_HOST_LIST": ",".join(of_role) for role, of_role in hosts.items()} | {
        "PAI_TASK_ROLE_INSTANCES": ",".join(instances)
    }


def _first(task: Task) -> int | None:
    """Return the port in a task's address: the port with the label `http`, or else the first port other than sshd's."""
    ports: Mapping[str, tuple[int, ...]] = task.ports
    chosen = ports.get(HTTP) or next((of_label for label, of_label in ports.items() if label != SSH), ())
    return chosen[0] if chosen else None


def _count(role: Role, names: PeerNames) -> str:
    """Return the number of tasks of a role. A role with `per_node` has as many tasks as its nodes have slots."""
    return str(sum(name == role.name for name, _ in names.tasks) if role.per_node else role.count)


def _resources(role: Role) -> tuple[str, str, str, str]:
    """Return the requested devices, CPUs, memory and shared memory (the last two in MiB).

    Each is 0 if the job does not request it.
    """
    wants = role.resources
    return str(wants.devices or 0), f"{wants.cpus or 0:g}", str((wants.memory_bytes or 0) // _MIB), "0"


def _or_never(count: int | None) -> str:
    return "-1" if count is None else str(count)


def _name_at_start(text: str) -> str:
    end = next((at for at, letter in enumerate(text) if not (letter.isalnum() or letter in "_.-")), len(text))
    return text[:end]


def _joined(ports: Iterable[int]) -> str:
    return ",".join(map(str, ports))
