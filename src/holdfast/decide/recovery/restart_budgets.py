"""Computes the spent restarts of each budget, the number of failures in a row, and the pause before the next attempt.
Pure.

It also decides whether the platform may start the job again in another run, and which budget pays for that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.decide.recovery.progress_signs import restores
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exit_report import Rerun
from holdfast.model.human_format import everyone
from holdfast.model.job_spec import JobSpec, RestartPolicy
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Sign


def spent_restarts(history: Sequence[AttemptRecord], *, charged: bool, restored: bool) -> int:
    """Return how many restarts of one budget are spent. `charged`: True: the user's budget; False: the platform's.

    After an attempt with a restoring sign of progress, the user's budget starts anew. `restored`: whether the present
    attempt has such a sign.
    """
    count = 0
    if charged and restored:
        return 0
    for record in reversed(history):
        if restarted(record) and record.decision.charged == charged and not _free(record):
            count += 1
        if charged and restores(record.signs):
            break
    return count


def used_up(limit: int, *, charged: bool) -> str:
    """Return a clause: the budget of `limit` restarts is spent. `charged`: the user's budget, or the platform's."""
    whose = "" if charged else " for failures that are not yours"
    if limit < 2:
        return f"the only restart{whose} is used" if limit else f"no restart{whose} is allowed"
    return f"{everyone(limit, 'restart')}{whose} are used"


def is_free(phrase: str, *, signs: Sequence[Sign]) -> bool:
    """Return whether another run of the job after this attempt spends no restart.

    A planned time limit is no failure, and neither is an attempt with a sign of progress. `phrase`: the kind of exit.
    `signs`: the attempt's signs of progress.
    """
    return bool(signs) or phrase == Phrase.TIME_LIMIT_REACHED


def _free(record: AttemptRecord) -> bool:
    requeued = record.decision.kind is DecisionKind.REQUEUE and not record.decision.charged
    return requeued and is_free(record.report.phrase, signs=record.signs)


def restarted(record: AttemptRecord) -> bool:
    """Return whether another attempt followed the recorded one, in the same run or after a requeue."""
    return record.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE, DecisionKind.REQUEUE)


def failed(record: AttemptRecord) -> bool:
    """Return whether the attempt itself failed. A resize of the gang, or a requeue by the platform, is no failure."""
    return record.report.phrase != Phrase.RESIZED and record.decision.kind is not DecisionKind.REQUEUE


def failures_in_row(history: Sequence[AttemptRecord]) -> int:
    """Return the number of failures in a row: those since the last attempt that progressed or was healthy."""
    count = 0
    for record in reversed(history):
        count += 1
        if record.progressed:
            break
    return count


def restart_delay(rerun: Rerun, policy: RestartPolicy, failures: int, jitter: float) -> float:
    """Return the seconds to wait before the next attempt. `failures`: failures in a row. `jitter`: in [0, 1].

    The pause doubles with each failure, with jitter between half and all of it. After the first failure there is a
    pause only if `rerun` is LATER.
    """
    doublings = failures - 1 if rerun is Rerun.LATER else failures - 2
    if doublings < 0:
        return 0.0
    # Limit the exponent, because a long row of failures would overflow before the cap applies.
    longest = min(policy.backoff_cap_s, policy.backoff_s * 2.0 ** min(doublings, 60))
    return longest * (0.5 + jitter / 2)


#: Seconds that the platform may take to end this run after the owner's request for a new run.
ANSWER_S = 300.0


class RequeueBudget(msgspec.Struct, frozen=True):
    """How often the platform has started the job again (`spent`), and how often it may (`limit`)."""

    spent: int
    limit: int
    #: Why the platform may not start the job again; None: it may; empty: it never starts jobs again.
    refusal: str | None
    #: Whether the next run spends no restart.
    free: bool = False

    def cost(self) -> str:
        """Return the cost in words: `restart 3 of 20 (platform budget, not yours)`, `another run, no restart spent`."""
        if self.free:
            return "another run, no restart spent"
        return f"restart {self.spent + 1} of {self.limit} (platform budget, not yours)"

    def instead(self, reason: str) -> str:
        """Return a reason for the end of the job: `reason`, followed by why the job is not queued again."""
        return f"{reason}; not queued again: {self.refusal}" if self.refusal else reason


def requeues(spec: JobSpec, history: Sequence[AttemptRecord], unrecorded: int, *, free: bool) -> RequeueBudget:
    """Return the budget for further runs. `unrecorded`: the number of requeues that followed no attempt, which no
    record counts. `free`: whether the next run spends no restart.
    """
    limit = spec.restarts.platform_max_restarts
    spent = spent_restarts(history, charged=False, restored=False) + unrecorded
    refusal: str | None = None
    if not spec.requeue.possible:
        refusal = spec.requeue.why_not
    elif spent >= limit and not free:
        refusal = used_up(limit, charged=False)
    return RequeueBudget(spent, limit, refusal, free)
