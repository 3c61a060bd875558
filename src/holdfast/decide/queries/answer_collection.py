"""Collects the answers of several nodes to one request and merges them into one answer. Pure.

    collection.ask(action, now)                    wait for the answers; `parts` splits the request by node
    collection.hear(node, answer, now)             returns the merged answer when the last node has answered
    collection.due(now), collection.next_wake()    returns the merged answer without nodes that are late

At most one request of each kind is open; a new request replaces it. A job on one machine does not use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from holdfast.decide.gang_view import NAMED
from holdfast.explain.hangs.hang_judgement import with_stacks
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.check_results import MOST_NODES, CheckLine, ChecksTaken, CheckState
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    HangEvidence,
    HostFacts,
    LeftBehind,
    RankSnapshot,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence
from holdfast.model.faults import ActiveFault

#: Seconds that the nodes may take to send evidence, well below the owner's limit for evidence.
EVIDENCE_S = 10.0
#: Seconds that the nodes may take to report hook results, in addition to the time limits of the hooks.
HOOKS_S = 5.0
#: The shortest time between two progress events of a round of checks, in seconds.
MOVED_S = 0.2

Question = RunChecks | CollectEvidence | RunHooks
Answer = ev.ChecksFinished | ev.EvidenceCollected | ev.HooksFinished


class _OpenQuestion(msgspec.Struct):
    """A request to several nodes that some of them have not answered yet."""

    question: Question
    #: The nodes without an answer so far, in the order of the request.
    waits_for: dict[str, None]
    limit_s: float
    due: float
    answers: dict[str, Answer] = {}
    moved: dict[str, ev.ChecksMoved] = {}
    moved_at: float = 0.0


class AnswerCollection:
    """The open requests to the nodes of one job. Times are seconds on the clock of `now`."""

    def __init__(self) -> None:
        self._open: dict[type[Question], _OpenQuestion] = {}

    def ask(self, question: Question, now: float) -> None:
        """Begin to wait for the nodes' answers to this request."""
        limit_s = _limit_s(question)
        nodes = _nodes_of(question.evidence) if isinstance(question, CollectEvidence) else question.nodes
        waits_for = dict.fromkeys(nodes)
        self._open[type(question)] = _OpenQuestion(question, waits_for, limit_s, now + limit_s)

    def hear(self, node: str, word: ev.Event, now: float) -> ev.Event | None:
        """Record a node's answer. Return the event for the owner, or None while other nodes have not answered."""
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
        """Return when `due` will have an event; None if no request is open."""
        return min((asked.due for asked in self._open.values()), default=None)

    def due(self, now: float) -> Iterator[ev.Event]:
        """Yield the merged answers of the requests whose time is over."""
        for asked in [asked for asked in self._open.values() if asked.due <= now]:
            yield self._close(asked)

    # ---------------------------------------------------------------------------------- internal methods

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
            # A node ends its checks just before `deadline_s`. The owner waits a little longer, and the gang's limit is
            # later still.
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
    # If all nodes are silent, ask all of them, because some may be reachable again.
    return [node for node in nodes if node not in silent] or nodes


def parts(question: CollectEvidence) -> Iterator[tuple[str, CollectEvidence]]:
    """Yield (node, request for its evidence). Each request has only the data about that node, so that its size does not
    grow with the gang.

    Faults are left out, because each node knows its faults.
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


#: The owner keeps the full log readings of at most this many ranks, those that died first. Of each other rank it keeps
#: only the best clue.
MOST_READ = 1000
#: A fault known to a node and a fault known to the gang are the same if their times differ by at most this many
#: seconds.
SAME_FAULT_S = 2.0
#: The states of a check, worst first. If the nodes' states differ, the worst counts.
_WORST_FIRST = (
    "failed",
    "running",
    "paused until the next try",
    "waiting",
    "passed with a warning",
    "passed",
    "not run",
)


def named(names: Sequence[str]) -> str:
    """Return the first names and the number of the others: `gpu-1, gpu-2 and 5 more`."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


# ----------------------------------------------------------------------- merging the results of checks


def merged_checks(
    order: RunChecks, answers: Mapping[str, ev.ChecksFinished], missing: Sequence[str], limit_s: float
) -> ev.ChecksFinished:
    """Merge the nodes' results of a round of checks into one.

    `order`: the request for the round. `answers`: node → its result. `missing`: the nodes without a result after
    `limit_s`; the job avoids them.
    """
    in_order = [(node, answers[node]) for node in order.nodes if node in answers]
    failed = [(node, word) for node, word in in_order if word.state is CheckState.FAIL]
    # Failures that stop the job come first. The sort is stable, so other failures stay in the order of the nodes.
    failed.sort(key=lambda one: not one[1].fatal)
    failures = [failure for _, word in failed if (failure := word.failure) is not None]
    # Prefix device names with the node's name, because each node has a gpu0.
    nodes = frozenset(order.nodes)
    avoid = [
        name if name in nodes or name.startswith(f"{node}/") else f"{node}/{name}"
        for node, word in failed
        for name in word.avoid
    ]
    if missing:
        failures.append(_unanswered(missing, limit_s))
        avoid += missing
    warnings = _grouped([(node, text) for node, word in in_order for text in word.warnings])
    warnings += [f"{failure.check} failed too: {failure.message}" for failure in failures[1 : 1 + NAMED]]
    taken = [word.taken for _, word in in_order if word.taken is not None]
    met = answers.get(order.meet_on)
    state = _state([word.state for _, word in in_order]) if not missing else CheckState.FAIL
    return ev.ChecksFinished(
        attempt=order.attempt,
        round=order.round,
        state=state,
        failure=failures[0] if failures else None,
        avoid=tuple(dict.fromkeys(avoid)),
        fatal=any(word.fatal for _, word in failed),
        warnings=tuple(warnings),
        taken=replace(merged_taken(taken), state=state, by_node=_by_node(in_order)) if taken else None,
        meeting=met.meeting if met is not None else None,
        ports={name: ports for _, word in in_order for name, ports in word.ports.items()},
        cause=order.cause,
    )


def _by_node(answers: Sequence[tuple[str, ev.ChecksFinished]]) -> dict[str, tuple[CheckLine, ...]]:
    """Return node → the results of its checks, failed nodes first, for at most `MOST_NODES` nodes."""
    told = sorted(answers, key=lambda one: one[1].state is not CheckState.FAIL)
    return {node: word.taken.checks for node, word in told[:MOST_NODES] if word.taken is not None}


def merged_taken(rounds: Sequence[ChecksTaken]) -> ChecksTaken:
    """Merge the rounds of checks of several nodes into one. Each check gets its worst state, with the message of the
    node in that state.
    """
    lines: dict[str, list[CheckLine]] = {}
    for taken in rounds:
        for line in taken.checks:
            lines.setdefault(line.name, []).append(line)
    return ChecksTaken(
        state=_state([taken.state for taken in rounds]),
        reused=all(taken.reused for taken in rounds),
        checks=tuple(_worst(of_one) for of_one in lines.values()),
    )


def _worst(lines: Sequence[CheckLine]) -> CheckLine:
    worst = min(lines, key=lambda line: _WORST_FIRST.index(line.state) if line.state in _WORST_FIRST else -1)
    return replace(worst, tries=max(line.tries for line in lines), took_s=max(line.took_s for line in lines))


def _state(states: Sequence[CheckState]) -> CheckState:
    for state in (CheckState.FAIL, CheckState.CHECKING, CheckState.PASS):
        if state in states:
            return state
    return CheckState.DISABLED


def _unanswered(missing: Sequence[str], limit_s: float) -> CheckFailure:
    who = "the agent" if len(missing) == 1 else "the agents"
    return CheckFailure(
        check="all",
        message=f"{named(missing)}: no answer to the pre-checks within {limit_s:.0f} s",
        solution=f"Look at {who} on {named(missing)}, and see with `holdfast check` there which check does not end.",
        nodes=tuple(missing),
        blame="platform",
        inconclusive=True,
        elsewhere=True,
    )


def _grouped(said: Sequence[tuple[str, str]]) -> list[str]:
    """Merge equal warnings, and return each with the names of its nodes. `said`: (node, warning)."""
    nodes: dict[str, list[str]] = {}
    for node, text in said:
        nodes.setdefault(text.replace(f"{node}: ", "", 1), []).append(node)
    return [f"{named(who)}: {text}" for text, who in nodes.items()]


# -------------------------------------------------------------------------------------- merging evidence


def merged_evidence(
    known: AttemptEvidence, told: Mapping[str, AttemptEvidence], silent: Sequence[str], limit_s: float
) -> AttemptEvidence:
    """Merge the evidence of each node (`told`) into the gang's evidence (`known`). `silent`: the nodes that sent none
    within `limit_s`.
    """
    read = {worker.rank: worker for of_node in told.values() for worker in of_node.workers}
    workers = _bounded([_told(worker, read.get(worker.rank)) for worker in known.workers])
    nodes = list(told.items())
    ranks_of: dict[str, list[int]] = {}
    for worker in known.workers:
        ranks_of.setdefault(worker.node, []).append(worker.rank)
    return replace(
        known,
        workers=workers,
        faults=_faults(known, told),
        memory_kills=(*known.memory_kills, *(kill for _, of_node in nodes for kill in of_node.memory_kills)),
        kernel=(*known.kernel, *(line for _, of_node in nodes for line in of_node.kernel)),
        hang=_hang(known, told, workers, ranks_of),
        container=known.container or next((of_node.container for _, of_node in nodes if of_node.container), ""),
        pai_errors=tuple(_of_node(line, node) for node, of_node in nodes for line in of_node.pai_errors),
        flights=tuple(flight for _, of_node in nodes for flight in of_node.flights),
        store=known.store or next((of_node.store for _, of_node in nodes if of_node.store), ""),
        utc_offset_s=known.utc_offset_s,
        passed_on=tuple(sorted({number for _, of_node in nodes for number in of_node.passed_on})),
        checkpoints=tuple(dict.fromkeys(path for _, of_node in nodes for path in of_node.checkpoints)),
        surroundings=_surroundings(workers, told),
        beside=tuple(failure for _, of_node in nodes for failure in of_node.beside),
        leftovers=tuple(replace(one, node=node) for node, of_node in nodes for one in of_node.leftovers),
        unanswered=tuple(
            LeftBehind(node=node, silent_s=limit_s, ranks=tuple(ranks_of.get(node, ()))) for node in silent
        ),
    )


def _told(known: WorkerEvidence, said: WorkerEvidence | None) -> WorkerEvidence:
    """Return the evidence about one worker: the exit from the gang's evidence (`known`), the log reading from the
    node's evidence (`said`), if there is one.
    """
    if said is None:
        return known
    ended = known.exit
    if ended is not None and said.reading is not None:
        ended = replace(ended, last_words="", last_words_stream="", error_file="")
    return replace(said, role=known.role, node=known.node, exit=ended, start_failed=known.start_failed)


def _bounded(workers: Sequence[WorkerEvidence]) -> tuple[WorkerEvidence, ...]:
    if len(workers) <= MOST_READ:
        return tuple(workers)
    whole = {worker.rank for worker in sorted(workers, key=_died)[:MOST_READ]}
    return tuple(worker if worker.rank in whole else _brief(worker) for worker in workers)


def _brief(worker: WorkerEvidence) -> WorkerEvidence:
    said = worker.reading
    if said is None:
        return worker
    return replace(worker, reading=replace(said, clues=said.clues[:1], weaker=(), notes=said.notes[:1], own_matches=()))


def _died(worker: WorkerEvidence) -> float:
    ended = worker.exit
    return float("inf") if ended is None or ended.ok or ended.ended_at is None else ended.ended_at


def _of_node(line: Evidence, node: str) -> Evidence:
    return line if line.node else replace(line, node=node)


def _faults(known: AttemptEvidence, told: Mapping[str, AttemptEvidence]) -> tuple[ActiveFault, ...]:
    """Return the faults that the gang knows, and those that only the nodes report. `told`: node → its evidence."""
    found = list(known.faults)
    for node, of_node in told.items():
        for fault in of_node.faults:
            event = fault.event if fault.event.node else replace(fault.event, node=node)
            if not any(_same(event.node, fault, other) for other in known.faults):
                found.append(replace(fault, event=event))
    return tuple(found)


def _same(node: str, one: ActiveFault, other: ActiveFault) -> bool:
    mine, its = one.event, other.event
    return (
        its.node in ("", node)
        and (mine.device, mine.code, mine.assertion) == (its.device, its.code, its.assertion)
        and abs(mine.at - its.at) <= SAME_FAULT_S
    )


def _hang(
    known: AttemptEvidence,
    told: Mapping[str, AttemptEvidence],
    workers: Sequence[WorkerEvidence],
    ranks_of: Mapping[str, Sequence[int]],
) -> HangEvidence | None:
    """Return the evidence of a hang. If no sample has stacks, use the stacks that the workers wrote during the stop.
    `known`: the gang's evidence; `told`: node → its evidence; `ranks_of`: node → its ranks.
    """
    hang = known.hang
    if hang is None or _has_stacks(hang.looks):
        return hang
    found = {
        (place, shot.rank): shot
        for node, of_node in told.items()
        if of_node.hang is not None
        for place, look in enumerate(of_node.hang.looks)
        for shot in look
        if shot.rank in ranks_of.get(node, ())
    }
    looks = [
        tuple(_with_frames(shot, found.get((place, shot.rank))) for shot in look)
        for place, look in enumerate(hang.looks)
    ]
    if not _has_stacks(looks):
        return hang
    exits = [worker.exit for worker in workers if worker.exit is not None]
    began = min((ended.started_at for ended in exits if ended.started_at is not None), default=0.0)
    return with_stacks(hang, looks, began, [ended.rank for ended in exits if ended.ok and not ended.after_stop])


def _with_frames(shot: RankSnapshot, said: RankSnapshot | None) -> RankSnapshot:
    return shot if said is None else replace(shot, threads=said.threads, stack_source=said.stack_source)


def _has_stacks(looks: Sequence[tuple[RankSnapshot, ...]]) -> bool:
    return any(thread.frames for look in looks for shot in look for thread in shot.threads)


def _surroundings(workers: Sequence[WorkerEvidence], told: Mapping[str, AttemptEvidence]) -> HostFacts | None:
    """Return the host facts of the node where a worker died first; if it sent none, those of any node. `told`: node →
    its evidence.
    """
    nodes = dict.fromkeys(worker.node for worker in sorted(workers, key=_died))
    found = (told[node].surroundings for node in nodes if node in told)
    return next((surroundings for surroundings in found if surroundings is not None), None)
