"""Builds a worker's environment: torchrun's variables and some of holdfast's. It also reads the worker's error file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.environment_diff import FILE as KEPT
from holdfast.model.environment_diff import MOST_BYTES as MOST_KEPT
from holdfast.model.environment_diff import kept
from holdfast.model.job_spec import QUEUE_DEVICES, VISIBLE, GangShape, JobSpec, Placement, asked_cpus
from holdfast.safe_files import read_file, write_file

#: The name of the file in a worker's directory through which the worker is notified to save and exit (see
#: `holdfast.act.workers`).
DRAIN = "drain"

#: At most this many bytes of a worker's error file are read.
MOST_BYTES = 64 * 1024

#: If one of these variables of holdfast lists devices, and a worker may see one device, the worker's variable has that
#: device's entry.
_ONE_OF = ("ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def worker_environment(
    base: Mapping[str, str],
    spec: JobSpec,
    placement: Placement,
    shape: GangShape,
    *,
    job_id: str,
    run_id: str,
    attempt: int,
    home: Path,
    directory: Path,
    master_addr: str,
    master_port: int,
    agent_store: bool,
    virtual: bool = False,
    devices: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return the environment of the worker at `placement`. The variables' names are those in torch.distributed.run's
    documentation.

    `base`: holdfast's own environment. The role's `env` overrides it and torchrun's variables, but not device binding.
    `virtual`: the worker sees only its own device, and LOCAL_RANK is 0. `devices`: the node's devices. `agent_store`:
    the agent serves the rendezvous store, and every rank is a client; otherwise rank 0 hosts it. `run_id`: the job's
    TORCHELASTIC_RUN_ID. `directory`: the worker's directory. `master_addr`, `master_port`: the rendezvous address.
    """
    role = next(role for role in spec.roles if role.name == placement.role)
    env = dict(base)
    if "OMP_NUM_THREADS" not in env and (cpus := asked_cpus(spec, role)):
        env["OMP_NUM_THREADS"] = str(cpus)
    elif shape.local > 1 and "OMP_NUM_THREADS" not in env:
        # torchrun sets this too, because one thread per core in each of N workers would overload the cores.
        env["OMP_NUM_THREADS"] = "1"
    env |= {
        "RANK": str(placement.rank),
        "LOCAL_RANK": str(placement.local_rank),
        "GROUP_RANK": str(shape.index),
        "ROLE_RANK": str(placement.role_rank),
        "ROLE_NAME": placement.role,
        "WORLD_SIZE": str(shape.world_size),
        "LOCAL_WORLD_SIZE": str(shape.local),
        "GROUP_WORLD_SIZE": str(shape.nodes),
        "ROLE_WORLD_SIZE": str(shape.roles.get(role.name, role.count)),
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": str(master_port),
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.restarts.max_restarts),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(agent_store),
        "TORCHELASTIC_ERROR_FILE": str(directory / "error.json"),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "HOLDFAST_JOB": job_id,
        "HOLDFAST_ATTEMPT": str(attempt),
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_PROGRESS": str(directory / "progress"),
        "HOLDFAST_DRAIN": str(directory / DRAIN),
        "HOLDFAST_LOGS": str(directory),
        "HOLDFAST_ERRORS": str(directory.parent),
    }
    # Python then prints its stack at a segmentation fault.
    env.setdefault("PYTHONFAULTHANDLER", "1")
    env |= role.env
    # Workers must not see excluded devices. Local rank i then uses the i-th remaining device.
    for variable, prefix in VISIBLE.items():
        numbers = _numbers(placement.visible, prefix, () if variable in base else devices)
        if numbers or (placement.bound and (variable in env or prefix == "gpu")):
            env[variable] = ",".join(numbers)
    if QUEUE_DEVICES in base and (placement.visible or placement.bound):
        env[QUEUE_DEVICES] = ",".join(name.lstrip("abcdefghijklmnopqrstuvwxyz") for name in placement.visible)
    if placement.cpus:
        env["HOLDFAST_CPUS"] = placement.cpus
    if placement.bound:
        env["LOCAL_RANK"] = "0"
    elif virtual:
        env["LOCAL_RANK"] = "0"
        for variable in ("CUDA_VISIBLE_DEVICES", *(name for name in _ONE_OF if name in env)):
            listed = [part.strip() for part in env.get(variable, "").split(",") if part.strip()]
            own = listed[placement.local_rank : placement.local_rank + 1]
            env[variable] = own[0] if own else str(placement.local_rank)
    return env


def _numbers(names: Sequence[str], prefix: str, devices: Sequence[str]) -> list[str]:
    """Return the driver's numbers of the named devices. `devices`: all devices of the node, unless a variable lists
    them by number.

    In a container `/dev/nvidia5` keeps the machine's number, but the driver counts from 0. `prefix`: the kind of
    device, such as `gpu`.
    """
    places = {name: str(at) for at, name in enumerate(one for one in devices if one.startswith(prefix))}
    return [places.get(name, name.removeprefix(prefix)) for name in names if name.startswith(prefix)]


def keep_environment(env: Mapping[str, str], directory: Path) -> None:
    """Write a worker's environment, without secrets, into its directory. A report page compares it with the previous
    attempt."""
    try:
        data = msgspec.json.encode(kept(env))
        if len(data) <= MOST_KEPT:
            write_file(directory / KEPT, data)
    except (OSError, UnicodeError):
        pass  # ignore a full disk, or a value that is no text: only the report page lacks its comparison


def read_error_file(path: Path) -> str:
    """Return the beginning of the error file (TORCHELASTIC_ERROR_FILE) that a worker wrote, or "" if it wrote none."""
    try:
        return read_file(path, MOST_BYTES, cut=True).decode(errors="replace")
    except OSError:
        return ""
