"""Every metric with its name, type, labels and meaning. The reference page has the same table.

Labels have few values: names of jobs (see `job_totals.MOST_NAMES`), classes, blames. Only gauges that vanish with the
job have the job's id as label. Prometheus itself sets a label `job` for its targets. With `honor_labels: true` it keeps
holdfast's.
"""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class MetricKind(enum.StrEnum):
    """A metric's type, as Prometheus' text format writes it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Noun, frozen=True, kw_only=True):
    """One metric.

    `states`: if set, the metric has one gauge for each value of its last label: 1 for the present state, 0 for the
        others.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    states: bool = False
    #: Upper bounds of a histogram's buckets, in seconds, without +Inf.
    buckets: tuple[float, ...] = ()


_SHORT = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_LONG = (60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


def _metric(name: str, kind: MetricKind, labels: str, told: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(name=f"holdfast_{name}", kind=kind, labels=tuple(labels.split()), help=told, buckets=buckets)


def _states(name: str, labels: str, told: str) -> Metric:
    return Metric(name=f"holdfast_{name}", kind=_G, labels=tuple(labels.split()), help=told, states=True)


BUILD = _metric("build_info", _G, "version python", "The holdfast that wrote this; always 1.")
READ_AT = _metric("journal_read_timestamp_seconds", _G, "", "When the journal was read, in seconds since 1970.")
JOURNAL_UP = _metric("journal_up", _G, "", "1 where the journal could be read, else 0: totals then lack what it has.")

JOB_STATE = _states("job_state", "job job_id state", "1 for the state of a job that has not ended.")
JOB_START = _metric("job_start_timestamp_seconds", _G, "job job_id", "When a job that has not ended began.")
JOB_ATTEMPT = _metric("job_attempt", _G, "job job_id", "The number of its present attempt.")
BUDGET = _metric(
    "restart_budget_remaining",
    _G,
    "job job_id budget",
    "Restarts that are left: user, platform, or failures in a row.",
)
STEP = _metric("step", _G, "job job_id", "The lowest last step over the ranks that told one and lie on this machine.")
PROGRESS_AT = _metric("last_progress_timestamp_seconds", _G, "job job_id", "When a rank last told a step.")
WORKERS = _metric("workers", _G, "job job_id state", "Workers of the present attempt by their state.")

JOBS = _metric("jobs_ended_total", _C, "job outcome class blame", "Jobs that have ended.")
JOB_SECONDS = _metric("job_duration_seconds", _H, "outcome", "From a job's start to its end.", _LONG)
ATTEMPTS = _metric("attempts_ended_total", _C, "job class blame decision", "Attempts that have ended.")
PARTS = _metric("attempt_part_seconds_total", _C, "job part", "Time of attempts by their parts.")
RESTARTS = _metric(
    "restarts_total",
    _C,
    "job class budget mode",
    "Attempts that another one followed; warm: all its workers were forked with their imports done.",
)
RECOVERY = _metric(
    "recovery_duration_seconds",
    _H,
    "mode blame",
    "From the first sign of trouble to the first output after it.",
    _SHORT,
)
DETECTION = _metric(
    "failure_detection_duration_seconds", _H, "blame", "From the first sign of trouble to the stop.", _SHORT
)
DRAIN = _metric(
    "drain_duration_seconds",
    _H,
    "mode",
    "From the stop to the end of the last process; listened: a worker was given time to save.",
    _SHORT,
)
GOODPUT = _metric("goodput_seconds_total", _C, "job", "Time in which programs ran and their work was kept.")
BADPUT = _metric("badput_seconds_total", _C, "job cause", "Time that was not productive, by what it went to.")
LOST_STEPS = _metric(
    "lost_steps_total",
    _C,
    "job",
    "Steps told by holdfast.progress and done once more, or not saved when the job failed.",
)
EXITS = _metric(
    "worker_exits_total",
    _C,
    "job kind class",
    "Workers that ended too early: of their own cause, for a peer's death, stopped by holdfast, or silent.",
)
NODE_FAILURES = _metric("node_failures_total", _C, "node class", "Failed attempts by the node of the culprit.")
HANGS = _metric("hangs_total", _C, "job", "Attempts that were stopped since nothing moved.")
MEMORY_KILLS = _metric(
    "memory_kills_total", _C, "scope", "Attempts in which the kernel killed for memory, by whose memory ran out."
)
EXPLANATIONS = _metric(
    "explanations_total", _C, "class confidence", "Failed attempts by how sure the cause is: high, low or none."
)
CHECK_RUNS = _metric("check_runs_total", _C, "check result", "Pre-checks before attempts: passed, warning or failed.")

UNSHOWN = _metric(
    "output_dropped_bytes_total",
    _C,
    "stream",
    "Output of workers that a console left out (stdout, stderr: its reader had stopped), or that no log took (log).",
)
UNSAVED = _metric(
    "journal_unsaved_bytes", _G, "", "What the run that wrote this file keeps in memory, since its journal took none."
)
FAULTS = _metric("device_faults_total", _C, "node device code remedy", "Faults that began, by what they ask for.")
RESETS = _metric("device_resets_total", _C, "node device result", "Tries of a reset that have ended.")

CHECK_UP = _metric("check_up", _G, "node check", "1 where the last run of a pre-check passed, else 0.")
CHECK_SECONDS = _metric("check_duration_seconds", _G, "node check", "How long that run took.")
CHECK_AT = _metric("check_last_run_timestamp_seconds", _G, "node check", "When the attempt began that it ran for.")

STANDING = _states("device_standing", "node device standing", "1 for where a device or node stands.")
STANDING_SINCE = _metric("device_standing_since_timestamp_seconds", _G, "node device", "Since when it stands there.")

#: All metrics, in the order in which they are exported.
METRICS = (
    BUILD, READ_AT, JOURNAL_UP,
    JOB_STATE, JOB_START, JOB_ATTEMPT, BUDGET, STEP, PROGRESS_AT, WORKERS,
    JOBS, JOB_SECONDS, ATTEMPTS, PARTS, RESTARTS, RECOVERY, DETECTION, DRAIN, GOODPUT, BADPUT, LOST_STEPS, EXITS,
    NODE_FAILURES, HANGS, MEMORY_KILLS, EXPLANATIONS, CHECK_RUNS, UNSHOWN, UNSAVED,
    CHECK_UP, CHECK_SECONDS, CHECK_AT, STANDING, STANDING_SINCE, FAULTS, RESETS,
)  # fmt: skip
