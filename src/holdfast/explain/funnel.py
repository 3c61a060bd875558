"""The funnel: everything known of an attempt's end goes in, one report comes out.

The workers' words are read, the culprit is found, and the first rule of `holdfast.explain.beliefs` that has an answer
gives the report. Within one rule the earliest first-hand evidence wins; exits after our own stop, and words that only
say that a peer went away, are never the cause while anything better exists.
"""

from __future__ import annotations

import functools

from msgspec.structs import replace

from holdfast.catalogue.exits import Catalogue
from holdfast.explain.attribution import Attribution, Kind, after_stop, attribute, cut_short, kind_of
from holdfast.explain.beliefs import Case, believe
from holdfast.explain.draft import finish
from holdfast.explain.fingerprint import fingerprint
from holdfast.explain.matcher import Matcher, built_in
from holdfast.explain.peers import first_hand
from holdfast.explain.reading import Reading, glance, read
from holdfast.explain.secrets import mask
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exits import Blame, Evidence, ExitReport, Original, Rerun, Trigger, WorkerExit, signal_name
from holdfast.model.phrases import Phrase


@functools.lru_cache(maxsize=4)
def _matcher(catalogue: Catalogue) -> Matcher:
    return Matcher(catalogue)


def matcher_of(catalogue: Catalogue | None) -> Matcher:
    """The matcher of a catalogue, made once; None: of the built-in one."""
    return built_in() if catalogue is None else _matcher(catalogue)


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """See `holdfast.explain.explain`."""
    if bug := next((w.reading.bug for w in evidence.workers if w.reading is not None and w.reading.bug), ""):
        return _broken(evidence, bug)
    try:
        return _explain(evidence, matcher_of(catalogue))
    except Exception as bug_here:  # a bug of ours: the job still gets its report, with the original exit kept
        return _broken(evidence, f"{type(bug_here).__name__}: {str(bug_here)[:300]}")


def _explain(evidence: AttemptEvidence, matcher: Matcher) -> ExitReport:
    readings = readings_of(evidence, matcher)
    # From `holdfast explain FILE…`: a typed exit has no pid, and the logs speak for themselves.
    logs_only = all(each.worker.exit is None or (each.said.given and not each.worker.exit.pid) for each in readings)
    who = Attribution(None) if logs_only else attribute(readings, evidence)
    draft = believe(Case(evidence, readings, who, matcher))
    report = finish(draft, evidence, readings)
    culprits = next((reading for reading in readings if reading.worker is draft.worker), None)
    return replace(report, fingerprint=mask(fingerprint(draft, report.exception, matcher, culprits)))


MOST_WHOLE = 2
"""Workers whose words are read whole in any case: those that died first."""
MOST_TAILS = 28
"""Further ones of whom the end is read, where the first have no cause of their own."""
TAIL_CHARS = 4096


def readings_of(evidence: AttemptEvidence, matcher: Matcher) -> list[Reading]:
    """What the workers say: as their nodes read it, else read here in the order of their deaths until one died of its
    own cause.

    A rank that died later cannot be the culprit then. One that we stopped, or that ended well, is no suspect.
    Of many workers who only accuse each other the ends are read, of a bounded number of them.
    """
    unread = [worker for worker in evidence.workers if worker.reading is None]
    suspects = [worker for worker in unread if _may_tell(worker, evidence)]
    if not suspects and evidence.stop is None and evidence.hang is None:
        suspects = unread
    known: dict[int, Reading] = {}
    found = False
    tails = 0
    for place, worker in enumerate(sorted(suspects, key=_death)):
        ended = worker.exit
        if place < MOST_WHOLE or (ended is None and evidence.hang is None):
            reading = Reading(worker, read(worker, matcher))
        elif found or ended is None:
            continue
        elif first_hand(ended) or cut_short(worker, evidence):
            reading = Reading(worker, read(worker, matcher))
        elif tails < MOST_TAILS:
            tails += 1
            reading = Reading(worker, read(_end_of(worker), matcher))
            if kind_of(reading, evidence) is Kind.OWN:
                reading = Reading(worker, read(worker, matcher))
        else:
            continue
        known[id(worker)] = reading
        found = found or kind_of(reading, evidence) is Kind.OWN
    return [known.get(id(worker)) or Reading(worker, worker.reading or glance(worker)) for worker in evidence.workers]


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


def _broken(evidence: AttemptEvidence, bug: str) -> ExitReport:
    first: WorkerExit | None = min(
        (w.exit for w in evidence.workers if w.exit is not None and not w.exit.ok),
        key=lambda e: (e.ended_at or 0.0, e.order),
        default=None,
    )
    original = Original()
    if first is not None:
        original = Original(
            exit_code=first.exit_code, signal=signal_name(first.signal) if first.signal is not None else None
        )
    return ExitReport(
        code=255,
        phrase=Phrase.UNEXPLAINED,
        blame=Blame.UNKNOWN,
        rerun=Rerun.UNKNOWN,
        reason=f"the worker ended with {first.how}; explaining it failed inside holdfast"
        if first
        else "explaining failed",
        solution="Read the worker's log, and report the hint below as a bug of holdfast.",
        trigger=Trigger.EXIT_CODE if first is not None and first.exit_code is not None else None,
        hint=f"bug of holdfast: {bug}",
        original=original,
        evidence=(Evidence(kind="exit_code", text=first.how, source=f"{first.role}-{first.rank}"),) if first else (),
        attempt=evidence.attempt,
        fingerprint=Phrase.UNEXPLAINED,
        confidence=0.0,
    )
