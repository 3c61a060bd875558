"""Ranks that end alike: none of them is the cause of the others, so none is named.

A rank that exits with a plain status and no known word gives the others half a second. Those that leave in it by
themselves, with the same status, left for the same reason and not because of the first: a configuration that all of
them refuse, a file that all of them miss.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.attribution import AFTER_SILENCE_S, Attribution, Kind, Suspect, kind_of
from holdfast.explain.draft import Draft
from holdfast.explain.reading import Reading
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exits import Evidence, EvidenceKind, Original
from holdfast.model.phrases import Phrase

_SHOWN = 8
"""Of so many ranks the ends are listed."""


def ended_alike(who: Attribution, readings: Sequence[Reading], evidence: AttemptEvidence) -> list[Suspect]:
    """Two or more that ended by themselves, with one status, at one time and for no known reason; else none."""
    if who.culprit is None or who.culprit.kind is not Kind.SILENT:
        return []
    suspects = [Suspect(reading, reading.worker.exit, kind_of(reading, evidence)) for reading in readings]
    active = [suspect for suspect in suspects if suspect.kind is not Kind.NONE]
    if len(active) < 2 or any(suspect.kind is not Kind.SILENT for suspect in active):
        return []
    codes = {suspect.exit.exit_code for suspect in active if suspect.exit is not None}
    died = [suspect.died[0] for suspect in active]
    if len(codes) > 1 or codes == {None} or max(died) - min(died) > AFTER_SILENCE_S:
        return []
    return active


def together(draft: Draft, fellows: Sequence[Suspect], evidence: AttemptEvidence) -> Draft:
    """The draft of one of them, told of all of them: no culprit, and no rank that ended because of it."""
    code = fellows[0].exit.exit_code if fellows[0].exit is not None else None
    died = [suspect.died[0] for suspect in fellows]
    span_ms = max(1, round(1000 * (max(died) - min(died))))
    everybody = len(evidence.workers)
    who = f"all {everybody} ranks" if len(fellows) == everybody else f"{len(fellows)} of {everybody} ranks"
    said = [line for suspect in fellows if (line := suspect.reading.last_line) is not None]
    spoke = bool(said) or any(suspect.reading.said.spoke for suspect in fellows)
    words = "and nothing known in their logs says why" if spoke else "and printed nothing"
    draft.reason = f"{who} exited with status {code} within {span_ms} ms {words}"
    if draft.meaning:
        draft.reason += f"; status {code}, {draft.meaning}"
    elif draft.phrase == Phrase.UNEXPLAINED:
        draft.solution = (
            "Look at what these ranks share at this point: their arguments, their configuration, a file or service that"
            " each of them needs. Have the program say why before it exits: raise an exception, or write to stderr."
        )
    ends = [
        Evidence(kind=EvidenceKind.EXIT_CODE, text=ended.how, source=f"{ended.role}-{ended.rank}", at=ended.ended_at)
        for suspect in fellows[:_SHOWN]
        if (ended := suspect.exit) is not None
    ]
    draft.evidence = [*said[:2], *ends]
    draft.original = Original(exit_code=code)
    draft.alike = tuple(suspect.rank for suspect in fellows)
    draft.worker = draft.exit = draft.rank = None
    draft.collateral = ()
    return draft
