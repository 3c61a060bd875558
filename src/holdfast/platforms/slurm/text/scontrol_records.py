"""What `scontrol show job`, `show node` and `show config` print, as values. Pure; the same text from 22.05 to 25.x.

The form of several lines is read, not `-o`: there a free text (a job's name, a comment) ends with its line, and one
that holds ` JobState=…` can fool no reader. Times are seconds since the epoch: `slurm_commands.py` has Slurm's commands
print them so (SLURM_TIME_FORMAT=%s). A field that is missing, `(null)`, `N/A`, `None` or `Unknown` is None or
empty; one that is not known here is kept in `fields`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from holdfast.model.noun_base import Noun

_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w:/.]*)=")
#: Fields whose value goes on to the end of its line. A job's Reason is one word, a node's is a sentence.
_FREE = frozenset(
    {
        "JobName",
        "Comment",
        "AdminComment",
        "SystemComment",
        "Extra",
        "Command",
        "WorkDir",
        "StdErr",
        "StdIn",
        "StdOut",
        "SubmitLine",
        "Reason",
        "OS",
    }
)
_NONE = frozenset({"", "(null)", "None", "N/A", "n/a", "Unknown", "UNLIMITED", "Partition_Limit", "INFINITE"})
_REASON = re.compile(r"^(?P<words>.*?)(?: \[(?P<who>[^@\[\]]*)@(?P<when>[^\]]*)\])?$")
_SPAN = re.compile(r"^(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)$")
_CONFIG = re.compile(r"^(\S+)\s+=\s?(.*)$")


class JobRecord(Noun, frozen=True, kw_only=True):
    """One job, or one job of an array, as slurmctld knew it at that moment."""

    #: Its own number (SLURM_JOB_ID), also for a job of an array.
    job: int
    array: int | None = None
    index: int | None = None
    name: str = ""
    #: RUNNING, COMPLETING, PENDING … The transient ones too: SIGNALING, RESIZING, REQUEUED.
    state: str = ""
    #: One word of Slurm's: TimeLimit, Preempted … Empty for None.
    reason: str = ""
    #: Slurm may start it again.
    requeue: bool = False
    restarts: int = 0
    #: It has a batch script; a job of salloc has none, and is never requeued.
    batch: bool = False
    user: str = ""
    partition: str = ""
    qos: str = ""
    #: As Slurm lists them: n[1-3].
    nodes: str = ""
    batch_host: str = ""
    excluded: str = ""
    #: Nodes that the job asks for by name (--nodelist).
    required: str = ""
    started_at: float | None = None
    #: When its time is over; after a preemption the end of the grace; of a job that is over, when it ended.
    ends_at: float | None = None
    #: None: it has no time limit.
    limit_s: float | None = None
    #: Slurm wants the nodes since then, and the grace runs.
    preempted_at: float | None = None
    #: When Slurm last let it go on that had suspended it; while it is SUSPENDED, since when it is.
    resumed_at: float | None = None
    comment: str = ""
    admin_comment: str = ""
    #: Every field as it was printed.
    fields: Mapping[str, str] = {}


class NodeRecord(Noun, frozen=True, kw_only=True):
    """One node."""

    name: str
    address: str = ""
    #: IDLE, ALLOCATED, DOWN, DRAIN …; a `*` of Slurm's (it does not answer) is NOT_RESPONDING here.
    states: frozenset[str] = frozenset()
    #: Why it is down or drained, in the words of who did it.
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None
    booted_at: float | None = None
    slurmd_started_at: float | None = None
    gres: str = ""
    comment: str = ""
    fields: Mapping[str, str] = {}

    @property
    def down(self) -> bool:
        return bool(self.states & {"DOWN", "FAIL", "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN"})

    @property
    def silent(self) -> bool:
        """slurmctld has no answer of its slurmd."""
        return "NOT_RESPONDING" in self.states

    @property
    def drained(self) -> bool:
        """It gets no new work: drained already, or as soon as its jobs have ended."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})


class Config(Noun, frozen=True, kw_only=True):
    """What holdfast needs of slurm.conf. Times in seconds."""

    version: str = ""
    #: From SIGTERM to SIGKILL.
    kill_wait_s: float = 30.0
    #: A node that is silent for so long is down.
    slurmd_timeout_s: float = 300.0
    #: OverTimeLimit: SIGTERM comes so long after the end of a time limit. Without a limit: a year.
    over_time_s: float = 0.0
    job_requeue: bool = True
    preempt_mode: str = ""
    #: partition_prio or qos; empty: no job preempts another.
    preempt_type: str = ""
    proctrack: str = ""
    health_program: str = ""
    #: AccountingStoreFlags: the comment reaches sacct.
    job_comment: bool = False
    #: There is a slurmdbd.
    accounting: bool = False
    fields: Mapping[str, str] = {}

    @property
    def preempts(self) -> bool:
        """Some jobs may preempt others."""
        return bool(self.preempt_type) and self.preempt_mode not in ("", "OFF")


class Partition(Noun, frozen=True, kw_only=True):
    """One partition."""

    name: str
    #: From the notice of a preemption to its end.
    grace_s: float = 0.0
    #: OFF: its jobs cannot be preempted.
    preempt_mode: str = ""
    limit_s: float | None = None
    #: As Slurm lists them: n[1-4].
    nodes: str = ""
    fields: Mapping[str, str] = {}


def jobs(text: str) -> tuple[JobRecord, ...]:
    """Every job that `scontrol show job` has printed."""
    return tuple(_job(fields) for fields in _records(text, "JobId"))


def job(text: str, number: int) -> JobRecord | None:
    """That one job; of an array `scontrol show job N` prints all jobs that there are."""
    return next((each for each in jobs(text) if each.job == number), None)


def nodes(text: str) -> tuple[NodeRecord, ...]:
    """Every node that `scontrol show node` has printed."""
    return tuple(_node(fields) for fields in _records(text, "NodeName"))


def partition(text: str) -> Partition | None:
    """What `scontrol show partition NAME` has printed."""
    fields = next(_records(text, "PartitionName"), None)
    if fields is None:
        return None
    return Partition(
        name=fields["PartitionName"],
        grace_s=_number(fields.get("GraceTime"), 0.0),
        preempt_mode=_text(fields, "PreemptMode"),
        limit_s=span_s(fields.get("MaxTime", "")),
        nodes=_text(fields, "Nodes"),
        fields=fields,
    )


def config(text: str) -> Config:
    """What `scontrol show config` has printed."""
    fields = {found[1]: found[2].strip() for line in text.splitlines() if (found := _CONFIG.match(line.strip()))}
    over = fields.get("OverTimeLimit", "0 min")
    own = Config()
    return Config(
        version=fields.get("SLURM_VERSION", ""),
        kill_wait_s=_number(fields.get("KillWait"), own.kill_wait_s),
        slurmd_timeout_s=_number(fields.get("SlurmdTimeout"), own.slurmd_timeout_s),
        over_time_s=365 * 86_400.0 if over.startswith("UNLIMITED") else 60 * _number(over, 0.0),
        job_requeue=fields.get("JobRequeue", "1") == "1",
        preempt_mode=_text(fields, "PreemptMode"),
        preempt_type=_text(fields, "PreemptType").removeprefix("preempt/").removeprefix("none"),
        proctrack=_text(fields, "ProctrackType").removeprefix("proctrack/"),
        health_program=_text(fields, "HealthCheckProgram"),
        job_comment="job_comment" in fields.get("AccountingStoreFlags", ""),
        accounting=fields.get("AccountingStorageType", "").endswith("slurmdbd"),
        fields=fields,
    )


def span_s(text: str) -> float | None:
    """`1-02:03:04`, `02:03:04`, `03:04` (minutes, seconds) or `4` (minutes) in seconds; None: no limit, or no span."""
    found = _SPAN.match(text)
    if found is None:
        return None
    days, hours, minutes, rest = (int(part) if part else 0 for part in found.groups())
    if found[3] is None:
        return 60.0 * rest if found[1] is None else 86_400.0 * days + 3600.0 * rest
    return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes + rest


# ---------------------------------------------------------------------------------------------- how it is read


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    """The fields of each record: a line that begins with `first=` begins one."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(f"{first}=") and fields:
            yield fields
            fields = {}
        if fields or line.startswith(f"{first}="):
            for name, value in _line(line, node=first == "NodeName"):
                fields.setdefault(name, value)
    if fields:
        yield fields


def _line(line: str, *, node: bool) -> Iterator[tuple[str, str]]:
    at = 0
    while found := _FIELD.search(line, at):
        name = found[1]
        if name in _FREE and (node or name != "Reason"):
            yield name, line[found.end() :].strip()
            return
        following = _FIELD.search(line, found.end())
        end = following.start() if following else len(line)
        yield name, line[found.end() : end].strip()
        at = end


def _job(fields: dict[str, str]) -> JobRecord:
    return JobRecord(
        job=int(_number(fields.get("JobId"), 0)),
        array=_whole(fields, "ArrayJobId"),
        index=_whole(fields, "ArrayTaskId"),
        name=_text(fields, "JobName"),
        state=_text(fields, "JobState"),
        reason=_text(fields, "Reason"),
        requeue=fields.get("Requeue") == "1",
        restarts=_whole(fields, "Restarts") or 0,
        batch=fields.get("BatchFlag", "0") != "0",
        user=_text(fields, "UserId").partition("(")[0],
        partition=_text(fields, "Partition"),
        qos=_text(fields, "QOS"),
        nodes=_text(fields, "NodeList"),
        batch_host=_text(fields, "BatchHost"),
        excluded=_text(fields, "ExcNodeList"),
        required=_text(fields, "ReqNodeList"),
        started_at=slurm_time(fields.get("StartTime")),
        ends_at=slurm_time(fields.get("EndTime")),
        limit_s=span_s(fields.get("TimeLimit", "")),
        preempted_at=slurm_time(fields.get("PreemptTime")),
        resumed_at=slurm_time(fields.get("SuspendTime")),
        comment=_text(fields, "Comment"),
        admin_comment=_text(fields, "AdminComment"),
        fields=fields,
    )


def _node(fields: dict[str, str]) -> NodeRecord:
    said = _REASON.match(_text(fields, "Reason"))
    words = fields.get("State", "")
    states = {word.rstrip("*~#!%$@^-") for word in words.split("+")}
    if "*" in words:
        states.add("NOT_RESPONDING")
    return NodeRecord(
        name=fields["NodeName"],
        address=_text(fields, "NodeAddr"),
        states=frozenset(states),
        reason=said["words"] if said else "",
        reason_by=(said["who"] or "") if said else "",
        reason_at=slurm_time(said["when"]) if said else None,
        booted_at=slurm_time(fields.get("BootTime")),
        slurmd_started_at=slurm_time(fields.get("SlurmdStartTime")),
        gres=_text(fields, "Gres"),
        comment=_text(fields, "Comment"),
        fields=fields,
    )


def _text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name, "")
    return "" if value in _NONE else value


def _whole(fields: Mapping[str, str], name: str) -> int | None:
    value = fields.get(name, "")
    return int(value) if value.isdecimal() else None


def _number(text: str | None, otherwise: float) -> float:
    """The number at the start: `30 sec`."""
    found = re.match(r"\d+", text or "")
    return float(found[0]) if found else otherwise


def slurm_time(text: str | None) -> float | None:
    """Seconds since the epoch; also Slurm's own form, which is local time."""
    if text is None or text in _NONE:
        return None
    if text.isdecimal():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
