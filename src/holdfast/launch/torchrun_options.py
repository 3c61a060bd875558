"""Reads torchrun's options: its variables (`PET_*`), the options for one machine, and the number of workers.

An option overrides its variable, as in torchrun. If an option of torchrun is also a setting of holdfast, the table of
settings has its variable (`holdfast.settings.settings_table`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.observe.devices.device_discovery import accelerators, xpus
from holdfast.settings.run_options import IGNORED, MULTI_NODE_ONLY, RunOptions

#: The options that torchrun also reads from the environment. `--logs-specs` and `--numa-binding` are not among them.
VALUES = (
    "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "monitor_interval",
    "start_method", "event_log_handler", "role", "local_ranks_filter", "duplicate_stdout_filters",
    "duplicate_stderr_filters", "node_rank", "master_addr", "master_port", "local_addr", "signals_to_handle",
    "log_line_prefix_template",
)  # fmt: skip
FLAGS = ("standalone", "module", "no_python", "run_path", "virtual_local_rank")
#: Options that a job file sets itself. Environment variables do not change them.
OF_A_SCRIPT = ("nproc_per_node", "role", "module", "no_python", "run_path")

MOST_NODES = 10_000

OWN_BACKENDS = ("static", "c10d")
_WORDS = ("auto", "cpu", "gpu", "xpu", "npu")
_HANDLED = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})


def with_variables(options: RunOptions, env: Mapping[str, str]) -> RunOptions:
    """Return a copy of the typed options, with the values of `PET_*` variables for options that were not typed. Raises
    `BadUsage`."""
    found: dict[str, str | bool] = {}
    origins: dict[str, str] = {}
    skipped = OF_A_SCRIPT if options.job else ()
    for name in (*VALUES, *FLAGS):
        variable = f"PET_{name.upper()}"
        text = env.get(variable)
        if not text or options.is_set(name) or name in skipped:
            continue
        if name in FLAGS:
            if not (text.isascii() and text.isdigit()):
                raise BadUsage(f"{variable}={text}: expected 0 or 1", hint=f"unset {variable}")
            if int(text):
                found[name] = True
                origins[name] = f"{variable}={text}"
        else:
            found[name] = text
            origins[name] = f"{variable}={text}"
    return replace(options, **found, origins=origins)


def named(options: RunOptions, name: str) -> str:
    """Return a value with its source, for messages: `--nnodes 4`, `PET_NNODES=4`."""
    value = "" if getattr(options, name) is True else f" {getattr(options, name)}"
    return options.origins.get(name) or f"--{name.replace('_', '-')}{value}"


def node_range(options: RunOptions) -> tuple[int, int]:
    """Return the smallest and largest number of nodes in `--nnodes`; (1, 1) if it is not set. Raises `BadUsage`."""
    text = options.nnodes
    if text is None:
        return 1, 1
    least, colon, most = text.partition(":")
    numbers = [part for part in ((least, most) if colon else (least,)) if _is_number(part)]
    if len(numbers) != 1 + bool(colon) or not 1 <= int(numbers[0]) <= int(numbers[-1]) <= MOST_NODES:
        raise BadUsage(
            f"{named(options, 'nnodes')}: expected a number of nodes from 1 to {MOST_NODES}, or MIN:MAX",
            hint="holdfast run --nnodes 1 …",
        )
    return int(numbers[0]), int(numbers[-1])


def alone(options: RunOptions, nodes: tuple[int, int], spares: int) -> str:
    """If the job must run on this machine alone because other nodes cannot find it, return a note that says so, else
    "".

    As in torchrun, `1:4` without an endpoint runs on this machine. Raises `BadUsage` if the job needs more nodes.
    """
    least, most = nodes
    if most + spares == 1:
        return ""
    missing = no_endpoint(options)
    asked = named(options, "nnodes") if most > 1 else f"--spares {spares}"
    if least > 1 and missing:
        raise BadUsage(
            f"{asked}: {missing}: expected the address and port of one node, typed on every node",
            hint=f"holdfast run --nnodes {options.nnodes} --rdzv-endpoint NODE:29500 …; or holdfast run --hosts A,B …",
        )
    return f"{asked}: the job runs on this machine alone: {missing}" if missing else ""


def no_endpoint(options: RunOptions) -> str:
    """Return why no other node could find this one, or "" if the user typed an endpoint."""
    if options.standalone:
        return f"{named(options, 'standalone')} means one machine"
    endpoint = (options.rdzv_endpoint or "").strip()
    if not endpoint:
        return "" if options.master_addr else "there is neither --rdzv-endpoint HOST:PORT nor --master-addr HOST"
    _, port = endpoint_parts(endpoint, named(options, "rdzv_endpoint"))
    return f"{named(options, 'rdzv_endpoint')} means any free port, which no other node knows" if port == "0" else ""


def refuse(options: RunOptions, *, many: bool = False) -> None:
    """Raise BadUsage for options of torchrun that holdfast does not support. Values that ask for holdfast's usual
    behaviour are allowed.

    `many`: the job may have more than one node.
    """

    def no(name: str, why: str, hint: str) -> BadUsage:
        return BadUsage(f"{named(options, name)}: {why}", hint=hint)

    rank = options.node_rank
    if not many and rank not in (None, "0") and options.rdzv_backend in (None, "static"):
        raise no("node_rank", "the job has one node: expected 0", "holdfast run --nnodes 2 --node-rank 1 …")
    if options.logs_specs:
        raise no(
            "logs_specs",
            "holdfast has its own logs and no plugins for them",
            "holdfast run --log-dir DIRECTORY --redirects 3 …",
        )
    if options.event_log_handler not in (None, "null"):
        raise no(
            "event_log_handler",
            "holdfast does not send torchrun's events; its own are in its journal: expected null",
            "holdfast run --json …; holdfast show JOB --json",
        )
    if options.numa_binding:
        raise no(
            "numa_binding",
            "holdfast does not bind workers to the cores near their devices",
            "holdfast run --no-python numactl --cpunodebind=0 --membind=0 python train.py",
        )
    for name in ("duplicate_stdout_filters", "duplicate_stderr_filters"):
        if options.text(name):
            raise no(name, "holdfast writes no second log of chosen lines", "holdfast logs JOB | grep WORD")
    signals = options.signals_to_handle
    if signals and frozenset(word.strip() for word in signals.split(",")) != _HANDLED:
        raise no(
            "signals_to_handle",
            "SIGTERM, SIGINT, SIGHUP and SIGQUIT stop a job, SIGUSR1 and SIGUSR2 are passed on to the workers; "
            "this cannot be changed",
            "holdfast run --signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT …",
        )


def unused(options: RunOptions, *, many: bool = False) -> list[str]:
    """Return the typed options of torchrun that have no effect. The job runs on one machine, or other options override
    them.

    `many`: the job may have more than one node. Then the options to find other nodes have an effect.
    """
    typed = [name for name in (*MULTI_NODE_ONLY, *IGNORED) if options.is_set(name) and name not in options.origins]
    said = [f"--{name.replace('_', '-')}" for name in typed if not many or name not in MULTI_NODE_ONLY]
    if many:
        return said
    if options.rdzv_endpoint:
        # The option that decides how the endpoint is used has an effect, so leave it out of the list.
        meant = "--standalone" if options.standalone else "--rdzv-backend"
        said = [option for option in said if option != meant]
        if options.standalone or (options.rdzv_backend or "static") not in OWN_BACKENDS:
            said.append("--rdzv-endpoint")
    if options.node_rank not in (None, "0"):
        said.append("--node-rank")
    return said


def meeting_place(options: RunOptions) -> tuple[str | None, str | None]:
    """Return MASTER_ADDR and MASTER_PORT as torchrun's options set them, as text; None if holdfast chooses them.

    As in torchrun, the endpoint overrides `--master-addr` and `--master-port`, and `--standalone` ignores the endpoint.
    For a backend other than `OWN_BACKENDS` the endpoint is ignored: it is the address of a server that holdfast does
    not use.
    """
    backend = options.rdzv_backend or "static"
    addr, port = options.master_addr, options.master_port
    if options.standalone:
        return _address(addr or options.local_addr), port
    endpoint = (options.rdzv_endpoint or "").strip()
    if endpoint and backend in OWN_BACKENDS:
        host, own_port = endpoint_parts(endpoint, named(options, "rdzv_endpoint"))
        if backend == "static":
            addr = host or addr
        port = own_port if own_port not in ("", "0") else port
    return _address(addr or options.local_addr), port


def _address(text: str | None) -> str | None:
    """Remove the brackets around an IPv6 address, as torchrun does."""
    return text.strip("[]") if text else text


def endpoint_parts(endpoint: str, where: str) -> tuple[str, str]:
    """Split `host:29500`, `[::1]:29500` or `host` into the host, without brackets, and the port. The port is "" if
    there is none. `where`: the source of the text, for messages.
    """
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint, ""
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise BadUsage(f"{where}: expected HOST:PORT with a port from 0 to 65535", hint="holdfast run --help-all")
    return host.strip("[]"), port


def workers(options: RunOptions) -> int:
    """Return the number of workers to start, from a number, `auto`, `cpu`, `gpu`, `xpu` or `npu`; 1 if it is not
    set."""
    word = options.nproc_per_node
    if word not in _WORDS:
        return number(options, "nproc_per_node", word, 1, 100_000, f", or one of {', '.join(_WORDS)}") or 1
    found = 0
    if word in ("auto", "gpu", "npu"):
        found = accelerators(os.environ)
    if word == "xpu" or (word == "auto" and not found):
        found = xpus(os.environ)
    if word not in ("auto", "cpu") and not found:
        raise BadUsage(
            f"{named(options, 'nproc_per_node')}: this machine shows no accelerator of this kind to holdfast",
            hint={"gpu": "nvidia-smi -L", "npu": "npu-smi info -l"}.get(word, "ls -l /dev/dri"),
        )
    return found or len(os.sched_getaffinity(0))


def number(options: RunOptions, name: str, text: str | None, least: int, most: int, more: str = "") -> int | None:
    """Convert the text to a number from `least` to `most`. Return None if there is no text. Raises `BadUsage`, whose
    message names the option and ends with `more`.
    """
    if text is None:
        return None
    if not _is_number(text) or not least <= int(text) <= most:
        where = named(options, name) if options.text(name) == text else f"--{name.replace('_', '-')} {text}"
        raise BadUsage(f"{where}: expected a number from {least} to {most}{more}", hint="holdfast run --help-all")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def ranks(options: RunOptions) -> frozenset[int] | None:
    """Return the local ranks whose output is shown; None for all."""
    text = options.local_ranks_filter
    if not text:
        return None
    parts = [number(options, "local_ranks_filter", part.strip(), 0, 100_000) for part in text.split(",")]
    return frozenset(part for part in parts if part is not None)


def check_devices(options: RunOptions, count: int) -> None:
    """Raise BadUsage if each worker gets its own device and CUDA_VISIBLE_DEVICES lists fewer than `count`."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not options.virtual_local_rank or listed is None:
        return
    devices = [part for part in listed.split(",") if part.strip()]
    if len(devices) < count:
        raise BadUsage(
            f"--virtual-local-rank gives each worker one device: CUDA_VISIBLE_DEVICES={listed} has {len(devices)} for "
            f"{count} workers",
            hint=f"holdfast run --nproc-per-node {max(len(devices), 1)} …",
        )
