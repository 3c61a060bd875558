"""Parse the output of `scontrol show job`, `show node`, `show partition` and `show config`, from 22.05 to 25.x.

The parser reads the format with several lines per record, not `-o`. In this format a free text (a job's name, a
comment) ends with its line, so a text that contains ` JobState=…` cannot be mistaken for a field. Times are in seconds
since the epoch, because `slurm_commands.py` sets SLURM_TIME_FORMAT=%s. A field that is missing, `(null)`, `N/A`, `None`
or `Unknown` becomes None or empty. `fields` contains all fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from holdfast.model.noun_base import Noun

_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w:/.]*)=")
#: Fields whose value extends to the end of the line. The Reason of a job is one word, but that of a node is a sentence.
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
_REASON = re.compile(r"^(?P<words>.*?)(?: \[(?P<who>[^@\[\]]*)@[^\]]*\])?$")
_SPAN = re.compile(r"^(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)$")
_CONFIG = re.compile(r"^(\S+)\s+=\s?(.*)$")


class JobRecord(Noun, frozen=True, kw_only=True):
    """One job, or one task of a job array, as slurmctld prints it."""

    #: The job's own number (SLURM_JOB_ID). A task of an array has one too.
    job: int
    array: int | None = None
    index: int | None = None
    name: str = ""
    #: The job's state: RUNNING, COMPLETING, PENDING …, or the transient SIGNALING, RESIZING, REQUEUED.
    state: str = ""
    #: Slurm's reason for the state, one word: TimeLimit, Preempted …; empty for None.
    reason: str = ""
    #: Whether Slurm may requeue the job.
    requeue: bool = False
    restarts: int = 0
    #: Whether the job has a batch script. A job from salloc has none, and Slurm never requeues it.
    batch: bool = False
    user: str = ""
    partition: str = ""
    #: The job's nodes as a Slurm host list, such as n[1-3].
    nodes: str = ""
    batch_host: str = ""
    excluded: str = ""
    #: Names of nodes that the job must get (--nodelist).
    required: str = ""
    started_at: float | None = None
    #: Slurm's EndTime: the end of the time limit, or of the grace period after a preemption. For an ended job it is the
    #: time of its end.
    ends_at: float | None = None
    #: The job's time limit in seconds; None: no limit.
    limit_s: float | None = None
    #: When Slurm preempted the job, which starts the grace period.
    preempted_at: float | None = None
    #: When Slurm last resumed the job after a suspension; while the job is SUSPENDED, the time of the suspension.
    resumed_at: float | None = None
    comment: str = ""
    #: Every field of the record, as Slurm prints it.
    fields: Mapping[str, str] = {}


class NodeRecord(Noun, frozen=True, kw_only=True):
    """One node, as slurmctld prints it."""

    name: str
    address: str = ""
    #: The node's states: IDLE, ALLOCATED, DOWN, DRAIN …. Slurm's `*` (no answer from the node) becomes NOT_RESPONDING.
    states: frozenset[str] = frozenset()
    #: Why the node is down or drained, in the words of the person or program that changed its state.
    reason: str = ""
    reason_by: str = ""
    comment: str = ""
    fields: Mapping[str, str] = {}

    @property
    def down(self) -> bool:
        return bool(self.states & {"DOWN", "FAIL", "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN"})

    @property
    def silent(self) -> bool:
        """Whether the node's slurmd does not answer slurmctld."""
        return "NOT_RESPONDING" in self.states

    @property
    def drained(self) -> bool:
        """Whether the node gets no new jobs, because it is drained or will be when its jobs end."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})


class Config(Noun, frozen=True, kw_only=True):
    """The settings of slurm.conf that holdfast needs. Times are in seconds."""

    version: str = ""
    #: KillWait: the time between SIGTERM and SIGKILL when Slurm ends a job.
    kill_wait_s: float = 30.0
    #: SlurmdTimeout: a node that does not answer for this long counts as down.
    slurmd_timeout_s: float = 300.0
    preempt_mode: str = ""
    #: The PreemptType: partition_prio or qos. If empty, no job preempts another.
    preempt_type: str = ""
    proctrack: str = ""
    #: Whether AccountingStoreFlags stores comments, so that sacct shows them.
    job_comment: bool = False
    #: Whether a slurmdbd is configured.
    accounting: bool = False
    fields: Mapping[str, str] = {}

    @property
    def preempts(self) -> bool:
        """Whether jobs can preempt others on this cluster."""
        return bool(self.preempt_type) and self.preempt_mode not in ("", "OFF")

    @property
    def preempts_by_qos(self) -> bool:
        """Whether the QOS, instead of the partition, decides which jobs are preempted and how long they still run."""
        return self.preempt_type == "qos"


class Partition(Noun, frozen=True, kw_only=True):
    """One partition, as slurmctld prints it."""

    name: str
    #: GraceTime: how long a preempted job of the partition still runs, in seconds.
    grace_s: float = 0.0
    #: The preemption mode. OFF means that the partition's jobs cannot be preempted.
    preempt_mode: str = ""
    limit_s: float | None = None
    #: The partition's nodes as a Slurm host list, such as n[1-4].
    nodes: str = ""
    fields: Mapping[str, str] = {}


class Qos(Noun, frozen=True, kw_only=True):
    """One QOS (quality of service), as sacctmgr prints it."""

    name: str
    #: GraceTime: how long a preempted job of the QOS still runs, in seconds.
    grace_s: float = 0.0
    #: The preemption mode; `cluster`: that of the configuration.
    preempt_mode: str = ""


def jobs(text: str) -> tuple[JobRecord, ...]:
    """Parse the output of `scontrol show job`."""
    return tuple(_job(fields) for fields in _records(text, "JobId"))


def job(text: str, number: int) -> JobRecord | None:
    """Return the job with this number. For an array's number, `scontrol show job N` prints all jobs of the array."""
    return next((each for each in jobs(text) if each.job == number), None)


def nodes(text: str) -> tuple[NodeRecord, ...]:
    """Parse the output of `scontrol show node`."""
    return tuple(_node(fields) for fields in _records(text, "NodeName"))


def partition(text: str) -> Partition | None:
    """Parse the output of `scontrol show partition NAME`."""
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


def qos(text: str, name: str) -> Qos | None:
    """Parse the output of `sacctmgr -n -P show qos format=Name,GraceTime,PreemptMode`. Return the QOS `name`; None if
    the output lacks it.
    """
    for line in text.splitlines():
        found, grace, mode, *_ = *line.strip().split("|"), "", ""
        if found.lower() == name.lower():
            return Qos(name=name, grace_s=span_s(grace) or 0.0, preempt_mode=mode.upper() or "CLUSTER")
    return None


def config(text: str) -> Config:
    """Parse the output of `scontrol show config`."""
    fields = {found[1]: found[2].strip() for line in text.splitlines() if (found := _CONFIG.match(line.strip()))}
    own = Config()
    return Config(
        version=fields.get("SLURM_VERSION", ""),
        kill_wait_s=_number(fields.get("KillWait"), own.kill_wait_s),
        slurmd_timeout_s=_number(fields.get("SlurmdTimeout"), own.slurmd_timeout_s),
        preempt_mode=_text(fields, "PreemptMode"),
        preempt_type=_text(fields, "PreemptType").removeprefix("preempt/").removeprefix("none"),
        proctrack=_text(fields, "ProctrackType").removeprefix("proctrack/"),
        job_comment="job_comment" in fields.get("AccountingStoreFlags", ""),
        accounting=fields.get("AccountingStorageType", "").endswith("slurmdbd"),
        fields=fields,
    )


def span_s(text: str) -> float | None:
    """Parse `1-02:03:04`, `02:03:04`, `03:04` (minutes, seconds) or `4` (minutes) to seconds.

    Return None if there is no limit, or if the text is invalid.
    """
    found = _SPAN.match(text)
    if found is None:
        return None
    days, hours, minutes, rest = (int(part) if part else 0 for part in found.groups())
    if found[3] is None:
        return 60.0 * rest if found[1] is None else 86_400.0 * days + 3600.0 * rest
    return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes + rest


# ----------------------------------------------------------------- splitting Slurm's output into fields


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each record. A line that starts with `first=` begins a record."""
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
    """Return the number at the start of a text such as `30 sec`. Return `otherwise` if the text has no number."""
    found = re.match(r"\d+", text or "")
    return float(found[0]) if found else otherwise


def slurm_time(text: str | None) -> float | None:
    """Parse a time to seconds since the epoch. A time in Slurm's own format is local time."""
    if text is None or text in _NONE:
        return None
    if text.isdecimal():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
