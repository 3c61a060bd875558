"""What waits in a platform's queue: the door of `jobs`, `show`, `logs` and `stop` to it."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.clock import Clock
from holdfast.cluster.slurm.asking import TEMPORARY, Answer
from holdfast.loop.slurm.asked import asked
from holdfast.model.base import Noun
from holdfast.model.evidence import StopRequest
from holdfast.reactor import Reactor
from holdfast.record.views import JobView

LOOK_S = 2.0
"""A list of jobs waits no longer for slurmctld."""
CANCEL_S = 15.0
BESIDE_S = 30.0


class InQueue(Noun, frozen=True, kw_only=True):
    """A job as its platform's queue has it."""

    state: str
    """The platform's own word: `PENDING`."""
    reason: str = ""
    """Why it waits, in the platform's own word: `Resources`. Empty: it does not."""
    begins: float | None = None
    """When it is expected to begin, in seconds since the epoch; None: that is not known."""


class Unknown(Noun, frozen=True, kw_only=True):
    """Why the queue is not known, for a sentence."""

    why: str
    passes: bool
    """Another look may tell."""


_COMES = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "COMPLETING", "CONFIGURING", "SPECIAL_EXIT"})
"""States of a job that Slurm is to start, or may yet put back into its queue."""
_BEGUN = frozenset({"RUNNING", "CONFIGURING"})


@functools.cache
def queue() -> Mapping[str, InQueue] | Unknown:
    """This user's jobs in Slurm's queue, by id, each task of an array by itself. Asked once by a command."""
    words = ["squeue", "-h", "-r", "-a", "-u", str(os.getuid()), "-o", "%i|%T|%r|%S"]
    answer = asked(words, limit_s=LOOK_S)
    if not answer.ok:
        return Unknown(why=answer.said, passes=answer.trouble in TEMPORARY)
    found = {}
    for line in answer.out.splitlines():
        number, state, reason, begins, *_ = (*line.split("|"), "", "", "")
        waits = reason not in ("", "None")
        found[number] = InQueue(
            state=state, reason=reason if waits else "", begins=float(begins) if begins.isdigit() else None
        )
    return found


@functools.cache
def cluster() -> str:
    """What the cluster is called whose queue is asked; empty where Slurm does not tell. Homes may serve several."""
    answer = asked(["scontrol", "show", "config"], limit_s=LOOK_S)
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answer.out, re.MULTILINE) if answer.ok else None
    return found[1] if found else ""


def started_again(jobs: Iterable[JobView]) -> dict[str, str]:
    """Of jobs without a supervisor, those that Slurm is to start again, or may be, by id: the reason in words."""
    known = queue()
    if isinstance(known, Unknown):
        return {view.id: known.why for view in jobs} if known.passes else {}
    found = {}
    for view in jobs:
        state = known.get(view.platform.id) if view.platform is not None else None
        if state is not None and state.state in _COMES:
            found[view.id] = f"Slurm has it in its queue: {state.state}{f' ({state.reason})' if state.reason else ''}"
    return found


def cancel(number: str, *, waiting: bool) -> Answer:
    """Have Slurm take a job out of its queue. `waiting`: only what of it has not begun."""
    queue.cache_clear()
    return asked(["scancel", *(("--state=PENDING",) if waiting else ()), number], limit_s=CANCEL_S)


def begins(number: str) -> bool:
    """Whether a job that waited a moment ago has been given its nodes; the queue is looked up anew."""
    queue.cache_clear()
    known = queue()
    state = known.get(number) if not isinstance(known, Unknown) else None
    return state is not None and state.state in _BEGUN


def wait(seconds: float) -> None:
    """Until the queue is worth another look: Slurm tells no user when a job begins. An interrupt ends it."""
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
    """Write down that a job ends which its platform was to start again. False: it is not waiting (any more)."""
    from holdfast.loop.taking_over import end_queued as end  # brings the gang, which no list needs

    return end(home, job_id, request)


def beside(number: str, node: str, words: Sequence[str]) -> Answer:
    """Run one of our own commands on a node of a running job, as a further step of that job."""
    step = ["srun", f"--jobid={number}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    return asked([*step, "--quiet", sys.executable, "-P", "-m", "holdfast", *words], limit_s=BESIDE_S)
