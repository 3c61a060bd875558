"""Merges the answers of several nodes: their rounds of checks, and their evidence. Pure.

A node's statements get the node's name. The gang's own knowledge (exits, their dates, the stop) stays unchanged; a node
only adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.decide.gang_view import NAMED
from holdfast.explain.hang_judgement import with_stacks
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
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

#: The owner keeps the whole reading of the logs of this many ranks, those that died first; of the others the best clue.
MOST_READ = 1000
#: Seconds. A fault of a node and a fault that the gang knows are the same if their dates differ by at most this.
SAME_FAULT_S = 2.0
#: The order of a check's states: of its states on several nodes the report shows the first in this order.
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
    """Return the names as `gpu-1, gpu-2 and 5 more`."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


# ---------------------------------------------------------------------------------------------- checks


def merged_checks(
    order: RunChecks, answers: Mapping[str, ev.ChecksFinished], missing: Sequence[str], limit_s: float
) -> ev.ChecksFinished:
    """Merge the nodes' results into one. `missing`: nodes that gave no answer within `limit_s`; the job avoids them."""
    in_order = [(node, answers[node]) for node in order.nodes if node in answers]
    failed = [(node, word) for node, word in in_order if word.state is CheckState.FAIL]
    # A failure that stops the job comes first; among equals the first node's.
    failed.sort(key=lambda one: not one[1].fatal)
    failures = [failure for _, word in failed if (failure := word.failure) is not None]
    # Add the node's name to its device names, because each node has a gpu0.
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
    """Return each node's lines, failed nodes first, for at most `MOST_NODES` nodes."""
    told = sorted(answers, key=lambda one: one[1].state is not CheckState.FAIL)
    return {node: word.taken.checks for node, word in told[:MOST_NODES] if word.taken is not None}


def merged_taken(rounds: Sequence[ChecksTaken]) -> ChecksTaken:
    """Merge rounds into one: for each check the most important of its states on the nodes, with that message."""
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
    """Return the warnings with their nodes' names; a warning of several nodes appears once. `said`: (node, warning)."""
    nodes: dict[str, list[str]] = {}
    for node, text in said:
        nodes.setdefault(text.replace(f"{node}: ", "", 1), []).append(node)
    return [f"{named(who)}: {text}" for text, who in nodes.items()]


# ---------------------------------------------------------------------------------------------- evidence


def merged_evidence(
    known: AttemptEvidence, told: Mapping[str, AttemptEvidence], silent: Sequence[str], limit_s: float
) -> AttemptEvidence:
    """Return the gang's evidence with each node's additions. `silent`: nodes that sent none within `limit_s`."""
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
        unanswered=tuple(
            LeftBehind(node=node, silent_s=limit_s, ranks=tuple(ranks_of.get(node, ()))) for node in silent
        ),
    )


def _told(known: WorkerEvidence, said: WorkerEvidence | None) -> WorkerEvidence:
    """Merge the gang's knowledge of a worker (how and when it ended) with the node's reading of the worker's log."""
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
    """Return the faults that the gang knows, unchanged, and the new ones that the nodes report."""
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
    """Return the hang. If no look has stacks, add the stacks that workers wrote when they were stopped."""
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
    """Return the host facts of the node whose worker died first, else of any node."""
    nodes = dict.fromkeys(worker.node for worker in sorted(workers, key=_died))
    found = (told[node].surroundings for node in nodes if node in told)
    return next((surroundings for surroundings in found if surroundings is not None), None)
