"""Jobs in a platform's queue, for `jobs`, `show`, `logs` and `stop`."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.clock import Clock
from holdfast.model.evidence import StopRequest
from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.blocking_query import query
from holdfast.platforms.slurm.slurm_commands import TEMPORARY, CommandOutput
from holdfast.reactor import Reactor
from holdfast.record.job_views import JobView

LOOK_S = 2.0
"""How long a list of jobs waits for slurmctld."""
CANCEL_S = 15.0
BESIDE_S = 30.0


class QueueEntry(Noun, frozen=True, kw_only=True):
    """A job as its platform's queue shows it."""

    state: str
    """As the platform writes it: `PENDING`."""
    reason: str = ""
    """Why it waits, as the platform writes it: `Resources`. Empty: it does not wait."""
    begins: float | None = None
    """When it is expected to begin, in seconds since the epoch; None: unknown."""


class QueueUnknown(Noun, frozen=True, kw_only=True):
    """Why the queue is unknown, for a sentence."""

    why: str
    passes: bool
    """A later look may succeed."""


_COMES = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "COMPLETING", "CONFIGURING", "SPECIAL_EXIT"})
"""States of a job that Slurm will start, or may put back into its queue."""
_BEGUN = frozenset({"RUNNING", "CONFIGURING"})


@functools.cache
def queue() -> Mapping[str, QueueEntry] | QueueUnknown:
    """This user's jobs in Slurm's queue, by id, with each task of an array by itself. A command asks once."""
    words = ["squeue", "-h", "-r", "-a", "-u", str(os.getuid()), "-o", "%i|%T|%r|%S"]
    answer = query(words, limit_s=LOOK_S)
    if not answer.ok:
        return QueueUnknown(why=answer.said, passes=answer.trouble in TEMPORARY)
    found = {}
    for line in answer.out.splitlines():
        number, state, reason, begins, *_ = (*line.split("|"), "", "", "")
        waits = reason not in ("", "None")
        found[number] = QueueEntry(
            state=state, reason=reason if waits else "", begins=float(begins) if begins.isdigit() else None
        )
    return found


@functools.cache
def cluster() -> str:
    """The name of the cluster whose queue is asked; empty where Slurm does not give it. Several may share a home."""
    answer = query(["scontrol", "show", "config"], limit_s=LOOK_S)
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answer.out, re.MULTILINE) if answer.ok else None
    return found[1] if found else ""


def started_again(jobs: Iterable[JobView]) -> dict[str, str]:
    """Of jobs without a supervisor, those that Slurm will or may start again, by id, each with the reason in words."""
    known = queue()
    if isinstance(known, QueueUnknown):
        return {view.id: known.why for view in jobs} if known.passes else {}
    found = {}
    for view in jobs:
        state = known.get(view.platform.id) if view.platform is not None else None
        if state is not None and state.state in _COMES:
            found[view.id] = f"Slurm has it in its queue: {state.state}{f' ({state.reason})' if state.reason else ''}"
    return found


def cancel(number: str, *, waiting: bool) -> CommandOutput:
    """Ask Slurm to remove a job from its queue. `waiting`: only the part that has not begun."""
    queue.cache_clear()
    return query(["scancel", *(("--state=PENDING",) if waiting else ()), number], limit_s=CANCEL_S)


def begins(number: str) -> bool:
    """Whether a job that waited a moment ago now has its nodes; the queue is read again."""
    queue.cache_clear()
    known = queue()
    state = known.get(number) if not isinstance(known, QueueUnknown) else None
    return state is not None and state.state in _BEGUN


def wait(seconds: float) -> None:
    """Wait until another look at the queue is worth it: Slurm tells no user when a job begins. An interrupt ends it."""
    reactor = Reactor(Clock().now)
    over: list[float] = []
    try:
        reactor.at(reactor.now() + seconds, over.append)
        while not over:
            reactor.wait()
    finally:
        reactor.close()
    queue.cache_clear()


def end_queued(home: Path, job_id: str, request: StopRequest) -> bool:
    """Write down that a job has ended which its platform was to start again. False: it does not wait (any more)."""
    from holdfast.platforms.job_takeover import end_queued as end  # imports the gang, which no list needs

    return end(home, job_id, request)


def beside(number: str, node: str, words: Sequence[str]) -> CommandOutput:
    """Run one of our own commands on a node of a running job, as a further step of that job."""
    step = ["srun", f"--jobid={number}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    return query([*step, "--quiet", sys.executable, "-P", "-m", "holdfast", *words], limit_s=BESIDE_S)
