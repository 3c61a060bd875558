"""Explains exits that the process's resource limits (ulimit, setrlimit) caused: CPU time, file size, memory."""

from __future__ import annotations

from msgspec.structs import replace as replaced

from holdfast.catalogue.exit_codes import signal_code
from holdfast.explain.causes.diagnosis import Diagnosis, who_of
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.model.exit_report import LimitKind, ProcessLimit, Rerun, WorkerExit, signal_name
from holdfast.model.phrases import Phrase

SIGKILL, SIGXCPU, SIGXFSZ = 9, 24, 25
#: Fraction of its CPU limit at which a process may already be killed, because the kernel counts CPU time in two ways.
ENOUGH = 0.9
_SIGNALLED = (Phrase.KILLED_BY_SIGNAL, Phrase.UNEXPLAINED, Phrase.PROCESS_LIMIT_REACHED)
#: Kind of limit → the limit's name, its option of the shell's `ulimit`, and its constant in Python's `resource`.
_WORDS = {
    LimitKind.CPU: ("CPU time", "ulimit -t", "RLIMIT_CPU"),
    LimitKind.FILE: ("file size", "ulimit -f", "RLIMIT_FSIZE"),
    LimitKind.ADDRESS_SPACE: ("address space", "ulimit -v", "RLIMIT_AS"),
    LimitKind.DATA: ("data segment", "ulimit -d", "RLIMIT_DATA"),
}


def limit_reached(diagnosis: Diagnosis, matcher: Matcher) -> Diagnosis:
    """Return a diagnosis that names the resource limit, if one caused the culprit's exit; else the diagnosis as it
    is."""
    ended = diagnosis.exit
    if ended is None:
        return diagnosis
    sig = ended.ended_by
    if diagnosis.phrase in _SIGNALLED and sig in (SIGXCPU, SIGXFSZ):
        kind = LimitKind.CPU if sig == SIGXCPU else LimitKind.FILE
        return _named(diagnosis, ended, kind, _limit(ended, kind), matcher)
    if diagnosis.phrase == Phrase.KILLED_BY_SIGNAL and sig == SIGKILL:
        cpu = _limit(ended, LimitKind.CPU)
        if cpu is not None and cpu.hard and ended.cpu_s is not None and ended.cpu_s >= ENOUGH * cpu.hard:
            return _named(diagnosis, ended, LimitKind.CPU, cpu, matcher)
    if diagnosis.phrase == Phrase.PROCESS_LIMIT_REACHED and (size := _limit(ended, LimitKind.FILE)) is not None:
        return _named(diagnosis, ended, LimitKind.FILE, size, matcher)
    if diagnosis.phrase == Phrase.HOST_ALLOCATION_FAILED:
        for kind in (LimitKind.ADDRESS_SPACE, LimitKind.DATA):
            if (memory := _limit(ended, kind)) is not None:
                return _named(diagnosis, ended, kind, memory, matcher)
    return diagnosis


def _limit(ended: WorkerExit, kind: LimitKind) -> ProcessLimit | None:
    return next((limit for limit in ended.limits if limit.kind is kind), None)


def _named(
    diagnosis: Diagnosis, ended: WorkerExit, kind: LimitKind, limit: ProcessLimit | None, matcher: Matcher
) -> Diagnosis:
    what, option, name = _WORDS[kind]
    hard = limit is not None and ended.ended_by == SIGKILL and limit.hard is not None
    number = None if limit is None else limit.hard if hard else limit.soft
    if number is not None and limit is not None and not limit.inherited and ended.signal == SIGXCPU:
        number -= 1  # after SIGXCPU the kernel has raised the limit by one second
    value = _value(kind, number) if number is not None else ""
    which = f"its {'hard ' if hard else ''}limit of {what}" + (f", {value} ({option})" if value else f" ({option})")
    how = f"{signal_name(ended.ended_by)}: " if ended.ended_by is not None else ""
    used = f" after {sentences.seconds(ended.cpu_s)} of CPU time" if kind is LimitKind.CPU and ended.cpu_s else ""
    if limit is None:
        origin = ""
    elif limit.inherited:
        origin = "; holdfast was started with this limit"
    else:
        origin = f"; the program or its command set this limit ({option}, {name})"
    row = matcher.catalogue.row(Phrase.PROCESS_LIMIT_REACHED)
    better = replaced(
        diagnosis,
        phrase=Phrase.PROCESS_LIMIT_REACHED,
        row=row,
        reason=f"{who_of(ended.role, ended.rank, ended.node)}: {how}it reached {which}{used}{origin}",
        solution=_solution(option, name, limit),
        rerun=Rerun.NEVER,
        blame=None,
        code=signal_code(ended.signal) if ended.signal is not None else None,
    )
    if better.wording is not None and diagnosis.phrase != Phrase.PROCESS_LIMIT_REACHED:
        better.wording = None
    return better


def _solution(option: str, name: str, limit: ProcessLimit | None) -> str:
    if limit is not None and not limit.inherited:
        return f"Raise or remove the limit where the program or its command sets it ({option}, resource.{name})."
    return (
        f"Start holdfast without the limit: `{option} unlimited` in the shell or script that starts it; under Slurm"
        " `#SBATCH --propagate=NONE`, since it passes on the limits of the shell that submits; in a container --ulimit."
    )


def _value(kind: LimitKind, number: float) -> str:
    return sentences.seconds(number) if kind is LimitKind.CPU else sentences.size_in_words(number)
