"""Sends notices about the job (`--on-event`, `--on-end`, `--notify`, `--summary`, `--traces`) through one helper
process.

The owner writes to the helper's pipe only if the pipe has room, and never waits. Only at the job's end it waits a
limited time for the helper. The helper's child processes do not count as the job's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import children
from holdfast.act.linux import descendants
from holdfast.act.termination import kill
from holdfast.decide.recovery.restart_budgets import restarted, spent_restarts
from holdfast.explain.text.secret_filter import hide, without_secrets
from holdfast.import_path import module_command
from holdfast.model.codec import encode
from holdfast.model.decisions import DecisionKind
from holdfast.model.exit_report import Outcome
from holdfast.model.notice_messages import Beginning, Notice, NoticeKind, NoticePlan
from holdfast.record.report_file import exit_report_object, to_json_object
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.evidence import HangEvidence
    from holdfast.model.exit_report import ExitReport
    from holdfast.model.faults import FaultEvent
    from holdfast.model.job_spec import JobSpec
    from holdfast.reactor import DescriptorWatch, News, Reactor
    from holdfast.record.job_directory import JobPlace

#: Maximum number of lines that wait for the helper process. The oldest are dropped first.
MOST_LINES = 256
#: At the end of a run the owner waits for the helper process. The wait is this many seconds longer than the time limit
#: of a user's command.
MORE_S = 5.0
_MOST_SAID = 50
_WORD_BYTES = 4096


class Notices:
    """Sends the notices of one run of a job.

    `plan`: the receivers. `place`: the job's directory. `say`: prints a message.
    """

    def __init__(
        self, plan: NoticePlan, spec: JobSpec, place: JobPlace, reactor: Reactor, say: Callable[[str], None]
    ) -> None:
        hide(plan.notify)
        self._plan = plan
        self._spec = spec
        self._reactor = reactor
        self._say = say
        self._place = place
        self._attempts: list[AttemptRecord] = []
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._lost = 0
        self._child: children.Child | None = None
        self._to = self._from = -1
        self._writes: DescriptorWatch | None = None
        self._over = False
        self._said = 0
        self._word = b""

    def begin(self, earlier: Sequence[AttemptRecord] | None) -> None:
        """Start the helper process and send the first notice.

        `earlier`: the attempts under earlier owners; their restarts count for the budget too. None: the job is new.
        """
        # Add only the attempts that this owner has not recorded. If the earlier owner died before it recorded the last
        # attempt, this owner has recorded it.
        known = {record.attempt for record in self._attempts}
        self._attempts[:0] = [record for record in earlier or () if record.attempt not in known]
        if not self._start():
            return
        if earlier is None:
            self._tell(NoticeKind.JOB_STARTED, f"{self._job} has started")
        else:
            over = f"{len(earlier)} attempt{'s'[: len(earlier) != 1]}"
            self._tell(NoticeKind.JOB_CONTINUED, f"{self._job} continues under another owner after {over}")

    def attempt(self, record: AttemptRecord) -> None:
        """Send the notice that an attempt has ended. Its record is complete now."""
        self._attempts.append(record)
        report, decision = record.report, record.decision
        body = {"report": exit_report_object(report), "decision": {"kind": decision.kind, "reason": decision.reason}}
        more = {"HOLDFAST_DECISION": decision.kind.value, "HOLDFAST_NOTICE_ATTEMPT": str(record.attempt)}
        ended = f"attempt {record.attempt} of {self._job} ended: {report.phrase}: {report.reason}"
        self._tell(NoticeKind.ATTEMPT_ENDED, ended, report, body=body, variables=more)
        most = self._spec.restarts.max_restarts
        if (
            restarted(record)
            and decision.charged
            and 0 < most <= spent_restarts(self._attempts, charged=True, restored=False)
        ):
            text = f"{self._job} restarts for the last time: {most} of {most} restarts are used up ({report.phrase})"
            self._tell(NoticeKind.BUDGET_NEARLY_SPENT, text, report, wakes=True, body=body, variables=more)

    def held(self, fault: FaultEvent) -> None:
        """Send the notice that a device has a fault which needs a user's attention."""
        where = f"{fault.device} of {fault.node}" if fault.node and fault.device != fault.node else fault.device
        key = f"{fault.node}|{fault.device}|{fault.code}"
        more = {"HOLDFAST_DEVICE": fault.device, "HOLDFAST_NODE": fault.node}
        body = {"device": fault.device, "node": fault.node, "code": fault.code, "text": fault.text}
        text = f"{where} is HELD: {fault.code}; {self._job} uses it no more"
        self._tell(NoticeKind.DEVICE_HELD, text, key=key, wakes=True, body=body, variables=more)

    def hangs(self, attempt: int, hang: HangEvidence) -> None:
        """Send the notice that the gang has made no progress for the hang time-out."""
        body = {"attempt": attempt, "why": hang.why, "ranks": list(hang.culprits), "silent_s": hang.silent_s}
        more = {"HOLDFAST_NOTICE_ATTEMPT": str(attempt)}
        text = f"{self._job} hangs in attempt {attempt}: {hang.why or f'nothing moved for {hang.silent_s:g} s'}"
        self._tell(NoticeKind.HANG_FOUND, text, key=hang.why, wakes=True, body=body, variables=more)

    def finish(self, report: JobReport | None, take: Callable[[News], None]) -> None:
        """Send the notice that the job has ended, and wait a limited time for the helper process.

        If the report is None, send nothing: the job goes on in another run. `take`: handles events meanwhile.
        """
        if report is not None:
            last = report.report
            text = f"{self._job} {report.outcome.value.upper()}: {last.phrase}: {last.reason}"
            decision = report.attempts[-1].decision if report.attempts else None
            if decision is not None and decision.kind is DecisionKind.FAIL:
                text += f"; not restarted: {decision.reason}"
            body = {"report": to_json_object(report)}
            failed = report.outcome is Outcome.FAILED
            more = {"HOLDFAST_OUTCOME": report.outcome.value}
            self._tell(NoticeKind.JOB_ENDED, text, last, wakes=failed, body=body, variables=more)
        self._over = True
        until = self._reactor.now() + self._plan.limit_s + MORE_S
        self._reactor.at(until, lambda now: None)
        self._write()
        while self._child is not None and self._reactor.now() < until:
            self._reactor.wait(take)
        self.close()

    def close(self) -> None:
        """Kill the helper process and its child processes."""
        if self._child is not None:
            kill(descendants(self._child.pid))
            self._release().end()

    # ------------------------------------------------------------------------------------------ private methods

    @property
    def _job(self) -> str:
        return f"job {self._place.job_id} ({self._spec.name})"

    def _tell(
        self,
        kind: NoticeKind,
        text: str,
        report: ExitReport | None = None,
        *,
        key: str = "",
        wakes: bool = False,
        body: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        if self._child is None:
            return
        of_report = {}
        if report is not None:
            of_report = {
                "HOLDFAST_CODE": str(report.code),
                "HOLDFAST_PHRASE": report.phrase,
                "HOLDFAST_BLAME": report.blame.value,
                "HOLDFAST_REASON": report.reason,
            }
            if report.first is not None:
                of_report |= {"HOLDFAST_RANK": str(report.first.rank), "HOLDFAST_NODE": report.first.node}
            key = report.fingerprint or report.phrase
        notice = Notice(
            kind=kind,
            text=text,
            fingerprint=f"{kind.value}|{key}",
            wakes=wakes,
            body={"event": kind.value, "job": {"id": self._place.job_id, "name": self._spec.name}, **(body or {})},
            variables=of_report | (variables or {}),
        )
        self._put(encode(without_secrets(notice)) + b"\n")

    def _put(self, line: bytes) -> None:
        if len(self._lines) >= MOST_LINES:
            self._lines.popleft()
            self._lost += 1
        self._lines.append(line)
        self._write()

    def _start(self) -> bool:
        reading, self._to = os.pipe2(os.O_CLOEXEC)
        self._from, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        # The helper runs in the user's working directory. With -P it does not import the user's modules in place of
        # ours.
        command = module_command("holdfast.notices")
        try:
            self._child = children.start(command, output=writing, errors=writing, given=reading)
        except OSError as error:
            os.close(self._to)
            os.close(self._from)
            self._say(f"notices are off: {error.strerror or error}; the job goes on")
            return False
        finally:
            os.close(reading)
            os.close(writing)
        self._reactor.watch(self._from, self._on_readable)
        self._reactor.watch(self._child.pidfd, self._ended)
        place = self._place
        head = Beginning(plan=self._plan, job=place.job_id, name=self._spec.name, home=str(place.home))
        self._put(encode(head) + b"\n")
        return True

    def _write(self, fd: int = -1, now: float = 0.0) -> None:
        """Write as many bytes to the helper's pipe as the pipe has room for."""
        if self._to < 0:
            return
        while self._rest or self._lines:
            self._rest = self._rest or self._lines.popleft()
            try:
                self._rest = self._rest[os.write(self._to, self._rest) :]
            except BlockingIOError:
                if self._writes is None:
                    self._writes = self._reactor.watch(self._to, self._write, writable=True)
                return
            except BrokenPipeError:
                break  # stop: the helper has exited, and its pidfd reports that
        if self._writes is not None:
            self._writes.close()
            self._writes = None
        if self._over:
            os.close(self._to)
            self._to = -1

    def _on_readable(self, fd: int, now: float) -> None:
        try:
            data = os.read(fd, _WORD_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._reactor.forget(fd)
        *whole, self._word = (self._word + data)[-_WORD_BYTES:].split(b"\n")
        for line in whole:
            self._said += 1
            if line.strip() and self._said <= _MOST_SAID:
                self._say(one_line(without_secrets(line.decode(errors="replace"))))

    def _ended(self, fd: int, now: float) -> None:
        if self._reactor.watched(self._from) is not None:
            self._on_readable(self._from, now)
        status = self._release().reap()
        if status or not self._over:
            self._say(f"notices are off: their process ended with status {status}; the job goes on")
        elif self._lost:
            self._say(f"{self._lost} notices were left out: more came than could be told")

    def _release(self) -> children.Child:
        assert self._child is not None
        child, self._child = self._child, None
        for fd in (child.pidfd, self._from, self._to):
            self._reactor.forget(fd)
        self._writes = None
        os.close(self._from)
        if self._to >= 0:
            os.close(self._to)
        self._from = self._to = -1
        return child
