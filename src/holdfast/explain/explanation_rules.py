"""The rules that explain a case, in order of precedence. Each rule returns an answer or none, and the first answer
counts.

`BELIEFS` is the list of rules; `docs/internals/explaining.md` prints each rule's docstring. Then the functions in
`SECOND_LOOKS` may replace the first answer by a better one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.explain import openpai_rows
from holdfast.explain.causes import (
    lost_node_cause,
    memory_kill_cause,
    orderly_cause,
    requested_stops,
    system_cause,
    worker_cause,
)
from holdfast.explain.causes.attribution import Attribution, EvidenceStrength, Suspect, after_stop, fell_first
from holdfast.explain.causes.device_fault_cause import explaining
from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.causes.limit_cause import limit_reached
from holdfast.explain.causes.missing_in_collective import recorded
from holdfast.explain.causes.unended_rank import unended
from holdfast.explain.causes.unformed_group import unmet, unreached
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.model.evidence import SAME_SIGNAL_S, AttemptEvidence, StopRequest, StopSource
from holdfast.model.exit_report import OtherRule, Trigger, WorkerExit
from holdfast.model.phrases import Phrase

#: Sources of stop requests that holdfast makes because it found something. The report then explains the finding, not
#: the request.
_FOLLOWED = frozenset({StopSource.HANG, StopSource.FAULT, StopSource.SUPERVISOR})
_OF_ITS_OWN = frozenset({EvidenceStrength.OWN, EvidenceStrength.SILENT})
#: Triggers of answers that a user's OpenPAI rows may replace, because these answers come from logs and exits and not
#: from observations of holdfast.
_MAY_BE_BETTERED = (None, Trigger.LOG, Trigger.EXCEPTION, Trigger.SIGNAL, Trigger.EXIT_CODE)


@dataclass(frozen=True)
class ExplanationCase:
    """The input of every rule: the evidence, the workers' readings, and the culprit."""

    evidence: AttemptEvidence
    readings: list[Reading]
    who: Attribution
    matcher: Matcher

    @functools.cached_property
    def exits(self) -> list[WorkerExit]:
        return [worker.exit for worker in self.evidence.workers if worker.exit is not None]

    @functools.cached_property
    def fell(self) -> list[Suspect]:
        """The ranks that a device fault may have killed first."""
        return fell_first(self.who, self.readings, self.evidence)

    @property
    def died_at(self) -> float | None:
        """The time of the culprit's exit, in seconds; None: unknown."""
        culprit = self.who.culprit
        return culprit.exit.ended_at if culprit is not None and culprit.exit is not None else None

    @property
    def finished(self) -> bool:
        return bool(self.exits) and all(ended.ok for ended in self.exits)


Rule = Callable[[ExplanationCase], Diagnosis | None]


def failed_beside(case: ExplanationCase) -> Diagnosis | None:
    """A hook failed, or a required daemon ended, unless a worker had failed by itself before a stop was requested."""
    evidence = case.evidence
    if not evidence.beside or (evidence.stop is not None and _before_stop(case, evidence.stop)):
        return None
    return system_cause.failed_beside(evidence, case.matcher, finished=case.finished)


def asked_to_stop(case: ExplanationCase) -> Diagnosis | None:
    """A stop was requested, not because of a finding of holdfast, before any worker had failed by itself."""
    asked = case.evidence.stop
    if asked is None or asked.source in _FOLLOWED or _before_stop(case, asked):
        return None
    return requested_stops.stopped(case.evidence, case.matcher)


def ordered_in_a_file(case: ExplanationCase) -> Diagnosis | None:
    """A component wrote a `*.pai.error` file with `ACTION "KILL"`."""
    return requested_stops.killed_by_pai(case.evidence, case.matcher)


def failed_check(case: ExplanationCase) -> Diagnosis | None:
    """A check failed, before the start or during the job."""
    check = case.evidence.check
    return system_cause.check_failed(check, case.matcher, case.evidence.job) if check is not None else None


def all_finished(case: ExplanationCase) -> Diagnosis | None:
    """Every worker ended with status 0, and nothing else went wrong."""
    return (
        system_cause.success_diagnosis(case.evidence, case.matcher)
        if case.finished and not _trouble(case.evidence)
        else None
    )


def device_fault(case: ExplanationCase) -> Diagnosis | None:
    """A fault of a device or node requires a stop, began before the death, and is on a device that a dead rank used."""
    ranks = frozenset(suspect.rank for suspect in case.fell)
    fault = explaining(case.evidence.faults, case.died_at, ranks)
    return system_cause.faulted(fault, case.evidence, case.fell, case.matcher) if fault is not None else None


def memory_kill(case: ExplanationCase) -> Diagnosis | None:
    """The kernel killed a process to free memory, according to the control group's events or the kernel log."""
    return memory_kill_cause.memory_killed(case.evidence, case.who, case.matcher)


def exception_before_a_hang(case: ExplanationCase) -> Diagnosis | None:
    """A rank had printed its last exception before a hang was found, and its process did not end."""
    found = unended(case.readings, case.evidence)
    if found is None:
        return None
    who, kept = found
    diagnosis = worker_cause.of_worker(who, case.readings, case.evidence, case.matcher)
    if diagnosis is not None:
        diagnosis.remark = diagnosis.remark or kept
    return diagnosis


def hang(case: ExplanationCase) -> Diagnosis | None:
    """A hang was found before any worker died."""
    found = case.evidence.hang
    if found is None:
        return None
    died_at = case.died_at
    first = case.who.culprit is None or died_at is None or (found.at is not None and found.at <= died_at)
    return system_cause.hung(found, case.evidence, case.matcher) if first else None


def culprit_of_its_own(case: ExplanationCase) -> Diagnosis | None:
    """A worker failed by itself before all others. Its contract code, log, signal or status shows the cause."""
    culprit = case.who.culprit
    if culprit is None or culprit.kind not in _OF_ITS_OWN:
        return None
    diagnosis = worker_cause.of_worker(case.who, case.readings, case.evidence, case.matcher)
    if diagnosis is not None and culprit.exit is not None and (late_s := culprit.exit.unended_s) is not None:
        diagnosis.remark = diagnosis.remark or f"its process did not end by itself for {sentences.seconds(late_s)}"
    return diagnosis


def lost_store(case: ExplanationCase) -> Diagnosis | None:
    """The workers' store ended, and the failed workers only report that a peer is gone."""
    return system_cause.store_lost(case.evidence, case.who, case.matcher)


def failed_start(case: ExplanationCase) -> Diagnosis | None:
    """A worker could not be started."""
    return system_cause.start_failed(case.evidence, case.matcher)


def lost_node(case: ExplanationCase) -> Diagnosis | None:
    """A node stopped answering."""
    return lost_node_cause.node_lost(case.evidence, case.matcher) if case.evidence.lost else None


def passed_deadline(case: ExplanationCase) -> Diagnosis | None:
    """The gang was not complete at a deadline."""
    evidence = case.evidence
    if evidence.muster is not None:
        return lost_node_cause.not_assembled(evidence.muster, evidence.platform, case.matcher)
    return system_cause.too_late(evidence, case.matcher) if evidence.deadline else None


def asked_to_stop_for_a_finding(case: ExplanationCase) -> Diagnosis | None:
    """Holdfast requested a stop because of something that it found, and no worker failed by itself."""
    if case.evidence.stop is None or case.who.culprit is not None:
        return None
    return requested_stops.stopped(case.evidence, case.matcher)


def culprit_among_peers(case: ExplanationCase) -> Diagnosis | None:
    """The other workers blame one worker, or one worker was the first to report that a peer is gone."""
    if case.who.culprit is None:
        return None
    return worker_cause.of_worker(case.who, case.readings, case.evidence, case.matcher)


def all_finished_after_all(case: ExplanationCase) -> Diagnosis | None:
    """Every worker ended with status 0, although something else went wrong."""
    return system_cause.success_diagnosis(case.evidence, case.matcher) if case.finished else None


def only_logs(case: ExplanationCase) -> Diagnosis | None:
    """Only logs are known: the strongest cause in all of them counts. Without any cause the report is `Unexplained`."""
    found = worker_cause.of_logs(case.readings, case.evidence, case.matcher)
    return orderly_cause.as_reported(found, case.readings, case.matcher)


#: The rules in order of precedence. The last rule always answers.
BELIEFS: tuple[Rule, ...] = (
    failed_beside,
    asked_to_stop,
    ordered_in_a_file,
    failed_check,
    all_finished,
    device_fault,
    memory_kill,
    exception_before_a_hang,
    hang,
    culprit_of_its_own,
    lost_store,
    failed_start,
    lost_node,
    passed_deadline,
    asked_to_stop_for_a_finding,
    culprit_among_peers,
    all_finished_after_all,
    only_logs,
)


def kernel_log(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """The kernel log has the cause, and the worker's exit is only a signal, or its log line is vague."""
    return worker_cause.kernel_knows_better(diagnosis, case.evidence, case.readings, case.matcher)


def process_limit(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """A resource limit of the process (ulimit) explains SIGXCPU, SIGXFSZ, SIGKILL at the limit of CPU time, or a failed
    allocation."""
    return limit_reached(diagnosis, case.matcher)


def flight_recorder(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """Ranks waited for others without success, and PyTorch's flight recorder has each rank's last collectives."""
    return recorded(diagnosis, case.evidence, case.readings)


def reason_in_a_file(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """A component's `*.pai.error` file has a REASON, and the worker's exit shows no cause."""
    return requested_stops.reasoned_by_pai(diagnosis, case.evidence, case.matcher)


def rows_of_openpai(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """A user's rows in OpenPAI's schema match, and holdfast itself observed no cause."""
    further = case.matcher.catalogue.further
    contract = diagnosis.code is not None and 200 <= diagnosis.code <= 219
    if not further or diagnosis.trigger not in _MAY_BE_BETTERED or diagnosis.phrase == Phrase.SUCCEEDED or contract:
        return diagnosis
    ended = diagnosis.exit or (case.exits[0] if case.exits else None)
    own = [reading for reading in case.readings if reading.worker is diagnosis.worker] or case.readings
    return openpai_rows.answer(further, own, ended, case.evidence, case.matcher, diagnosis) or diagnosis


def port_of_rank_0(diagnosis: Diagnosis, case: ExplanationCase) -> Diagnosis:
    """The process group did not form. The report names the ranks that never joined, or never reached rank 0's port."""
    told = unreached(diagnosis, case.evidence, case.readings)
    return told or unmet(diagnosis, case.evidence, case.readings, case.matcher)


#: Functions that may replace the answer. They are called in this order, each with the latest answer.
SECOND_LOOKS: tuple[Callable[[Diagnosis, ExplanationCase], Diagnosis], ...] = (
    kernel_log,
    process_limit,
    port_of_rank_0,
    flight_recorder,
    reason_in_a_file,
    rows_of_openpai,
)


#: The names and meanings of rules that are not functions in this file.
OTHER_RULES: dict[OtherRule, str] = {
    OtherRule.EXIT_STATUS: "The signal or the exit status of the worker alone; no line of its log counted.",
    OtherRule.OWNER_DIED: "The owner of the job died without a report, and its guard or a later command wrote one.",
    OtherRule.OWNER_SILENT: "A node's agent waited for an owner that had stopped to answer.",
    OtherRule.OWNER_ABSENT: "A node's agent never reached the owner of its job.",
    OtherRule.START_FAILED: "The queue of this machine could not start the job's command.",
    OtherRule.BUG: "Explaining failed inside holdfast: the report has the exit status only.",
}


def believe(case: ExplanationCase) -> Diagnosis:
    """Return the first answer of `BELIEFS`, or the better answer by which `SECOND_LOOKS` replaced it.

    The answer's `rule` names the deciding function.
    """
    rule, diagnosis = next((rule, diagnosis) for rule in BELIEFS if (diagnosis := rule(case)) is not None)
    diagnosis.rule = diagnosis.rule or rule.__name__
    for look in SECOND_LOOKS:
        diagnosis = look(diagnosis, case)
        diagnosis.rule = diagnosis.rule or look.__name__  # a function that makes a new diagnosis leaves `rule` empty
    return diagnosis


def order_of_belief() -> str:
    """Return all rules as Markdown lists, for `docs/internals/explaining.md`."""
    rules = [f"{place}. {_line(rule)}" for place, rule in enumerate(BELIEFS, 1)]
    looks = [f"- {_line(look)}" for look in SECOND_LOOKS]
    others = [f"- `{rule}`: {meaning}" for rule, meaning in OTHER_RULES.items()]
    return "\n".join(
        [
            *rules,
            *("", "Then the answer gives way to a better one where", "", *looks),
            *("", "Reports that rest on none of these name one of", "", *others),
        ]
    )


def _line(rule: Callable[..., object]) -> str:
    return f"`{rule.__name__}`: {rule.__doc__}"


def _trouble(evidence: AttemptEvidence) -> bool:
    started = any(worker.start_failed for worker in evidence.workers)
    return bool(evidence.hang or evidence.lost or evidence.deadline or started or evidence.stop)


def _before_stop(case: ExplanationCase, stop: StopRequest) -> bool:
    """Return whether a worker had failed by itself before the stop was requested."""
    culprit = case.who.culprit
    if culprit is None or culprit.kind not in _OF_ITS_OWN:
        return False
    asked = stop.at if stop.at is not None else case.evidence.stop_asked_at
    died = case.died_at
    if asked is None or died is None:
        return False
    return died < min([asked, *_felled_by(case, stop, asked)])


def _felled_by(case: ExplanationCase, stop: StopRequest, asked: float) -> list[float]:
    """Return the times at which workers died of the signal that also requested the stop.

    A terminal sends such a signal to every process of the job.
    """
    if stop.signal is None or stop.source not in (StopSource.SIGNAL, StopSource.PLATFORM):
        return []
    ends = (each for each in case.exits if each.ended_by == stop.signal and not after_stop(each, case.evidence))
    return [end.ended_at for end in ends if end.ended_at is not None and 0 <= asked - end.ended_at <= SAME_SIGNAL_S]
