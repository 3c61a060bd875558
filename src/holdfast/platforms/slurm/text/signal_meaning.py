"""Determine the meaning of a signal from Slurm, from the job's Slurm record at the time of the signal.

Slurm does not tell why it sends a signal. Nearly always `scontrol show job` shows the reason at that moment:

| the record | means |
|---|---|
| RUNNING, PreemptTime set | a preemption in its grace period, which ends at EndTime, or GraceTime after PreemptTime |
| COMPLETING, Reason TimeLimit | the time limit |
| COMPLETING, PreemptTime set | a preemption that ends the job |
| COMPLETING or PENDING, Restarts is higher | Slurm requeues it: preemption, `scontrol requeue`, a lost node |
| COMPLETING, none of these | `scancel` |
| RUNNING, none of these | `scancel --signal` |

A preemption without a grace period and `scontrol requeue` leave the same record. Other facts tell them apart, in this
order: an earlier record with a grace period, accounting (`sacct -D`), the line that slurmstepd writes to the batch
script's stderr before it sends a signal, and the partition. A preemptable job is far more often preempted than requeued
by hand.
"""

from __future__ import annotations

import enum
import re
from signal import Signals

from holdfast.model.human_format import clock
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.platforms.slurm.text.scontrol_records import Config, JobRecord, slurm_time

#: Fraction of the remaining time that is reserved for holdfast's report and commands.
REPORT_FRACTION = 0.3
MOST_MARGIN_S = 5.0
#: Possible delay of Slurm's signals, in seconds. Slurm checks time limits every 30 s, and sends the signal of
#: `--signal` up to a minute early.
LATE_S = 60.0

_CANCELLED = re.compile(
    r"^slurmstepd\S*: error: \*\*\* JOB (?P<job>\d+) ON \S+ CANCELLED AT (?P<at>\S+) DUE TO (?P<why>[A-Z ]+) \*\*\*",
    re.MULTILINE,
)
#: States of a job that Slurm ends or has ended.
ENDING = frozenset({"COMPLETING", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "DEADLINE"})
_AGAIN = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING"})
_OVER = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "REVOKED"})


class Meaning(enum.Enum):
    """The reason for a signal from Slurm."""

    CANCELLED = enum.auto()
    #: A user has typed `scancel --signal`, or a step has ended. The job goes on.
    SIGNALLED = enum.auto()
    TIME_LIMIT = enum.auto()
    #: The signal that the user requested by `--signal`, which Slurm sends some time before the time limit.
    TIME_WARNING = enum.auto()
    #: A preemption in its grace period. Slurm takes the nodes at the period's end.
    PREEMPTING = enum.auto()
    PREEMPTED = enum.auto()
    #: A requeue by `scontrol requeue`.
    REQUEUED = enum.auto()
    NODE_FAILED = enum.auto()
    #: The job has ended because its batch script has. The script ran holdfast in the background.
    OVER = enum.auto()
    #: Slurm does not answer, so the reason is unknown.
    UNKNOWN = enum.auto()


class WarningSignal(Noun, frozen=True, kw_only=True):
    """The user's option `--signal=[B:]USR1@60`, which requests a signal some seconds before the time limit."""

    number: int
    before_s: float


class SignalFacts(Noun, frozen=True, kw_only=True):
    """The facts from which a signal is explained. Times are in seconds since the epoch."""

    #: The job's id as squeue shows it: `42`, `42_3`.
    job: str
    #: The signal's number.
    number: int
    #: Time of the signal.
    at: float
    #: The job's Slurm record after the signal; None: Slurm did not answer.
    now: JobRecord | None
    #: The job's last record from before the signal.
    before: JobRecord | None = None
    #: How often the job had been restarted before this run (SLURM_RESTART_COUNT).
    restarts: int = 0
    config: Config = Config()
    warned: WarningSignal | None = None
    #: State of this run in `sacct -D`; empty if accounting was not queried or did not answer.
    accounted: str = ""
    #: The reason in slurmstepd's line about the cancelled script: `PREEMPTION`, `JOB REQUEUE`; empty if unknown.
    line: str = ""
    #: Grace period that the job's partition gives before a preemption, in seconds; 0 if none or unknown.
    grace_s: float = 0.0
    #: Whether other jobs can preempt this job, by its partition or QOS.
    preemptable: bool = False
    #: Why the job's Slurm record could not be read.
    trouble: str = ""
    utc_offset_s: float = 0.0


class SignalMeaning(Noun, frozen=True, kw_only=True):
    """The reason for a signal, and what Slurm will do next."""

    meaning: Meaning
    phrase: Phrase
    reason: str
    #: When Slurm kills the remaining processes, in seconds since the epoch. None if Slurm does not kill them after this
    #: signal.
    ends_at: float | None = None
    #: Whether Slurm has already requeued the job.
    again: bool = False
    #: Whether Slurm would requeue the job on request.
    may_requeue: bool = False

    @property
    def hard(self) -> bool:
        """Whether Slurm has begun to end the job, so that this run must end."""
        return self.meaning not in (Meaning.SIGNALLED, Meaning.TIME_WARNING, Meaning.PREEMPTING, Meaning.UNKNOWN)


def signal_meaning(asked: SignalFacts) -> SignalMeaning:
    """Determine the meaning of a signal from the facts."""
    record, before = asked.now, asked.before
    if record is None:
        return _unanswered(asked)
    kill_at = asked.at + asked.config.kill_wait_s
    begun = before.restarts if before is not None else asked.restarts
    again = record.restarts > begun and record.state in ENDING | _AGAIN
    requeue = record.requeue and record.batch
    preempted_before = before is not None and before.preempted_at is not None
    if record.state == "NODE_FAIL" or (asked.accounted.startswith("NODE_FAIL") and (again or record.state in _AGAIN)):
        reason = f"a node of job {asked.job} failed, and Slurm {_ends(again)}"
        return _found(Meaning.NODE_FAILED, Phrase.NODE_FAILED, reason, kill_at, again=again)
    if record.reason == "TimeLimit" or record.state in ("TIMEOUT", "DEADLINE"):
        return _found(Meaning.TIME_LIMIT, Phrase.TIME_LIMIT_REACHED, limit_words(asked), kill_at)
    if again or record.state in _AGAIN:
        return _started_again(asked, kill_at, preempted=preempted_before)
    if record.state == "PREEMPTED" or (
        record.state in ENDING and (record.preempted_at is not None or preempted_before)
    ):
        reason = f"Slurm has preempted job {asked.job}: another job gets the nodes, and this one is not started again"
        return _found(Meaning.PREEMPTED, Phrase.PREEMPTED, reason, kill_at)
    if record.state in ENDING:
        return _found(Meaning.CANCELLED, Phrase.STOPPED_BY_OPERATOR, f"scancel of job {asked.job}", kill_at)
    if record.state in _OVER:
        reason = f"Slurm has ended job {asked.job} ({record.state}): the script that started it has ended"
        return _found(Meaning.OVER, Phrase.STOPPED_BY_OPERATOR, reason, kill_at)
    if record.preempted_at is not None:
        return SignalMeaning(
            meaning=Meaning.PREEMPTING,
            phrase=Phrase.PREEMPTED,
            reason=preempting_words(asked, record),
            ends_at=grace_ends_at(asked, record),
            may_requeue=requeue,
        )
    if is_warning(asked.number, asked.at, record, asked.warned):
        return _warning(asked, record)
    name = Signals(asked.number).name
    how = f"scancel --signal={name.removeprefix('SIG')} of job {asked.job}, a scancel of its step, or a kill by hand"
    return SignalMeaning(meaning=Meaning.SIGNALLED, phrase=Phrase.STOPPED_BY_OPERATOR, reason=how)


def is_warning(number: int, at: float, record: JobRecord, warned: WarningSignal | None) -> bool:
    """Whether a signal is the one that the user requested by `--signal`, as a warning before the time limit.

    `at`: time of the signal, in seconds since the epoch. `warned`: the option `--signal`.
    """
    if warned is None or warned.number != number or record.ends_at is None:
        return False
    return record.ends_at - at <= warned.before_s + LATE_S


def limit_words(asked: SignalFacts, *, ends_at: float | None = None) -> str:
    """Return a clause such as `Slurm's time limit of 1:00:00 (job 42) is over at 14:03:10 UTC`.

    `ends_at`: when the limit ends, in seconds since the epoch; None leaves the time out.
    """
    record = asked.now or asked.before
    limit = f" of {hours(record.limit_s)}" if record is not None and record.limit_s is not None else ""
    at = f" at {clock(ends_at, lambda _: asked.utc_offset_s)}" if ends_at is not None else ""
    return f"Slurm's time limit{limit} (job {asked.job}) is over{at}"


def grace_ends_at(asked: SignalFacts, record: JobRecord) -> float | None:
    """Return when Slurm takes the nodes of a job that it preempts, in seconds since the epoch. Return None if unknown.

    Slurm sets EndTime to this time, but not for a job without a time limit.
    """
    if record.ends_at is None and record.preempted_at is not None and asked.grace_s > 0:
        return record.preempted_at + asked.grace_s
    return record.ends_at


def preempting_words(asked: SignalFacts, record: JobRecord) -> str:
    ends_at = grace_ends_at(asked, record)
    at = f" at {clock(ends_at, lambda _: asked.utc_offset_s)}" if ends_at is not None else " soon"
    return f"Slurm preempts job {asked.job}: another job gets the nodes{at}"


def hours(seconds: float) -> str:
    """Format a duration as Slurm does: `1:00:00`, `2-00:30:00`."""
    minutes, rest = divmod(int(seconds), 60)
    days, minutes = divmod(minutes, 1440)
    return f"{f'{days}-' if days else ''}{minutes // 60}:{minutes % 60:02}:{rest:02}"


def left_s(ends_at: float, now: float) -> float:
    """Return the seconds until Slurm kills the job, less those reserved for holdfast's report."""
    whole = max(0.0, ends_at - now)
    return whole - min(REPORT_FRACTION * whole, MOST_MARGIN_S)


def notice_at(record: JobRecord, grace_s: float) -> float | None:
    """Return when to warn the workers of the time limit, in seconds since the epoch. Return None without a limit.

    The warning comes `max(grace_s, 30 s)` before the limit, but not in the first half of the job's time.
    """
    if record.ends_at is None or record.started_at is None or record.limit_s is None:
        return None
    return max(record.ends_at - max(grace_s, 30.0), (record.started_at + record.ends_at) / 2)


def cancelled_for(printed: str, job: int, since: float) -> str:
    """Return the reason in slurmstepd's last line about the batch script's cancellation. Return "" without such a line.

    `printed`: the end of the script's stderr. `since`: seconds since the epoch; older lines come from earlier runs.

            slurmstepd-n1: error: *** JOB 42 ON n1 CANCELLED AT 2026-11-23T01:16:29 DUE TO PREEMPTION ***
    """
    found = [each for each in _CANCELLED.finditer(printed) if int(each["job"]) == job]
    if not found:
        return ""
    at = slurm_time(found[-1]["at"])
    return found[-1]["why"] if at is not None and at >= int(since) else ""


def warned_by(script: str) -> WarningSignal | None:
    """Return the last `--signal` in a batch script's `#SBATCH` lines, or in a command line (`SubmitLine`)."""
    words = script.split() if not script.startswith("#!") else _of_sbatch(script)
    found: WarningSignal | None = None
    for at, word in enumerate(words):
        name, given, value = word.partition("=")
        if name == "--signal":
            value = value if given else next(iter(words[at + 1 :]), "")
            found = _warned(value) or found
    return found


# -------------------------------------------------------------------- parsing sbatch's options, explaining signals


def _of_sbatch(script: str) -> list[str]:
    """Return the words of the `#SBATCH` lines. sbatch reads no such lines after the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words += line.removeprefix("#SBATCH").partition(" #")[0].split()
        elif line.strip() and not line.startswith("#"):
            break
    return words


def _warned(text: str) -> WarningSignal | None:
    """Parse `[{R|B}:]<signal>[@<seconds>]`. The default time is 60 s."""
    name, _, seconds = text.strip("\"'").rpartition(":")[2].partition("@")
    name = name.upper().removeprefix("SIG")
    number = int(name) if name.isdecimal() else getattr(Signals, f"SIG{name}", 0)
    if not number or (seconds and not seconds.isdecimal()):
        return None
    return WarningSignal(number=int(number), before_s=float(seconds or 60))


def _found(meaning: Meaning, phrase: Phrase, reason: str, kill_at: float, *, again: bool = False) -> SignalMeaning:
    return SignalMeaning(meaning=meaning, phrase=phrase, reason=reason, ends_at=kill_at, again=again)


def _started_again(asked: SignalFacts, kill_at: float, *, preempted: bool) -> SignalMeaning:
    """Explain the signal for a job that Slurm has requeued."""
    told = asked.accounted.partition(" ")[0]
    back = f"Slurm has job {asked.job} in its queue again"
    if preempted or told == "PREEMPTED" or (not told and asked.line == "PREEMPTION"):
        reason = f"Slurm has preempted job {asked.job}: another job gets the nodes, and this one is started again later"
        return _found(Meaning.PREEMPTED, Phrase.PREEMPTED, reason, kill_at, again=True)
    if told == "REQUEUED" or asked.line == "JOB REQUEUE" or not asked.preemptable:
        return _found(
            Meaning.REQUEUED, Phrase.STOPPED_BY_OPERATOR, f"scontrol requeue of job {asked.job}", kill_at, again=True
        )
    reason = f"{back}: preempted, as jobs of its partition can be, or by `scontrol requeue` (no accounting tells which)"
    return _found(Meaning.PREEMPTED, Phrase.PREEMPTED, reason, kill_at, again=True)


def _ends(again: bool) -> str:
    return "starts it again" if again else "ends it"


def _warning(asked: SignalFacts, record: JobRecord) -> SignalMeaning:
    return SignalMeaning(
        meaning=Meaning.TIME_WARNING,
        phrase=Phrase.TIME_LIMIT_REACHED,
        reason=limit_words(asked, ends_at=record.ends_at),
        ends_at=record.ends_at,
        may_requeue=record.requeue and record.batch,
    )


def _unanswered(asked: SignalFacts) -> SignalMeaning:
    """Explain a signal from the last record before the signal, because Slurm did not answer."""
    before, name = asked.before, Signals(asked.number).name
    cannot = f" (Slurm did not say more: {asked.trouble})" if asked.trouble else ""
    if before is not None and is_warning(asked.number, asked.at, before, asked.warned):
        return _warning(asked, before)
    if before is not None and asked.number == Signals.SIGTERM:
        if before.preempted_at is not None:
            reason = f"{preempting_words(asked, before)}{cannot}"
            return SignalMeaning(
                meaning=Meaning.PREEMPTING,
                phrase=Phrase.PREEMPTED,
                reason=reason,
                ends_at=grace_ends_at(asked, before),
            )
        if before.ends_at is not None and before.limit_s is not None and asked.at >= before.ends_at:
            kill_at = asked.at + asked.config.kill_wait_s
            reason = f"{limit_words(asked)}{cannot}"
            return _found(Meaning.TIME_LIMIT, Phrase.TIME_LIMIT_REACHED, reason, kill_at)
    why_not = f", and why is not known: {asked.trouble}" if asked.trouble else ""
    return SignalMeaning(
        meaning=Meaning.UNKNOWN, phrase=Phrase.STOPPED_BY_OPERATOR, reason=f"job {asked.job} got {name}{why_not}"
    )
