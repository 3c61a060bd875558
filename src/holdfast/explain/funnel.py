"""The funnel: everything known of an attempt's end goes in, one report comes out.

Order of belief: a stop request with its reason → a device or node fault that overlaps the exit → kernel or cgroup
memory kill, disk → the worker's own contract codes (200–219) → a catalogue row that matches → the signal → the bare
code → Unexplained. Within one tier the earliest first-hand evidence wins; exits after our own stop, and words that
only say that a peer went away, are never the cause while anything better exists.
"""

from __future__ import annotations

import functools

from msgspec.structs import replace

from holdfast.catalogue.exits import Catalogue
from holdfast.explain import requests, single, special
from holdfast.explain.attribution import Attribution, Kind, after_stop, attribute, cut_short, fell_first, kind_of
from holdfast.explain.draft import Draft, finish
from holdfast.explain.faulted import explaining
from holdfast.explain.matcher import Matcher, built_in
from holdfast.explain.peers import first_hand
from holdfast.explain.reading import Reading, read
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, StopRequest, WorkerEvidence
from holdfast.model.exits import Blame, Evidence, ExitReport, Original, Rerun, Trigger, WorkerExit, signal_name

_SAME_SIGNAL_S = 1.0
"""A worker that died of a signal, and holdfast that got the same within this time, had the same sender."""


@functools.lru_cache(maxsize=4)
def _matcher(catalogue: Catalogue) -> Matcher:
    return Matcher(catalogue)


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """See `holdfast.explain.explain`."""
    try:
        matcher = built_in() if catalogue is None else _matcher(catalogue)
        return _explain(evidence, matcher)
    except Exception as bug:  # whatever breaks here, the job still gets its report, with the original exit kept
        return _broken(evidence, bug)


def _explain(evidence: AttemptEvidence, matcher: Matcher) -> ExitReport:
    readings = _readings(evidence, matcher)
    draft = _believe(evidence, readings, matcher)
    draft = single.kernel_knows_better(draft, evidence, readings, matcher)
    draft = requests.reasoned_by_pai(draft, evidence, matcher)
    if matcher.catalogue.further and draft.trigger in (
        None,
        Trigger.LOG,
        Trigger.EXCEPTION,
        Trigger.SIGNAL,
        Trigger.EXIT_CODE,
    ):
        draft = _by_further_rows(draft, evidence, readings, matcher)
    return finish(draft, evidence, readings, matcher)


def _believe(evidence: AttemptEvidence, readings: list[Reading], matcher: Matcher) -> Draft:
    exits = [worker.exit for worker in evidence.workers if worker.exit is not None]
    # From `holdfast explain FILE…`: a typed exit has no pid, and the logs speak for themselves.
    logs_only = all(worker.exit is None or (worker.log and not worker.exit.pid) for worker in evidence.workers)
    who = Attribution(None) if logs_only else attribute(readings, evidence)
    died_at = _died_at(who)
    requested = evidence.stop
    if (
        requested is not None
        and requested.source not in ("hang", "fault", "supervisor")
        and not _before_stop(who, evidence)
    ):
        return requests.stopped(evidence, matcher)
    if draft := requests.killed_by_pai(evidence, matcher):
        return draft
    if evidence.check is not None:
        return special.check_failed(evidence.check, matcher, evidence.job)
    if exits and all(ended.ok for ended in exits) and not _trouble(evidence):
        return special.succeeded(evidence, matcher)
    fell = fell_first(who, readings, evidence)
    if fault := explaining(evidence.faults, died_at, frozenset(suspect.rank for suspect in fell)):
        return special.faulted(fault, evidence, fell, matcher)
    if draft := special.memory_killed(evidence, who, matcher):
        return draft
    if evidence.hang is not None and (who.culprit is None or _hung_first(evidence, died_at)):
        return special.hung(evidence.hang, matcher)
    if who.culprit is not None and who.culprit.kind.name in ("OWN", "SILENT"):
        return single.of_worker(who, readings, evidence, matcher)
    if draft := special.store_lost(evidence, who, matcher):
        return draft
    if draft := special.start_failed(evidence, matcher):
        return draft
    if evidence.lost:
        return special.node_lost(evidence, matcher)
    if evidence.deadline:
        return special.too_late(evidence, matcher)
    if requested is not None and who.culprit is None:
        return requests.stopped(evidence, matcher)
    if who.culprit is not None:
        return single.of_worker(who, readings, evidence, matcher)
    if exits and all(ended.ok for ended in exits):
        return special.succeeded(evidence, matcher)
    return single.of_logs(readings, evidence, matcher)


MOST_WHOLE = 2
"""Workers whose words are read whole in any case: those that died first."""
MOST_TAILS = 28
"""Further ones of whom the end is read, where the first have no cause of their own."""
TAIL_CHARS = 4096


def _readings(evidence: AttemptEvidence, matcher: Matcher) -> list[Reading]:
    """What the workers say, read in the order of their deaths until somebody died of its own cause.

    Nobody who died later can be the culprit then. Who was stopped by us or ended well is no suspect, whatever it says.
    Of many workers who only accuse each other the ends are read, of a bounded number of them.
    """
    suspects = [worker for worker in evidence.workers if _may_tell(worker, evidence)]
    if not suspects and evidence.stop is None and evidence.hang is None:
        suspects = list(evidence.workers)
    known: dict[int, Reading] = {}
    found = False
    tails = 0
    for place, worker in enumerate(sorted(suspects, key=_death)):
        ended = worker.exit
        if place < MOST_WHOLE or (ended is None and evidence.hang is None):
            reading = read(worker, matcher)
        elif found or ended is None:
            continue
        elif first_hand(ended) or cut_short(worker, evidence):
            reading = read(worker, matcher)
        elif tails < MOST_TAILS:
            tails += 1
            reading = read(_end_of(worker), matcher)
            if kind_of(reading, evidence) is Kind.OWN:
                reading = read(worker, matcher)
            reading.worker = worker
        else:
            continue
        known[id(worker)] = reading
        found = found or kind_of(reading, evidence) is Kind.OWN
    return [known.get(id(worker)) or Reading(worker) for worker in evidence.workers]


def _death(worker: WorkerEvidence) -> tuple[float, int]:
    ended = worker.exit
    return (0.0, 0) if ended is None else (ended.ended_at or 0.0, ended.order)


def _end_of(worker: WorkerEvidence) -> WorkerEvidence:
    def end(excerpt: LogExcerpt | None) -> LogExcerpt | None:
        if excerpt is None:
            return None
        first = excerpt.first_line + excerpt.text[:-TAIL_CHARS].count("\n")
        text = excerpt.text[-TAIL_CHARS:]
        return replace(excerpt, text=text, cuttings=(), settled=0, first_line=first, cutting_lines=())

    return replace(worker, log=end(worker.log), stdout=end(worker.stdout), stderr=end(worker.stderr))


def _may_tell(worker: WorkerEvidence, evidence: AttemptEvidence) -> bool:
    ended = worker.exit
    return ended is None or not (ended.ok or after_stop(ended, evidence)) or cut_short(worker, evidence)


def _by_further_rows(draft: Draft, evidence: AttemptEvidence, readings: list[Reading], matcher: Matcher) -> Draft:
    """A user's rows of another schema come before the built-in ones, and never before what the system itself saw."""
    from holdfast.explain import pai

    ended = draft.exit or next((worker.exit for worker in evidence.workers if worker.exit is not None), None)
    if draft.phrase == "Succeeded" or (draft.code is not None and 200 <= draft.code <= 219):
        return draft
    own = [reading for reading in readings if reading.worker is draft.worker] or readings
    return pai.answer(matcher.catalogue.further, own, ended, evidence, matcher, draft) or draft


def _trouble(evidence: AttemptEvidence) -> bool:
    started = any(worker.start_failed for worker in evidence.workers)
    return bool(evidence.hang or evidence.lost or evidence.deadline or started or evidence.stop)


def _died_at(who: Attribution) -> float | None:
    return who.culprit.exit.ended_at if who.culprit is not None and who.culprit.exit is not None else None


def _before_stop(who: Attribution, evidence: AttemptEvidence) -> bool:
    """A worker had died of its own cause before anybody asked for the stop."""
    if who.culprit is None or who.culprit.kind.name not in ("OWN", "SILENT"):
        return False
    asked = evidence.stop.at if evidence.stop is not None else None
    asked = asked if asked is not None else evidence.stop_asked_at
    died = _died_at(who)
    if asked is None or died is None or died >= asked:
        return False
    return not (_died_of(who, evidence.stop) and asked - died <= _SAME_SIGNAL_S)


def _died_of(who: Attribution, stop: StopRequest | None) -> bool:
    """The signal that asked for the stop is the one that ended it: it came to every process of the job."""
    ended = who.culprit.exit if who.culprit is not None else None
    asked_by = stop.signal if stop is not None and stop.source == "signal" else None
    return ended is not None and asked_by is not None and ended.signal == asked_by


def _hung_first(evidence: AttemptEvidence, died_at: float | None) -> bool:
    found = evidence.hang.at if evidence.hang is not None else None
    return died_at is None or (found is not None and found <= died_at)


def _broken(evidence: AttemptEvidence, bug: Exception) -> ExitReport:
    first: WorkerExit | None = min(
        (w.exit for w in evidence.workers if w.exit is not None and not w.exit.ok), key=lambda e: e.order, default=None
    )
    original = Original()
    if first is not None:
        original = Original(
            exit_code=first.exit_code, signal=signal_name(first.signal) if first.signal is not None else None
        )
    return ExitReport(
        code=255,
        phrase="Unexplained",
        blame=Blame.UNKNOWN,
        rerun=Rerun.UNKNOWN,
        reason=f"the worker ended with {first.how}; explaining it failed inside holdfast"
        if first
        else "explaining failed",
        solution="Read the worker's log, and report the hint below as a bug of holdfast.",
        trigger=Trigger.EXIT_CODE if first is not None and first.exit_code is not None else None,
        hint=f"bug of holdfast: {type(bug).__name__}: {str(bug)[:300]}",
        original=original,
        evidence=(Evidence(kind="exit_code", text=first.how, source=f"{first.role}-{first.rank}"),) if first else (),
        attempt=evidence.attempt,
        fingerprint="Unexplained",
        confidence=0.0,
    )
