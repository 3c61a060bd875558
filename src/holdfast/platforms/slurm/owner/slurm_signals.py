"""Find out from Slurm why a signal came and when the job's time ends, and send the owner `StopRequested`.

The job's record is read when the owner starts, at each signal, every `RECORD_INTERVAL_S`, and when the warning before
the time limit is due, because a time limit can be changed. One job sends slurmctld six queries an hour.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.human_format import duration
from holdfast.platforms.slurm.owner.cluster_facts import PATIENCE_S, SlurmFacts
from holdfast.platforms.slurm.owner.signal_step import SignalStep
from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.job_restarts import requeue_refusal
from holdfast.platforms.slurm.text.scontrol_records import Config, JobRecord, job
from holdfast.platforms.slurm.text.signal_meaning import (
    ENDING,
    Meaning,
    SignalFacts,
    SignalMeaning,
    WarningSignal,
    cancelled_for,
    is_warning,
    left_s,
    notice_at,
    signal_meaning,
)
from holdfast.record.local_time import local
from holdfast.safe_files import end_of_file

if TYPE_CHECKING:
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import DueCall, News

#: Time between two reads of the job's Slurm record, in seconds.
RECORD_INTERVAL_S = 600.0
#: Time limit for each query about a signal, in seconds. A short KillWait reduces the limit further.
ANSWER_S = 2.0
#: Fraction of the remaining time that workers get to save. Then they get SIGTERM, and SIGKILL at the end of the time.
SAVE_FRACTION = 0.75
#: Maximum age of slurmstepd's log line about the signal, in seconds. An older line comes from an earlier run, because
#: Slurm restarts no job within 5 s.
LINE_AGE_S = 4.0
#: How long a signal that would stop the job may wait until `--signal` is known, in seconds.
OPTIONS_S = 20.0
#: How long to wait for slurmstepd's line about the script, in seconds; also the pause between two reads.
LINE_WAIT_S = 4.0
LINE_PAUSE_S = 0.2
_END_BYTES = 1 << 16
#: Slurm's process tracking types (ProctrackType) under which Slurm itself signals the workers.
_SIGNALLING_TRACKERS = {"linuxproc", "pgid"}


def time_left_words(reason: str, save_s: float, left_s: float) -> str:
    """Return the message about a stop that Slurm announces.

    `save_s`: seconds for the workers to save. `left_s`: seconds until Slurm ends the job.
    """
    return f"{reason}: the workers have {duration(save_s)} to save and leave; Slurm ends the job in {duration(left_s)}"


class SlurmSignals:
    """Explains the signals that one job receives.

    `grace_s`: the job's own grace period in seconds. It applies if Slurm does not announce when it kills the job.
    `leaving()`: returns whether holdfast itself has requested the requeue.
    `at_limit`: whether the job should be requeued at its time limit.
    `asking`: runs Slurm commands. `ids`: ids of the job. `say`: prints a message of the owner.
    """

    def __init__(
        self,
        asking: SlurmCommands,
        ids: SlurmJobIds,
        grace_s: float,
        say: Callable[[str], None],
        leaving: Callable[[], bool],
        *,
        at_limit: bool = False,
    ) -> None:
        self._asking = asking
        self._reactor = asking.reactor
        self._ids = ids
        self._grace_s = grace_s
        self._say = say
        self._leaving = leaving
        self._at_limit = at_limit
        #: Why Slurm will refuse to requeue the job at its time limit, if the user has been warned of this; else "".
        self._refused = ""
        self._known = SlurmFacts(asking, ids, self._learned, say)
        #: The job's record in Slurm when it was last read.
        self._record: JobRecord | None = None
        self._open: _OpenSignal | None = None
        #: Signals for the workers that came before `--signal` was known, with their last times. One may be its warning.
        self._early: dict[int, float] = {}
        #: The meaning of the last signal that was reported to the owner.
        self._said: SignalMeaning | None = None
        self._look: DueCall | None = None
        self._listener: SignalStep | None = None
        if ids.ends_at is not None and ids.started_at is not None:
            # Newer versions of Slurm set variables with the times, so no query is needed.
            self._record = JobRecord(
                job=ids.job,
                state="RUNNING",
                restarts=ids.restarts,
                started_at=ids.started_at,
                ends_at=ids.ends_at,
                limit_s=ids.ends_at - ids.started_at,
            )

    @property
    def asking(self) -> bool:
        """Whether Slurm has not explained a received signal yet."""
        return self._open is not None

    def begin(self, now: float) -> News:
        """Start to read the records that will explain a signal."""
        self._known.begin()
        self._look_again(now)
        return None

    def close(self) -> None:
        if self._look is not None:
            self._look.close()
        self._known.close()
        if self._listener is not None:
            self._listener.close()

    # ------------------------------------------------------------------------------------------ handling signals

    def signalled(self, number: int, node: str, now: float) -> News:
        """Handle a signal, which comes from Slurm or from a person."""
        if number != signal.SIGTERM and not self._warns(number, now):
            if self._record is None or not self._known.options_known:
                self._early[number] = now
            return None  # the signal is meant for the workers, which receive it too
        if self._open is not None and not self._open.waiting:
            # Slurm has not answered the query for the first signal yet, and the answer will explain this signal too.
            self._open.came |= number == self._open.number
            return None
        self._begin_to_ask(_OpenSignal(number, now))
        return None

    def _warns(self, number: int, at: float) -> bool:
        return self._record is not None and is_warning(number, at, self._record, self._known.warned)

    def _learned(self, now: float) -> News:
        self._listen()
        return self._judge_again(now)

    def _judge_again(self, now: float) -> News:
        """Judge signals that came before Slurm's answers to the first queries."""
        if self._open is not None:
            return self._ask_more(now) if self._open.waiting else None
        warning = next((each for each in self._early.items() if self._warns(*each)), None)
        if warning is not None:
            self._begin_to_ask(_OpenSignal(*warning))
        if warning is not None or (self._record is not None and self._known.options_known):
            self._early.clear()
        return None

    def felled(self, since: float) -> None:
        """Find out whether Slurm has sent the SIGTERM of which workers have died.

        Slurm may have sent SIGTERM to all processes of the job, and holdfast may receive it later.
        """
        if self._open is None:
            self._begin_to_ask(_OpenSignal(int(signal.SIGTERM), since, came=False))

    def _begin_to_ask(self, opened: _OpenSignal) -> None:
        self._open = opened
        self._asking.ask(self._show(), self._answered, limit_s=min(ANSWER_S, self._known.config.kill_wait_s / 3))

    def _answered(self, answer: CommandOutput, now: float) -> News:
        assert self._open is not None, "it was asked for"
        record = job(answer.out, self._ids.job) if answer.ok else None
        self._open.record, self._open.trouble = record, answer.said
        return self._ask_more(now)

    def _ask_more(self, now: float) -> News:
        """Run one more Slurm query about the open signal.

        The job's record is the same after a preemption and after `scontrol requeue`, so other data must distinguish
        them.
        """
        opened = self._open
        assert opened is not None, "it was asked for"
        found = self._judge(opened)
        if self._waits_for_options(opened, found, now):
            return None
        if not found.again or opened.record is None or self._was_preempted():
            return self._close(found, now)
        opened.line = opened.line or self._line(opened)
        known = self._known
        limit_s = min(ANSWER_S, known.config.kill_wait_s / 6)
        if not known.configured and opened.first("config"):
            known.ask_config(self._ask_more, limit_s)
        elif known.config.accounting and opened.first("accounting"):
            words = ("sacct", "-D", "-X", "-n", "-P", "-o", "State", "-j", str(self._ids.shown))
            self._asking.ask(words, self._accounted, limit_s=limit_s)
        elif known.partition is None and opened.first("partition"):
            known.ask_partition(opened.record.partition, self._ask_more, limit_s)
        elif not self._waits_for_line(opened, now):
            return self._close(self._judge(opened), now)
        return None

    def _waits_for_line(self, opened: _OpenSignal, now: float) -> bool:
        """Return whether to wait for slurmstepd's line, because only that line can distinguish a preemption from a
        requeue.

        On a busy node slurmstepd writes the line after the signal.
        """
        if opened.line or opened.accounted or not self._known.preemptable or not Path(opened.script_log).is_file():
            return False
        if now >= opened.at + min(LINE_WAIT_S, self._known.config.kill_wait_s / 3):
            return False
        self._reactor.at(now + LINE_PAUSE_S, lambda then: self._ask_more(then) if self._open is opened else None)
        return True

    def _waits_for_options(self, opened: _OpenSignal, found: SignalMeaning, now: float) -> bool:
        """Return whether the signal may be the warning of a `--signal` option that has not been read yet."""
        timed = opened.record is not None and opened.record.ends_at is not None
        may = timed and opened.came and found.meaning is Meaning.SIGNALLED and not self._known.options_known
        until = opened.at + OPTIONS_S
        if may and now < until and not opened.waiting:
            self._reactor.at(until, self._judge_again)
        opened.waiting = may and now < until
        return opened.waiting

    def _accounted(self, answer: CommandOutput, now: float) -> News:
        """Find the state of this run in the output of sacct.

        `sacct -D` prints one line per run. The end of this run may appear late.
        """
        assert self._open is not None, "it was asked for"
        states = [line.strip() for line in answer.out.splitlines() if line.strip()] if answer.ok else []
        ended = [state for state in states if not state.startswith(("PENDING", "RUNNING"))]
        self._open.accounted = ended[-1] if len(ended) > self._ids.restarts else ""
        return self._ask_more(now)

    def _line(self, opened: _OpenSignal) -> str:
        """Read slurmstepd's line at the end of the batch script's output, which is a file on the script's node."""
        path = opened.script_log
        try:
            end = end_of_file(path, _END_BYTES) if path else b""
        except OSError:
            return ""
        return cancelled_for(end.decode(errors="replace"), self._ids.job, opened.at - LINE_AGE_S)

    def _judge(self, opened: _OpenSignal) -> SignalMeaning:
        return signal_meaning(
            SignalFacts(
                job=self._ids.shown,
                number=opened.number,
                at=opened.at,
                now=opened.record,
                before=self._record,
                restarts=self._ids.restarts,
                config=self._known.config,
                warned=self._known.warned,
                accounted=opened.accounted,
                line=opened.line,
                grace_s=self._known.grace_s,
                preemptable=self._known.preemptable,
                trouble=opened.trouble,
                utc_offset_s=local(opened.at),
            )
        )

    @property
    def config(self) -> Config:
        """Slurm's configuration, or default values if it has not been read yet."""
        return self._known.config

    @property
    def ends_at(self) -> float | None:
        """When Slurm kills this run of the job, in seconds since the epoch.

        None: Slurm has not begun to end the run.
        """
        return self._said.ends_at if self._said is not None else None

    def _was_preempted(self) -> bool:
        return self._record is not None and self._record.preempted_at is not None

    def _close(self, found: SignalMeaning, now: float) -> News:
        """Report the meaning of the open signal, unless the signal was only meant for the workers."""
        opened, self._open = self._open, None
        assert opened is not None, "it was asked for"
        if opened.record is not None and not found.hard:
            self._record = opened.record
        if self._early:
            self._reactor.at(now, self._judge_again)
        if not opened.came and not found.hard and found.meaning is not Meaning.PREEMPTING:
            return None  # workers died of a SIGTERM that did not come from Slurm
        if opened.number == signal.SIGTERM:
            return self._tell(
                found, opened.number, opened.at, now, everywhere=self._known.config.proctrack in _SIGNALLING_TRACKERS
            )
        if found.meaning in (Meaning.SIGNALLED, Meaning.UNKNOWN):
            return None  # the time limit has been changed, so the signal is meant for the workers
        return self._tell(found, None, opened.at, now, everywhere=False)

    # ------------------------------------------------------------------------------------------ reports to the owner

    def _tell(self, found: SignalMeaning, number: int | None, at: float, now: float, *, everywhere: bool) -> News:
        """Return `StopRequested` with the remaining time, unless the owner already knows the meaning."""
        if not self._is_news(found):
            return None
        self._said = found
        if found.again and self._leaving():
            return None  # holdfast itself requested the requeue, so there is nothing to report
        left = None if found.ends_at is None else left_s(found.ends_at, now)
        if found.meaning is Meaning.UNKNOWN:
            # The job may be ending. If so, Slurm kills it after KillWait.
            left = left_s(now + self._known.config.kill_wait_s, now)
        save_s = (
            SAVE_FRACTION * left
            if left is not None
            else min(self._grace_s, SAVE_FRACTION * self._known.config.kill_wait_s)
        )
        refused = f"; not queued again: {self._refused}" if found.meaning is Meaning.TIME_WARNING else ""
        request = StopRequest(
            reason=f"{found.reason}{refused if self._refused else ''}",
            source=StopSource.PLATFORM,
            phrase=found.phrase,
            at=at,
            signal=number,
            everywhere=everywhere and number is not None,
            save_s=save_s,
            within_s=left,
            grace_s=self._grace_s if left is None else min(self._grace_s, left),
            requeue=found.again or found.may_requeue,
        )
        if left is not None:
            self._say(time_left_words(found.reason, save_s, left))
        return [ev.StopRequested(request=request)]

    def _is_news(self, found: SignalMeaning) -> bool:
        """Return whether the owner does not know this meaning or its end time yet. Slurm may send a step several
        SIGTERMs in a row.
        """
        said = self._said
        if said is None:
            return True
        if said.hard:
            return False
        sooner = found.ends_at is not None and (said.ends_at is None or found.ends_at < said.ends_at - 1.0)
        return found.meaning is not said.meaning or sooner

    # --------------------------------------------------------------------------- watching the job's time limit

    def _look_again(self, now: float) -> News:
        """Read the job's Slurm record again, because its time limit may have been changed."""
        self._look = None
        self._asking.ask(self._show(), self._seen, patience_s=PATIENCE_S)
        return None

    def _seen(self, answer: CommandOutput, now: float) -> News:
        """Handle the job's new record: announce the time limit if it is near, and schedule the next read."""
        record = job(answer.out, self._ids.job) if answer.ok else None
        if record is not None and record.state in ("RUNNING", "SUSPENDED", "RESIZING"):
            self._known.seen(record)
            self._record = record
            self._warn_of_the_limit(record)
            if self._early:
                self._reactor.at(now, self._judge_again)
            if record.preempted_at is not None and self._open is None:
                return self._in_its_grace(record, now)
        if record is not None and record.state in ENDING and self._open is None and self._said is None:
            # Slurm's signal came before this process could receive it.
            self.felled(now)
            return None
        due = notice_at(self._record, self._grace_s) if self._record is not None else None
        if due is not None and self._record is not None and now >= due:
            return self._time_is_over(self._record, now)
        self._look = self._reactor.at(min(now + RECORD_INTERVAL_S, due or now + RECORD_INTERVAL_S), self._look_again)
        return None

    def _warn_of_the_limit(self, record: JobRecord) -> None:
        """Warn the user if the job should be requeued at its time limit and Slurm would refuse that."""
        refused, self._refused = self._refused, requeue_refusal(record) if self._at_limit and record.limit_s else ""
        if self._refused and self._refused != refused:
            hint = f"\n  try: scontrol update jobid={self._ids.shown} requeue=1" if record.batch else ""
            self._say(
                "warning: --requeue-at-limit: the job ends at its time limit, and is not started again: "
                f"{self._refused}{hint}"
            )

    def _looked(self, answer: CommandOutput, now: float) -> News:
        record = job(answer.out, self._ids.job) if answer.ok else None
        if record is None or record.state != "RUNNING" or record.preempted_at is None or self._open is not None:
            return None
        self._record = record
        return self._in_its_grace(record, now)

    def _in_its_grace(self, record: JobRecord, now: float) -> News:
        """Handle a preemption that the job's Slurm record shows although holdfast has received no signal."""
        asked = SignalFacts(
            job=self._ids.shown,
            number=int(signal.SIGTERM),
            at=now,
            now=record,
            before=record,
            config=self._known.config,
            grace_s=self._known.grace_s,
            utc_offset_s=local(now),
        )
        return self._tell(signal_meaning(asked), None, now, now, everywhere=False)

    def _time_is_over(self, record: JobRecord, now: float) -> News:
        warning = WarningSignal(number=int(signal.SIGTERM), before_s=float("inf"))
        asked = SignalFacts(
            job=self._ids.shown,
            number=int(signal.SIGTERM),
            at=now,
            now=replace(record, state="RUNNING", preempted_at=None, reason="", restarts=0),
            config=self._known.config,
            warned=warning,
            utc_offset_s=local(now),
        )
        return self._tell(signal_meaning(asked), None, now, now, everywhere=False)

    # ------------------------------------------------------------------------------- the step that detects preemption

    def _listen(self) -> None:
        """Create the step that detects preemption, if the job has a grace period and this process runs outside of a
        step.
        """
        if self._known.grace_s and not self._ids.in_step and self._listener is None:
            self._listener = SignalStep(self._asking, self._ids, self._listens, self._heard_by_step, self._say)

    def _listens(self, now: float) -> News:
        """Read the job's Slurm record, because the grace period may have begun before the step started."""
        self._asking.ask(self._show(), self._looked, patience_s=PATIENCE_S)
        return None

    def _heard_by_step(self, now: float) -> News:
        """Handle the end of the step: Slurm ends steps first in a preemption."""
        return self.signalled(int(signal.SIGTERM), self._ids.node, now)

    def _show(self) -> tuple[str, ...]:
        return ("scontrol", "show", "job", self._ids.shown)


class _OpenSignal:
    """A signal that Slurm has not explained yet."""

    def __init__(self, number: int, at: float, *, came: bool = True) -> None:
        """`number`: the signal. `at`: its time, in seconds since the epoch. `came`: whether holdfast received it."""
        self.number = number
        self.at = at
        #: Whether holdfast itself received the signal. If not, the signal killed workers and may still reach holdfast.
        self.came = came
        self.record: JobRecord | None = None
        self.trouble = ""
        self.accounted = ""
        self.line = ""
        #: True if Slurm has answered, and the signal waits only until `--signal` is known.
        self.waiting = False
        self._asked: set[str] = set()

    @property
    def script_log(self) -> str:
        """The path of the batch script's stderr; empty if it is unknown."""
        path = self.record.fields.get("StdErr", "") if self.record is not None else ""
        return path if path.startswith("/") else ""

    def first(self, what: str) -> bool:
        """Return whether `what` is queried for the first time, and mark it as queried."""
        asked_before = what in self._asked
        self._asked.add(what)
        return not asked_before
