"""Explains requested stops: stop requests, and kill orders in `*.pai.error` files, each with its reason."""

from __future__ import annotations

from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.logs.stop_file_lines import BAD_USAGE, line_of, order_of, row_of
from holdfast.model.evidence import AttemptEvidence, StopRequest, StopSource
from holdfast.model.exit_report import DecidingLine, Evidence, EvidenceKind, Original, Rerun, Trigger, signal_name
from holdfast.model.phrases import Phrase


def stopped(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Diagnose a stop request, with the requester's reason."""
    request = evidence.stop
    assert request is not None  # the caller has checked that a stop was requested
    row = row_of(request, matcher.catalogue)
    by = f" (asked by {request.who})" if request.who and request.who not in request.reason else ""
    trigger = Trigger.DISK_CLEANER if request.phrase == Phrase.KILLED_BY_DISK_CLEANER else Trigger.REQUEST
    default: dict[str, str] = {
        Phrase.STOPPED_BY_OPERATOR: "Nothing is broken: start the job again when it is wanted.",
        Phrase.TIME_LIMIT_REACHED: (
            "Ask for a longer time limit, or save checkpoints often enough to go on in the next run."
        ),
        Phrase.PREEMPTED: "The job can go on from its last checkpoint as soon as it gets a place again.",
        Phrase.KILLED_BY_DISK_CLEANER: "Write less to the node's disk, or run again on a node with more room.",
    }
    diagnosis = Diagnosis(
        row.phrase if request.code == BAD_USAGE else request.phrase,
        row,
        trigger,
        reason=f"{request.reason}{by}",
        solution=request.solution or row.solution or default.get(request.phrase, default[Phrase.STOPPED_BY_OPERATOR]),
        evidence=[
            Evidence(
                kind=EvidenceKind.REQUEST,
                text=request.reason,
                source=request.component or request.source.value,
                at=request.at,
            )
        ],
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
        original=_original(evidence),
    )
    if request.source is StopSource.PLATFORM and not (request.final or request.requeue) and row.rerun in _ELSEWHERE:
        # The platform replaces the node that it took away, and the gang waits for the new node without a user's help.
        diagnosis.rerun = Rerun.NOW
    return diagnosis


_ELSEWHERE = (Rerun.ELSEWHERE, Rerun.LATER)


def _original(evidence: AttemptEvidence) -> Original:
    first = min(
        (w.exit for w in evidence.workers if w.exit is not None and not w.exit.ok),
        key=lambda e: (e.ended_at or 0.0, e.order),
        default=None,
    )
    if first is None:
        return Original()
    return Original(exit_code=first.exit_code, signal=signal_name(first.signal) if first.signal is not None else None)


def pai_words(evidence: AttemptEvidence) -> dict[str, dict[str, str]]:
    """Return for each `*.pai.error` file its keys (ACTION, REASON …) and values. The last line of each key counts."""
    found: dict[str, dict[str, str]] = {}
    for item in evidence.pai_errors:
        if word := line_of(item.text):
            found.setdefault(item.source, {})[word[0]] = word[1]
    return found


def _pai_line(evidence: AttemptEvidence, source: str, key: str) -> DecidingLine | None:
    """Return the last line with this key in a component's `*.pai.error` file; None: there is none."""
    lines = [item for item in evidence.pai_errors if item.source == source and (line_of(item.text) or ("",))[0] == key]
    return DecidingLine(text=lines[-1].text, source=f"{source}.pai.error") if lines else None


def killed_by_pai(evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis | None:
    """Diagnose the kill order of an OpenPAI component (`ACTION "KILL"` with a reason); None: there is
    none."""
    for source, said in pai_words(evidence).items():
        order = order_of(source, said, matcher.catalogue)
        if order is None:
            continue
        row = row_of(StopRequest(reason=order.reason, phrase=order.phrase, code=order.code), matcher.catalogue)
        return Diagnosis(
            order.phrase,
            row,
            Trigger.DISK_CLEANER if "disk" in source.lower() else Trigger.REQUEST,
            reason=order.reason,
            solution=order.solution or row.solution,
            evidence=[
                Evidence(kind=EvidenceKind.REQUEST, text=item.text, source=f"{item.source}.pai.error", at=item.at)
                for item in evidence.pai_errors
                if item.source == source
            ][:6],
            collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
            original=_original(evidence),
            line=_pai_line(evidence, source, "ACTION"),
        )
    return None


def reasoned_by_pai(diagnosis: Diagnosis, evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Use the REASON of an OpenPAI component if the worker's exit shows no cause; else return the diagnosis as it
    is."""
    if diagnosis.phrase not in (Phrase.UNEXPLAINED, Phrase.KILLED_BY_SIGNAL):
        return diagnosis
    for source, said in pai_words(evidence).items():
        reason = said.get("REASON", "").strip()
        if not reason:
            continue
        hits = [hit for hit in matcher.line(reason) if hit.row.phrase not in (Phrase.USER_EXCEPTION, Phrase.PEER_LOST)]
        row = hits[0].row if hits else diagnosis.row
        return Diagnosis(
            row.phrase,
            row,
            Trigger.DISK_CLEANER if "disk" in source.lower() else Trigger.RUNTIME,
            reason=f"{source}: {reason}",
            solution=said.get("SOLUTION", ""),
            worker=diagnosis.worker,
            exit=diagnosis.exit,
            original=diagnosis.original,
            collateral=diagnosis.collateral,
            alike=diagnosis.alike,
            evidence=[
                Evidence(kind=EvidenceKind.LOG, text=item.text, source=f"{item.source}.pai.error", at=item.at)
                for item in evidence.pai_errors
                if item.source == source
            ][:6],
            confidence=0.8 if hits else 0.5,
            line=_pai_line(evidence, source, "REASON"),
            line_wording=hits[0].wording.id if hits else "",
        )
    return diagnosis
