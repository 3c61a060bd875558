"""What Slurm's signals mean, and when the job's time is over: asked of Slurm, told to the owner as `StopRequested`.

The job's record is read when the owner begins, at each signal, every `LOOK_S`, and when the notice of the time limit is
due: a limit can be moved. So a job costs slurmctld six questions an hour.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.cluster.slurm.asking import Answer, Asking
from holdfast.cluster.slurm.records import Config, JobRecord, config, job, partition
from holdfast.cluster.slurm.why import Asked, Meaning, Warned, Why, is_warning, left_s, notice_at, warned_by, why
from holdfast.loop.slurm.listener import Listener
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.in_words import duration
from holdfast.record.local_time import local

if TYPE_CHECKING:
    from holdfast.loop.slurm.ids import Ids
    from holdfast.reactor import Moment, News

LOOK_S = 600.0
"""Between two looks at the job's record."""
ANSWER_S = 2.0
"""How long Slurm may take to say what a signal means; at most a third of KillWait."""
PATIENCE_S = 120.0
"""At the beginning nothing is in a hurry: so long a slurmctld that is away is asked again."""
ACCOUNTED_S = 10.0
"""From the start of a job until accounting surely has it."""
SAVE = 0.75
"""The part of the time that is left in which workers that listen may save; then SIGTERM, and SIGKILL at its end."""
_WAYS = {"linuxproc", "pgid"}
"""Types of process tracking under which Slurm's signals reach the workers by themselves."""


class SlurmSignals:
    """One job's. `grace_s`: of the job, for a stop that Slurm sets no limit to. `leaving()`: the job itself has asked
    Slurm to start it again."""

    def __init__(
        self, asking: Asking, ids: Ids, grace_s: float, say: Callable[[str], None], leaving: Callable[[], bool]
    ) -> None:
        self._asking = asking
        self._reactor = asking.reactor
        self._ids = ids
        self._grace_s = grace_s
        self._say = say
        self._leaving = leaving
        self._config = Config()
        self._record: JobRecord | None = None
        """The last that was read."""
        self._warned: Warned | None = None
        self._preemptable = False
        self._open: _Open | None = None
        self._said: Why | None = None
        """What the job was last told of."""
        self._look: Moment | None = None
        self._accounts: Moment | None = None
        self._listener: Listener | None = None
        if ids.ends_at is not None and ids.started_at is not None:
            # What newer versions say without a question.
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
        """Slurm has not said yet what a signal means."""
        return self._open is not None

    def begin(self, now: float) -> News:
        """Learn what is needed before a signal comes."""
        self._ask(("scontrol", "show", "config"), self._configured)
        self._ask(("scontrol", "write", "batch_script", str(self._ids.job), "-"), self._script)
        self._look_again(now)
        return None

    def close(self) -> None:
        if self._look is not None:
            self._look.close()
        if self._accounts is not None:
            self._accounts.close()
        if self._listener is not None:
            self._listener.close()

    # ------------------------------------------------------------------------------------------ what comes in

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal of Slurm's has come, or one by hand."""
        if number != signal.SIGTERM:
            record = self._record
            if record is None or not is_warning(number, now, record, self._warned):
                return None  # it is the workers' own
        if self._open is not None:
            return None  # the answer that is on its way is younger than this signal's cause
        self._open = _Open(number, now)
        limit_s = min(ANSWER_S, self._config.kill_wait_s / 3)
        self._asking.ask(self._show(), self._answered, limit_s=limit_s)
        return None

    def _answered(self, answer: Answer, now: float) -> News:
        assert self._open is not None, "it was asked for"
        record = job(answer.out, self._ids.job) if answer.ok else None
        self._open.record, self._open.trouble = record, answer.said
        found = self._judge(self._open)
        if found.again and self._config.accounting and not self._was_preempted():
            words = ("sacct", "-D", "-X", "-n", "-P", "-o", "State", "-j", str(self._ids.shown))
            self._asking.ask(words, self._accounted, limit_s=min(ANSWER_S, self._config.kill_wait_s / 6))
            return None
        return self._close(found, now)

    def _accounted(self, answer: Answer, now: float) -> News:
        """`sacct -D` has a line for each run of the job; the last but one is that of before, where there are two."""
        assert self._open is not None, "it was asked for"
        states = [line.strip() for line in answer.out.splitlines() if line.strip()] if answer.ok else []
        ended = [state for state in states if not state.startswith(("PENDING", "RUNNING"))]
        self._open.accounted = ended[-1] if ended else ""
        return self._close(self._judge(self._open), now)

    def _judge(self, opened: _Open) -> Why:
        return why(
            Asked(
                job=self._ids.shown,
                number=opened.number,
                at=opened.at,
                now=opened.record,
                before=self._record,
                restarts=self._ids.restarts,
                config=self._config,
                warned=self._warned,
                accounted=opened.accounted,
                preemptable=self._preemptable,
                trouble=opened.trouble,
                utc_offset_s=local(opened.at),
            )
        )

    @property
    def config(self) -> Config:
        """Slurm's, as far as it has told it."""
        return self._config

    @property
    def ends_at(self) -> float | None:
        """When Slurm kills this run of the job, in seconds since the epoch; None: it has not begun to end it."""
        return self._said.ends_at if self._said is not None else None

    def _was_preempted(self) -> bool:
        return self._record is not None and self._record.preempted_at is not None

    def _close(self, found: Why, now: float) -> News:
        opened, self._open = self._open, None
        assert opened is not None, "it was asked for"
        if opened.record is not None and not found.hard:
            self._record = opened.record
        if opened.number == signal.SIGTERM:
            return self._tell(found, opened.number, opened.at, now, everywhere=self._config.proctrack in _WAYS)
        if found.meaning in (Meaning.SIGNALLED, Meaning.UNKNOWN):
            return None  # the limit has been moved: it is the workers' own
        return self._tell(found, None, opened.at, now, everywhere=False)

    # ------------------------------------------------------------------------------------------ what it tells

    def _tell(self, found: Why, number: int | None, at: float, now: float, *, everywhere: bool) -> News:
        if not self._is_news(found):
            return None
        self._said = found
        if found.again and self._leaving():
            return None  # the job knows why it ends here
        left = None if found.ends_at is None else left_s(found.ends_at, now)
        if found.meaning is Meaning.UNKNOWN:
            # It may be the end of the job: then so much is left.
            left = left_s(now + self._config.kill_wait_s, now)
        save_s = SAVE * left if left is not None else min(self._grace_s, SAVE * self._config.kill_wait_s)
        request = StopRequest(
            reason=found.reason,
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
            self._say(f"{found.reason}: the workers have {duration(left)} to save and leave")
        return [ev.StopRequested(request=request)]

    def _is_news(self, found: Why) -> bool:
        """Steps get one SIGTERM after another: what has been told already is not told again."""
        said = self._said
        if said is None:
            return True
        if said.hard:
            return False
        sooner = found.ends_at is not None and (said.ends_at is None or found.ends_at < said.ends_at - 1.0)
        return found.meaning is not said.meaning or sooner

    # ------------------------------------------------------------------------------------------ the time limit

    def _look_again(self, now: float) -> News:
        """Read the record: the limit may have been moved."""
        self._look = None
        self._asking.ask(self._show(), self._seen, patience_s=PATIENCE_S)
        return None

    def _seen(self, answer: Answer, now: float) -> News:
        record = job(answer.out, self._ids.job) if answer.ok else None
        if record is not None and record.state in ("RUNNING", "SUSPENDED", "RESIZING"):
            if self._record is None or self._record.partition != record.partition:
                self._ask(("scontrol", "show", "partition", record.partition), self._partition)
            self._record = record
            submitted = record.fields.get("SubmitLine", "")
            self._warned = warned_by(submitted) or self._warned
        due = notice_at(self._record, self._grace_s) if self._record is not None else None
        if due is not None and self._record is not None and now >= due:
            return self._time_is_over(self._record, now)
        self._look = self._reactor.at(min(now + LOOK_S, due or now + LOOK_S), self._look_again)
        return None

    def _time_is_over(self, record: JobRecord, now: float) -> News:
        warning = Warned(number=int(signal.SIGTERM), before_s=float("inf"))
        asked = Asked(
            job=self._ids.shown,
            number=int(signal.SIGTERM),
            at=now,
            now=replace(record, state="RUNNING", preempted_at=None, reason="", restarts=0),
            config=self._config,
            warned=warning,
            utc_offset_s=local(now),
        )
        return self._tell(why(asked), None, now, now, everywhere=False)

    # ------------------------------------------------------------------------------------------ what it learns first

    def _show(self) -> tuple[str, ...]:
        return ("scontrol", "show", "job", self._ids.shown)

    def _ask(self, words: tuple[str, ...], done: Callable[[Answer, float], News]) -> None:
        self._asking.ask(words, done, patience_s=PATIENCE_S)

    def _configured(self, answer: Answer, now: float) -> News:
        if answer.ok:
            self._config = config(answer.out)
            if self._config.accounting:
                # What was typed for sbatch stands in no record of an older slurmctld's.
                words = ("sacct", "-X", "-n", "-P", "-o", "SubmitLine", "-j", self._ids.shown)
                # Accounting learns of a job some seconds after its start.
                self._accounts = self._reactor.at(now + ACCOUNTED_S, lambda now: self._ask(words, self._submitted))
        else:
            self._say(f"Slurm does not tell its configuration: {answer.said}; KillWait is taken for 30 s")
        return None

    def _submitted(self, answer: Answer, now: float) -> News:
        if answer.ok:
            self._warned = warned_by(answer.out) or self._warned
        return None

    def _script(self, answer: Answer, now: float) -> News:
        if answer.ok:
            self._warned = self._warned or warned_by(answer.out)
        return None

    def _partition(self, answer: Answer, now: float) -> News:
        """Where the job can be preempted with a grace, and no step of it would hear of that, one is made that does."""
        found = partition(answer.out) if answer.ok else None
        if found is None:
            return None
        self._preemptable = found.preempt_mode not in ("", "OFF") and self._config.preempts
        if self._preemptable and found.grace_s > 0 and not self._ids.in_step and self._listener is None:
            self._listener = Listener(self._asking, self._ids, self._heard_by_step, self._say)
        return None

    def _heard_by_step(self, now: float) -> News:
        """Slurm has ended the step that listens: as it does first of all when it wants the nodes."""
        return self.signalled(int(signal.SIGTERM), self._ids.node, now)


class _Open:
    """A signal whose meaning is being asked for."""

    def __init__(self, number: int, at: float) -> None:
        self.number = number
        self.at = at
        self.record: JobRecord | None = None
        self.trouble = ""
        self.accounted = ""
