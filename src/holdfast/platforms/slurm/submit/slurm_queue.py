"""Read Slurm's queue, and cancel jobs, for `jobs`, `show`, `logs` and `stop`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

from holdfast.platforms.job_queue import QueueEntry, QueueUnknown
from holdfast.platforms.slurm.blocking_query import query
from holdfast.platforms.slurm.slurm_commands import TEMPORARY, CommandOutput
from holdfast.reactor import pause

#: Time limit for the list of jobs, in seconds.
QUERY_S = 2.0
CANCEL_S = 15.0
BESIDE_S = 30.0
#: States of jobs that Slurm will start, or may requeue.
_STARTABLE_STATES = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "COMPLETING", "CONFIGURING", "SPECIAL_EXIT"}
)
_BEGUN = frozenset({"RUNNING", "CONFIGURING"})


class SlurmQueue:
    """Reads Slurm's queue and cancels jobs."""

    def __init__(self) -> None:
        self._entries: Mapping[str, QueueEntry] | QueueUnknown | None = None
        self._cluster: str | None = None

    def entries(self) -> Mapping[str, QueueEntry] | QueueUnknown:
        if self._entries is None:
            self._entries = _queue()
        return self._entries

    def cluster(self) -> str:
        if self._cluster is None:
            self._cluster = cluster()
        return self._cluster

    def may_begin(self, entry: QueueEntry) -> bool:
        return entry.state in _STARTABLE_STATES

    def cancel(self, number: str, *, waiting: bool) -> CommandOutput:
        self._entries = None
        return query(["scancel", *(("--state=PENDING",) if waiting else ()), number], limit_s=CANCEL_S)

    def begins(self, number: str) -> bool:
        self._entries = None
        known = self.entries()
        state = known.get(number) if not isinstance(known, QueueUnknown) else None
        return state is not None and state.state in _BEGUN

    def wait(self, seconds: float) -> None:
        """Sleep before the queue is read again, because Slurm does not notify users when a job starts."""
        pause(seconds)
        self._entries = None

    def beside(self, number: str, node: str, words: Sequence[str]) -> CommandOutput:
        """Run a holdfast command on a node, in a step of the job."""
        step = ["srun", f"--jobid={number}", "--overlap", "--mem=0", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
        return query([*step, "--quiet", sys.executable, "-P", "-m", "holdfast", *words], limit_s=BESIDE_S)

    def look_command(self, number: str) -> str:
        return f"scontrol show job {number}"

    def end_command(self, number: str) -> str:
        return f"scancel {number}"

    def past_command(self, number: str) -> str:
        return f"sacct -j {number} -o State,ExitCode,Reason"


QUEUE = SlurmQueue()


def _queue() -> Mapping[str, QueueEntry] | QueueUnknown:
    """Read this user's jobs with squeue."""
    words = ["squeue", "-h", "-r", "-a", "-u", str(os.getuid()), "-o", "%i|%T|%r|%S"]
    answer = query(words, limit_s=QUERY_S)
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


def cluster() -> str:
    """Return the cluster's name; empty if Slurm does not tell it."""
    answer = query(["scontrol", "show", "config"], limit_s=QUERY_S)
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answer.out, re.MULTILINE) if answer.ok else None
    return found[1] if found else ""
