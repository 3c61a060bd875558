"""Collects the answers of several nodes to one request and merges them into one answer. Pure.

    collection.ask(action, now)                    wait for the answers; `parts` splits the request by node
    collection.hear(node, answer, now)             returns the merged answer when the last node has answered
    collection.due(now), collection.next_wake()    returns the merged answer without nodes that are late

At most one request of each kind is open: a new one replaces it. A job on one machine does not use this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec
from msgspec.structs import replace

from holdfast.decide.answer_merging import merged_checks, merged_evidence, merged_taken
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence

#: Seconds that the nodes may take to send evidence: well below the owner's own time limit for it.
EVIDENCE_S = 10.0
#: Seconds that the nodes may take to answer, in addition to the time limits of the hooks.
HOOKS_S = 5.0
#: Minimum seconds between two progress events of a running round.
MOVED_S = 0.2

Question = RunChecks | CollectEvidence | RunHooks
Answer = ev.ChecksFinished | ev.EvidenceCollected | ev.HooksFinished


class _OpenQuestion(msgspec.Struct):
    """A request that not all nodes have answered."""

    question: Question
    #: The nodes that have not answered, in order.
    waits_for: dict[str, None]
    limit_s: float
    due: float
    answers: dict[str, Answer] = {}
    moved: dict[str, ev.ChecksMoved] = {}
    moved_at: float = 0.0


class AnswerCollection:
    """The open requests of one job. Times are seconds on the clock of `now`."""

    def __init__(self) -> None:
        self._open: dict[type[Question], _OpenQuestion] = {}

    def ask(self, question: Question, now: float) -> None:
        """Start to wait for the nodes' answers to this request."""
        limit_s = _limit_s(question)
        nodes = _nodes_of(question.evidence) if isinstance(question, CollectEvidence) else question.nodes
        waits_for = dict.fromkeys(nodes)
        self._open[type(question)] = _OpenQuestion(question, waits_for, limit_s, now + limit_s)

    def hear(self, node: str, word: ev.Event, now: float) -> ev.Event | None:
        """Take a node's answer. Return the event for the owner, or None while other nodes have not answered."""
        match word:
            case ev.ChecksFinished():
                asked = self._asked(RunChecks, node)
                if asked is None or (word.attempt, word.round) != _number(asked.question):
                    return None
            case ev.EvidenceCollected():
                asked = self._asked(CollectEvidence, node)
                if asked is None or word.attempt != asked.question.attempt:
                    return None
            case ev.HooksFinished():
                asked = self._asked(RunHooks, node)
                if asked is None or word.attempt != asked.question.attempt:
                    return None
            case ev.ChecksMoved():
                return self._moved(node, word, now)
            case _:
                return word
        asked.answers[node] = word
        del asked.waits_for[node]
        return None if asked.waits_for else self._close(asked)

    def next_wake(self) -> float | None:
        """Return when `due` has an event; None: no request is open."""
        return min((asked.due for asked in self._open.values()), default=None)

    def due(self, now: float) -> Iterator[ev.Event]:
        """Yield the merged answers of the requests whose time is over."""
        for asked in [asked for asked in self._open.values() if asked.due <= now]:
            yield self._close(asked)

    # ------------------------------------------------------------------------------------------ inside

    def _asked(self, kind: type[Question], node: str) -> _OpenQuestion | None:
        asked = self._open.get(kind)
        return asked if asked is not None and node in asked.waits_for else None

    def _moved(self, node: str, word: ev.ChecksMoved, now: float) -> ev.Event | None:
        asked = self._asked(RunChecks, node)
        if asked is None or (word.attempt, word.round) != _number(asked.question):
            return None
        asked.moved[node] = word
        if now < asked.moved_at + MOVED_S:
            return None
        asked.moved_at = now
        return ev.ChecksMoved(
            attempt=word.attempt, round=word.round, taken=merged_taken([moved.taken for moved in asked.moved.values()])
        )

    def _close(self, asked: _OpenQuestion) -> ev.Event:
        question = asked.question
        del self._open[type(question)]
        match question:
            case RunChecks():
                checked = {node: word for node, word in asked.answers.items() if isinstance(word, ev.ChecksFinished)}
                return merged_checks(question, checked, tuple(asked.waits_for), asked.limit_s)
            case CollectEvidence():
                told = {
                    node: word.evidence
                    for node, word in asked.answers.items()
                    if isinstance(word, ev.EvidenceCollected)
                }
                evidence = merged_evidence(question.evidence, told, tuple(asked.waits_for), asked.limit_s)
                return ev.EvidenceCollected(attempt=question.attempt, evidence=evidence, cause=question.cause)
            case RunHooks():
                ran = [word for word in asked.answers.values() if isinstance(word, ev.HooksFinished)]
                failures = tuple(failure for word in ran for failure in word.failures)
                return ev.HooksFinished(
                    attempt=question.attempt,
                    failures=failures,
                    unanswered=tuple(asked.waits_for),
                    cause=question.cause,
                )
            case _:
                assert_never(question)


def _number(question: Question) -> tuple[int, int]:
    return (question.attempt, question.round) if isinstance(question, RunChecks) else (question.attempt, 0)


def _limit_s(question: Question) -> float:
    match question:
        case RunChecks():
            # Each node's round ends just before `deadline_s`. This limit is later than that, and earlier than the
            # gang's.
            return question.deadline_s - min(0.5, question.deadline_s / 20) + question.fetch_s
        case CollectEvidence():
            return EVIDENCE_S
        case RunHooks():
            within_s = question.limit_s if question.within_s is None else min(question.limit_s, question.within_s)
            return within_s + HOOKS_S
        case _:
            assert_never(question)


def _nodes_of(evidence: AttemptEvidence) -> Iterable[str]:
    silent = {lost.node for lost in evidence.lost if lost.silent_s > 0 or lost.gone}
    nodes = dict.fromkeys(worker.node for worker in evidence.workers)
    # If all nodes are silent, ask them all: one may have come back.
    return [node for node in nodes if node not in silent] or nodes


def parts(question: CollectEvidence) -> Iterator[tuple[str, CollectEvidence]]:
    """Yield (node, request for its evidence), without the data of other nodes: a request must not grow with the gang.

    Faults are left out as well, because each node knows its own faults.
    """
    known = question.evidence
    mine: dict[str, list[WorkerEvidence]] = {}
    for worker in known.workers:
        mine.setdefault(worker.node, []).append(worker)
    for node in _nodes_of(known):
        hang = known.hang
        if hang is not None:
            ranks = {worker.rank for worker in mine[node]}
            looks = tuple(tuple(shot for shot in look if shot.rank in ranks) for look in hang.looks)
            hang = replace(hang, looks=looks)
        own = {node: known.addresses[node]} if node in known.addresses else {}
        part = replace(known, workers=tuple(mine[node]), faults=(), lost=(), hang=hang, addresses=own, muster=None)
        yield node, replace(question, evidence=part)
