"""Explains OOM kills: which rank was killed, by which memory limit, and whether another rank may be the killed one."""

from __future__ import annotations

from holdfast.explain.causes.attribution import Attribution, after_stop, kill_of, of_node
from holdfast.explain.causes.diagnosis import Diagnosis, who_of
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence, MemoryKill
from holdfast.model.exit_report import DecidingLine, Evidence, EvidenceKind, Trigger, WorkerExit
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, Weight

#: The texts in which docker, podman and Kubernetes report that a container exceeded its memory limit.
_OOM_KILLED = Lazy(
    r"(?i)\boom_?killed[\"']?\s*[:=]\s*[\"']?true\b|\breason[\"']?\s*[:=]\s*[\"']?OOMKilled\b|^\s*OOMKilled\W*$"
)


def memory_killed(evidence: AttemptEvidence, who: Attribution, matcher: Matcher) -> Diagnosis | None:
    """Diagnose an OOM kill of the culprit or of one of its child processes; None: no such kill."""
    suspect = who.culprit
    kills = evidence.memory_kills or _told_by_engine(evidence)
    if not kills or suspect is None or suspect.exit is None:
        return None
    ended = suspect.exit
    kill = kill_of(ended, kills)
    by_kill = ended.signal == 9 or ended.exit_code == 137
    if kill is None:
        # An OOM kill without a rank may explain a worker that SIGKILL ended, or a worker whose log reports a killed
        # child.
        loose = [k for k in kills if k.rank is None and of_node(ended, k.node)]
        said = suspect.reading.best
        child = said is not None and said.phrase in (Phrase.HOST_OUT_OF_MEMORY_KILLED, Phrase.KILLED_BY_SIGNAL)
        if not loose or not (by_kill or child):
            return None
        kill = loose[0]
    elif not by_kill and _names_another(suspect.reading.best):
        return None  # the kernel killed a child process, and the worker's log names another cause
    row = matcher.catalogue.row(Phrase.HOST_OUT_OF_MEMORY_KILLED)
    name = who_of(ended.role, ended.rank, ended.node)
    return Diagnosis(
        Phrase.HOST_OUT_OF_MEMORY_KILLED,
        row,
        Trigger.KERNEL if evidence.memory_kills else Trigger.CONTAINER,
        reason=f"{name}: {sentences.kill_words(kill)}{_which(kill, ended, evidence)}",
        evidence=[Evidence(kind=EvidenceKind.MEMORY, text=kill.text, source=kill.source, at=kill.at, node=kill.node)],
        worker=suspect.reading.worker,
        exit=ended,
        collateral=who.collateral,
        rerun=None,
        line=DecidingLine(text=kill.text, source=kill.source),
    )


def _told_by_engine(evidence: AttemptEvidence) -> tuple[MemoryKill, ...]:
    """Return the OOM kill that the container's status reports, if the kernel and the control groups report none."""
    if not _OOM_KILLED.search(evidence.container):
        return ()
    return (MemoryKill(source="container status", text=evidence.container, scope="container"),)


def _names_another(best: Clue | None) -> bool:
    return (
        best is not None
        and best.weight <= Weight.DEATH
        and best.phrase not in (Phrase.HOST_OUT_OF_MEMORY_KILLED, Phrase.KILLED_BY_SIGNAL)
    )


def _which(kill: MemoryKill, ended: WorkerExit, evidence: AttemptEvidence) -> str:
    """Return a clause that names the other ranks that the OOM kill may have hit.

    Ranks in one control group share its kill counter, so the victim may be unknown. Empty: the victim is known.
    """
    exits = [worker.exit for worker in evidence.workers if worker.exit is not None]
    killed = [
        each.rank for each in exits if each.signal == 9 and not after_stop(each, evidence) and of_node(each, kill.node)
    ]
    if not kill.count or ended.rank not in killed or len(killed) <= kill.count:
        return ""
    counted = "1 memory kill was counted" if kill.count == 1 else f"{kill.count} memory kills were counted"
    return f"; {counted}, {sentences.ranks(killed)} ended by SIGKILL: which of them it was is not known"
