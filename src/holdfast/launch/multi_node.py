"""Builds a multi-node job from the typed options: the number of nodes, the owner's endpoint, and this machine's
part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.decide.attempt_timers import timers_for
from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.owner_placement import part_here
from holdfast.launch.torchrun_options import OWN_BACKENDS, endpoint_parts, named, number, workers
from holdfast.model import amounts
from holdfast.model.job_spec import JobSpec, NodePlan
from holdfast.safe_files import not_a_file
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.run_options import RunOptions
from holdfast.wire.addresses import interfaces, is_loopback, offered, plain
from holdfast.wire.job_key import VARIABLE, job_key

#: torchrun's default ports, which are used if the endpoint has no port.
C10D_PORT, STATIC_PORT = 29400, 29500
_RANKS = 100_000
_USED = ("is_host", "join_timeout", "last_call_timeout")
_FLAGS = {"1": True, "true": True, "t": True, "yes": True, "y": True,
          "0": False, "false": False, "f": False, "no": False, "n": False}  # fmt: skip
_HINT = "holdfast run --nnodes 2 --rdzv-endpoint NODE:29500 …"


class MultiNodeJob(msgspec.Struct, frozen=True):
    """A multi-node job, as the command line describes it."""

    job: JobFile
    order: NodesOrder
    notes: tuple[str, ...]


def over_nodes(
    options: RunOptions, settings: Settings, job: JobFile, home: Path, nodes: tuple[int, int]
) -> MultiNodeJob:
    """Build the job for a command that the user types on every node. `nodes`: the smallest and largest number of nodes
    in `--nnodes`. Raises `BadUsage`."""
    backend = options.rdzv_backend or "static"
    if backend not in OWN_BACKENDS:
        raise BadUsage(
            f"{named(options, 'rdzv_backend')}: expected one of {', '.join(OWN_BACKENDS)}: holdfast's nodes find each "
            "other without a server",
            hint=_HINT,
        )
    conf, strange = rendezvous_conf(options)
    plan = plan_of(settings, conf, nodes, settings.count("spares") or 0)
    rank, notes = _rank(options, plan, backend)
    host, port = endpoint(options, backend)
    is_host = _is_host(options, conf, backend, rank)
    if strange:
        notes.append(f"--rdzv-conf {', '.join(strange)}: no meaning here, ignored")
    part = part_here(host, is_host=is_host, node_rank=rank)
    if not part.resolved:
        notes.append(f"{part.why}: it is tried again for as long as the nodes may take to come together")
    local = options.local_addr or ""
    if is_loopback(host):
        if local and not is_loopback(local):
            raise BadUsage(
                f"the endpoint {shown(host, port)} can only be reached on its own machine, and "
                f"{named(options, 'local_addr')} is for other machines: expected an address that all nodes reach",
                hint=_HINT,
            )
        notes.append(f"the endpoint {shown(host, port)} is this machine's own: other machines cannot join")
    elif local and is_loopback(local):
        raise BadUsage(
            f"{named(options, 'local_addr')}: other nodes cannot reach a loopback address: expected one of "
            f"{', '.join(offered(interfaces())) or 'this machine'}",
            hint="ip -brief address",
        )
    slots = slots_of(options, job.spec, plan)
    key, key_from = key_of(settings, home)
    order = NodesOrder(
        host=host,
        port=port,
        key=key,
        key_from=key_from,
        job=identity(options, job.spec),
        slots=slots,
        hosts=part.hosts,
        hosts_why=part.why,
        elsewhere=part.hosts and not part_here(host, is_host=None, node_rank=None, must_resolve=False).hosts,
        is_host=is_host,
        node_rank=rank,
        local_addr=local,
        port_range=port_range(settings),
        owner_wait_s=owner_wait_s(settings),
    )
    plan = msgspec.structs.replace(plan, endpoint=shown(host, port))
    return MultiNodeJob(with_plan(options, job, plan, slots), order, tuple(notes))


# --------------------------------------------------------------------------- functions that read the multi-node options


def plan_of(settings: Settings, conf: Mapping[str, str], nodes: tuple[int, int], spares: int) -> NodePlan:
    """Return the plan of nodes: how many there are, and how long to wait for them."""
    return NodePlan(
        least=nodes[0],
        most=nodes[1],
        spares=spares,
        last_call_s=_wait_s(settings, conf, "last-call", "last_call_timeout"),
        join_s=_wait_s(settings, conf, "join-timeout", "join_timeout"),
        replace_s=settings.number("replace-wait") or 0.0,
        grow=bool(settings.flag("grow")),
    )


def _wait_s(settings: Settings, conf: Mapping[str, str], name: str, key: str) -> float:
    """Return a waiting time in seconds. holdfast's option overrides torchrun's option, which overrides variables and
    files."""
    if key in conf and settings.source(name) is not SettingSource.OPTION:
        return amounts.seconds(conf[key]) or 0.0
    return settings.number(name) or 0.0


def rendezvous_conf(options: RunOptions) -> tuple[dict[str, str], list[str]]:
    """Parse `--rdzv-conf is_host=1,join_timeout=60`. Return all keys with their values, and the names of the ignored
    keys."""
    text = (options.rdzv_conf or "").strip()
    found: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise _conf_wrong(options, f"`{pair.strip()}`: expected KEY=VALUE,KEY=VALUE")
        found[key] = value
    for key in ("join_timeout", "last_call_timeout"):
        value = found.get(key, "1")
        if (amounts.seconds(value) or 0.0) <= 0:
            raise _conf_wrong(options, f"`{key}={value}`: expected {amounts.DURATION}, more than 0")
    if found.get("is_host", "1").lower() not in _FLAGS:
        raise _conf_wrong(options, f"`is_host={found['is_host']}`: expected 1 or 0")
    return found, [key for key in found if key not in _USED]


def _conf_wrong(options: RunOptions, problem: str) -> BadUsage:
    return BadUsage(f"{named(options, 'rdzv_conf')}: {problem}", hint="holdfast run --rdzv-conf is_host=1 …")


def _rank(options: RunOptions, plan: NodePlan, backend: str) -> tuple[int | None, list[str]]:
    """Return the value of `--node-rank`, and notes about the option."""
    if options.node_rank is None:
        return None, []
    last = plan.most + plan.spares - 1
    rank = number(options, "node_rank", options.node_rank, 0, _RANKS)
    if backend == "c10d":
        # torchrun ignores the rank too: scripts for this backend often pass the same rank on every node.
        return None, [f"{named(options, 'node_rank')}: --rdzv-backend c10d ranks the nodes by itself, ignored"]
    if rank is not None and rank > last:
        spare = f" and --spares {plan.spares}" if plan.spares else ""
        raise BadUsage(
            f"{named(options, 'node_rank')} with --nnodes {options.nnodes}{spare}: expected a number from 0 to {last}",
            hint=f"holdfast run --nnodes {options.nnodes} --node-rank {last} …",
        )
    return rank, []


def _is_host(options: RunOptions, conf: Mapping[str, str], backend: str, rank: int | None) -> bool | None:
    """Return whether the user chose this node as the owner's host; None if the options do not decide it.

    With `--master-addr`, node rank 0 hosts the owner, as in torchrun's static rendezvous.
    """
    if "is_host" in conf:
        return _FLAGS[conf["is_host"].lower()]
    if backend == "static" and not options.rdzv_endpoint and rank is not None:
        return rank == 0
    return None


def endpoint(options: RunOptions, backend: str) -> tuple[str, int]:
    """Return the endpoint's host, without brackets, and its port. As in torchrun, `--rdzv-endpoint` overrides
    `--master-addr`."""
    text = (options.rdzv_endpoint or "").strip()
    master_port = number(options, "master_port", options.master_port, 1, 65535)
    if text:
        host, port = endpoint_parts(text, named(options, "rdzv_endpoint"))
        own = int(port) if port else (master_port or (C10D_PORT if backend == "c10d" else STATIC_PORT))
    else:
        host, own = (options.master_addr or "").strip("[]"), master_port or STATIC_PORT
    if not host:
        raise BadUsage(
            f"{named(options, 'rdzv_endpoint')}: the host is missing: expected the name or address of one node, "
            "and its port",
            hint=f"holdfast run --nnodes {options.nnodes} --rdzv-endpoint NODE:{own} …",
        )
    if "%" in host:
        raise BadUsage(
            f"{host}: an address with a zone (%{host.partition('%')[2]}) means another machine on each node: expected "
            "an address that all nodes reach",
            hint="ip -brief address  (an address that does not begin with fe80)",
        )
    if ":" in host and plain(host).count(":") < 2:
        raise BadUsage(
            f"{named(options, 'rdzv_endpoint')}: expected HOST:PORT; IPv6 is written [fd00::1]:{own}", hint=_HINT
        )
    return host, own


def shown(host: str, port: int) -> str:
    """Format an endpoint: `node1:29500`, `[fd00::2]:29500`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identity(options: RunOptions, spec: JobSpec) -> str:
    """Return the job's identity, which must be equal on all nodes of a job."""
    if options.rdzv_id:
        return f"--rdzv-id {options.rdzv_id}"
    script = Path(options.job or options.command_from or options.words[0]).name
    return f"{spec.name} ({script})"


def port_range(settings: Settings) -> tuple[int, int] | None:
    """Return the first and last port of `--port-range A-B`; None if it is not set. Raises `BadUsage`."""
    text = settings.text("port-range")
    if text is None:
        return None
    first, hyphen, last = (part.strip() for part in text.partition("-"))
    ports = [int(part) for part in (first, last) if part.isascii() and part.isdigit() and len(part) < 6]
    if len(ports) != 2 or not hyphen or not 1 <= ports[0] <= ports[1] <= 65535:
        raise BadUsage(
            f"{settings.origin('port-range')} {text}: expected two ports from 1 to 65535, the lower one first",
            hint="holdfast run --port-range 30000-30099 …",
        )
    return ports[0], ports[1]


def owner_wait_s(settings: Settings) -> float:
    """Return the value of `owner-wait` in seconds, or 60 if it is not set."""
    found = settings.number("owner-wait")
    return 60.0 if found is None else found


def key_of(settings: Settings, home: Path) -> tuple[bytes, str]:
    """Return the job's key and the path of its file. Raises `BadUsage`."""
    path = settings.text("job-key")
    typed = settings.source("job-key") is SettingSource.OPTION
    key = job_key(path if typed else None, {VARIABLE: path} if path else {}, home)
    return key.secret(), str(key.path)


# -------------------------------------------------------------------- functions that fit the job's workers to the nodes


def slots_of(options: RunOptions, spec: JobSpec, plan: NodePlan) -> int:
    """Return the number of workers on this machine. A job file's `count` is for the whole job, and is divided
    evenly."""
    if not options.job:
        return workers(options)
    total = spec.world_size
    even = -(-total // plan.most)
    taken = workers(options) if options.nproc_per_node else even
    if taken * plan.least < total:
        raise BadUsage(
            f"{options.job}: its {total} workers do not fit on {plan.least} "
            f"{'node' if plan.least == 1 else 'nodes'} with {taken} each: `count` in a job file is for all nodes "
            "together",
            hint=f"holdfast run --nnodes {options.nnodes} --nproc-per-node {-(-total // plan.least)} "
            f"--job {options.job}",
        )
    return taken


def with_plan(options: RunOptions, job: JobFile, plan: NodePlan, slots: int) -> JobFile:
    """Return the job with its plan of nodes (their number and waiting times). Each node decides its number of workers
    if the job has no job file, or if the platform replaces nodes and the gang may go on smaller."""
    spec = job.spec
    if not options.job or (plan.replaced and plan.least < plan.most):
        spec = replace(spec, roles=tuple(replace(role, count=slots, per_node=True) for role in spec.roles))
    spec = replace(spec, nodes=plan)
    return replace(job, spec=replace(spec, timers=timers_for(spec)))


def readable_again(options: RunOptions) -> None:
    """Raise BadUsage if the job file can be read only once (a pipe or the like), because both the supervisor and the
    guard read it."""
    if options.job and (kind := not_a_file(options.job)) not in ("", "a directory"):
        raise BadUsage(
            f"--job {options.job}: it is {kind}, and a job over nodes reads its job file again: expected a file",
            hint="holdfast run --job job.yaml …",
        )
