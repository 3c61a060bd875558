"""What a job may ask of Slurm when it wants to be started again: from its record and those of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.platforms.slurm.text.hostlist import hosts_in
from holdfast.platforms.slurm.text.scontrol_records import JobRecord, NodeRecord, Partition


def requeue_refusal(record: JobRecord, without: Iterable[str] = ()) -> str:
    """Why Slurm would not start the job again without these nodes; empty: it would."""
    if not record.batch:
        return "Slurm starts only batch jobs again, and this one is of salloc or srun"
    if not record.requeue:
        return "Slurm's Requeue=0 for this job (sbatch --requeue, or JobRequeue=1 in slurm.conf)"
    wanted = hosts(record.required)
    if pinned := [name for name in without if name in wanted]:
        # Slurm would keep it in the queue for ever.
        return f"the job asks for {', '.join(pinned)} by name (sbatch --nodelist), and is not to run there again"
    return ""


def hosts(listed: str) -> tuple[str, ...]:
    """The names of a list as Slurm prints it; none where it cannot be read."""
    try:
        return hosts_in(listed) if listed else ()
    except ValueError:
        return ()


def shrunk(record: JobRecord, without: Iterable[str]) -> str:
    """The job's nodes without these, for `nodelist=`; empty where there is nothing to change, or where Slurm would not:
    the node of the batch script stays."""
    mine, gone = hosts(record.nodes), set(without)
    rest = [name for name in mine if name not in gone]
    if len(rest) in (0, len(mine)) or record.batch_host in gone:
        return ""
    return ",".join(rest)


def too_few(record: JobRecord, partition: Partition, needed: int, without: Iterable[str]) -> str:
    """Why these nodes cannot be left out: Slurm would keep the job in the queue for ever. Empty: they can.

    `needed`: how many nodes the job has been given at its start.
    """
    there = hosts(partition.nodes)
    left_out = {*hosts(record.excluded), *without}
    rest = [name for name in there if name not in left_out]
    if not there or len(rest) >= needed:
        return ""
    return f"partition {partition.name} has {len(rest)} other nodes, and the job needs {needed}"


def excluded(record: JobRecord, without: Iterable[str]) -> str:
    """For `excnodelist=`: the user's own list with these; empty where that has them all."""
    own = hosts(record.excluded)
    more = [name for name in without if name not in own]
    return ",".join((*own, *more)) if more else ""


def is_left_alone(record: JobRecord, batch_host: NodeRecord | None = None) -> bool:
    """Whether the job runs on though the node of its batch script is lost.

    `batch_host`: that node; None: not asked yet, and then only the job's own record counts.
    """
    if record.state not in ("RUNNING", "RESIZING", "SUSPENDED") or not record.batch or not record.batch_host:
        return False
    gone = record.batch_host not in hosts(record.nodes)
    return gone or batch_host is None or batch_host.down or batch_host.silent
