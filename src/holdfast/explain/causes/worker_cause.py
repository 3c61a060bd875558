"""Finds the cause in the culprit's logs and exit; if only logs are known, in all logs together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.catalogue.exit_codes import signal_code
from holdfast.catalogue.exit_rows import Where
from holdfast.explain.causes.attribution import Attribution, Suspect, of_node
from holdfast.explain.causes.bare_status import (
    CRASHES,
    bare_status,
    left_early,
    missing_command,
    signal_reason,
    unexplained,
)
from holdfast.explain.causes.common_failure import (
    all_raised,
    ended_alike,
    of_a_device,
    raised_alike,
    raised_by,
    said_by_all,
    same_exception,
    together,
)
from holdfast.explain.causes.diagnosis import Diagnosis, culprit_of, quoted_line, who_of
from holdfast.explain.causes.exits_from_logs import HARD, with_notes
from holdfast.explain.causes.orderly_cause import ended_in_order, in_order
from holdfast.explain.logs.clue_ranking import SIGNALLED, gave_up_on_a_peer, key, specific_first, wording_of
from holdfast.explain.logs.launcher_notes import first_failure, telling
from holdfast.explain.logs.log_reader import Reading, read_worker_logs
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import (
    Blame,
    Culprit,
    Evidence,
    Original,
    OtherRule,
    Rerun,
    Trigger,
    WorkerExit,
    signal_name,
)
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndNote, LinePlace, Weight, WorkerReading


def of_worker(who: Attribution, readings: Sequence[Reading], evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Diagnose a culprit whose exit the operating system reported."""
    suspect = who.culprit
    assert suspect is not None  # the caller has checked that there is a culprit
    reading, ended = suspect.reading, suspect.exit
    if who.left_early and ended is not None:
        diagnosis = left_early(ended, who, matcher)
    else:
        diagnosis = (
            _contract(ended, matcher, reading.last_line)
            or _not_there(reading, ended, matcher)
            or _from_words(reading, ended, matcher)
            or bare_status(reading, ended, matcher, several=len(readings) > 1)
        )
    if fellows := ended_alike(who, readings, evidence):
        return together(diagnosis, fellows, evidence)
    diagnosis.worker = reading.worker
    diagnosis.exit = ended
    if not of_a_device(diagnosis) and (ranks := same_exception(suspect, readings, evidence, diagnosis)):
        return all_raised(diagnosis, ranks, len(evidence.workers))
    diagnosis.collateral = who.collateral
    diagnosis.also = [culprit_of(other.exit) for other in who.also if other.exit is not None]
    diagnosis.confidence = min(diagnosis.confidence, who.confidence)
    if diagnosis.also:
        names = sentences.ranks([other.rank for other in diagnosis.also])
        diagnosis.remark = f"{names} ended at the same moment with equal evidence: either may be the first"
    elif who.missing is not None and diagnosis.phrase == Phrase.COLLECTIVE_TIMEOUT:
        _never_joined(diagnosis, who.missing, evidence)
    elif who.why and not who.left_early:
        diagnosis.remark = who.why
    if diagnosis.phrase == Phrase.KILLED_BY_SIGNAL and ended is not None and ended.signal in evidence.passed_on:
        diagnosis.reason, diagnosis.solution = _passed_on(ended)
    if diagnosis.phrase == Phrase.NATIVE_CRASH and not diagnosis.remark and (place := reading.said.crashed_in):
        diagnosis.remark = f"Python was in {place}"
    return diagnosis


def _passed_on(ended: WorkerExit) -> tuple[str, str]:
    """Return the report's reason and solution for a signal that holdfast forwarded to a worker without a handler for
    it."""
    name, who = signal_name(ended.signal or 0), who_of(ended.role, ended.rank, ended.node)
    reason = f"{who}: ended by {name}, which holdfast had got and passed on to the workers; it has no handler for it"
    return reason, f"Handle it (signal.signal(signal.{name}, …)), or have the scheduler send none (Slurm: --signal)."


def _never_joined(diagnosis: Diagnosis, missing: Suspect, evidence: AttemptEvidence) -> None:
    """Change the diagnosis to blame the only rank that still ran when all others had stopped waiting.

    The blame is not certain: this rank may have waited too, with a watchdog that had not reported it yet.
    """
    waited = [
        worker.rank
        for worker in evidence.workers
        if worker.exit is not None and not worker.exit.ok and worker.rank != missing.rank
    ]
    name = who_of(missing.reading.worker.role, missing.rank, missing.reading.worker.node)
    said = sentences.one_line(diagnosis.cause.line.text, 240) if diagnosis.cause is not None else ""
    diagnosis.reason = f"{sentences.ranks(waited)} timed out in a collective" + (f" ({said})" if said else "")
    diagnosis.reason += f"; {name} alone still ran then and had not reported a wait: most likely it never joined them"
    diagnosis.exit, diagnosis.rank = None, missing.rank
    diagnosis.collateral = tuple(sorted(waited))
    diagnosis.original = Original()
    diagnosis.confidence = 0.5


def of_logs(readings: Sequence[Reading], evidence: AttemptEvidence, matcher: Matcher) -> Diagnosis:
    """Diagnose the attempt if only logs are known: the strongest cause in all logs; among equally strong causes, the
    earliest."""
    causes = [(cause, reading) for reading in readings for cause in with_notes(reading.said)]
    kernel_log = Reading(WorkerEvidence(), WorkerReading())
    causes += [(clue, kernel_log) for clue in _kernel_clues(evidence.kernel, matcher)]
    places = {id(reading): place for place, reading in enumerate(readings)}
    ended = next((worker.exit for worker in evidence.workers if worker.exit is not None), None)
    if diagnosis := _contract(ended, matcher) or (readings and _not_there(readings[0], ended, matcher)):
        return diagnosis
    root = first_failure([note for each in readings for note in each.said.notes])
    causes = [pair for pair in causes if root is None or not _followed(pair[0], root)]
    strongest = min((cause.weight for cause, _ in causes), default=None)
    gave_up = gave_up_on_a_peer(cause for cause, _ in causes)
    stopped = any(cause.phrase == Phrase.STOPPED_BY_OPERATOR for cause, _ in causes)
    if ended is not None and _status_says_more(ended, strongest, gave_up=gave_up, stopped=stopped):
        diagnosis = bare_status(readings[0], ended, matcher)
        diagnosis.original = _original_of(ended)
        return diagnosis
    ended_well = ended is None or ended.ok
    if ended_well and (orderly := in_order(readings, min((cause for cause, _ in causes), key=key, default=None))):
        return ended_in_order(orderly, matcher)
    if not causes:
        diagnosis = _of_root(root, matcher) if root is not None and ended is None else None
        diagnosis = diagnosis or unexplained(readings, matcher)
        if ended is not None:
            diagnosis.original = _original_of(ended)
            diagnosis.reason += f"; it ended with {ended.how}"
        return diagnosis
    causes.sort(key=lambda pair: _order(pair[0], places.get(id(pair[1]), len(readings)), several=len(readings) > 1))
    best = specific_first([cause for cause, _ in causes], matcher.catalogue)[0]
    reading = next(each for cause, each in causes if cause is best)
    told_by = telling([note for each in readings for note in each.said.notes])
    if best.phrase == Phrase.UNEXPLAINED and told_by is not None:
        # Prefer the launcher's line to the clue, because it names the rank and its status.
        return (_of_root(root, matcher) if root is not None else None) or unexplained(readings, matcher)
    diagnosis = _aborted_while_waiting(best, reading, matcher) or _diagnosis(best, matcher)
    diagnosis.worker = reading.worker
    diagnosis.rank = best.rank if best.rank is not None else (_rank_of_file(reading) if len(readings) > 1 else None)
    if diagnosis.rank is None and root is not None and best.weight is not Weight.EVENT:
        diagnosis.rank = root.rank
    if ended is not None:
        diagnosis.original = _original_of(ended)
    elif best.note is not None:
        diagnosis.original = Original(
            exit_code=best.note.exit_code, signal=signal_name(best.note.signal) if best.note.signal else None
        )
    _name_signal(diagnosis, best, reading)
    diagnosis.confidence = _confidence(best)
    rivals = [
        cause
        for cause, _ in causes
        if cause.weight is best.weight and cause.phrase != best.phrase and cause.rank not in (None, diagnosis.rank)
        and best.weight in (Weight.DEATH, Weight.OWN) and cause.line.moment == best.line.moment
    ]  # fmt: skip
    if rivals and diagnosis.rank is not None:
        diagnosis.also = [Culprit(role="worker", rank=c.rank, node="") for c in rivals if c.rank is not None]
        diagnosis.confidence = round(1.0 / (1 + len(rivals)), 2)
        diagnosis.remark = (
            f"{sentences.ranks([other.rank for other in diagnosis.also])} shows another cause of equal weight"
        )
    ranks = {rank for each in readings for rank in each.said.ranks}
    if len(readings) > 1:
        ranks |= {_rank_of_file(other) for other in readings if other.said.clues or other.said.notes}
    diagnosis.collateral = tuple(sorted(ranks - {diagnosis.rank}))[:4096] if diagnosis.rank is not None else ()
    told = [
        (rank, cause)
        for cause, each in causes
        if (rank := cause.rank if cause.rank is not None else _rank_of_file(each) if len(readings) > 1 else None)
        is not None
    ]
    alike = () if of_a_device(diagnosis) else raised_alike(best, [(rank, raised_by(cause)) for rank, cause in told])
    if alike and {rank for rank, cause in told if cause.weight <= best.weight} == set(alike):
        return all_raised(diagnosis, alike, len(ranks | set(alike)))
    if len(readings) > 1 and not of_a_device(diagnosis) and (alike := said_by_all(best, told)):
        return all_raised(diagnosis, alike, len(alike))
    return diagnosis


def _aborted_while_waiting(best: Clue, reading: Reading, matcher: Matcher) -> Diagnosis | None:
    """Diagnose a hang, if a process that waited was ended by SIGABRT: its own code aborts a process only while it runs.

    Holdfast and other watchdogs end a hung process so, because faulthandler then prints the stacks.
    """
    place = reading.said.crashed_in
    if best.phrase != Phrase.NATIVE_CRASH or _ABORTED.match(best.line.text) is None or _WAITS.match(place) is None:
        return None
    row = matcher.catalogue.row(Phrase.HUNG_WORKER)
    reason = f"{who_of('worker', best.rank, '')}: ended by SIGABRT while it waited in {place}; most likely it hung"
    return Diagnosis(Phrase.HUNG_WORKER, row, Trigger.LOG, reason=reason, cause=best)


_ABORTED = Lazy(r"Fatal Python error: Aborted")
_WAITS = Lazy(
    r"_?(?:wait\w*|recv\w*|accept|acquire|select|poll|sleep|join|barrier|all_reduce|all_gather\w*|all_to_all\w*|broadcast"
    r"|reduce\w*|synchronize|_wait_for_tstate_lock|monitored_barrier|result|get) \("
)


def _followed(cause: Clue, root: EndNote) -> bool:
    """Return whether the cause is only an effect of the first failure (`root`), which a launcher names.

    Only a cause with another rank than `root`, or without a rank, can be such an effect. If the status of `root` is not
    1, it was no uncaught Python exception, so an exception about a lost peer belongs to another process.
    """
    if cause.rank is not None and cause.rank == root.rank:
        return False
    if root.root and root.signal is None and cause.phrase in SIGNALLED and _IN_BOX.search(cause.line.text):
        return True  # torchrun's box lists this process among those that failed later
    if cause.phrase == Phrase.KILLED_BY_SIGNAL and cause.weight >= Weight.ABORT and root.signal != _SIGTERM:
        return bool(_TERMINATED.search(cause.line.text))
    chosen = root.by == "torchrun" and root.exit_code not in (None, 0, 1)
    return chosen and cause.weight >= Weight.PEERS and cause.raised is not None


def _of_root(root: EndNote, matcher: Matcher) -> Diagnosis | None:
    """Diagnose the attempt from the signal or status of the launcher's first failure; None if the status has no known
    meaning."""
    rank, code = root.rank, root.exit_code or 0
    meant = root.signal is not None or code in _TELLING_STATUSES or 128 < code <= 159 or 200 <= code <= 219
    if rank is None or not meant:
        return None
    host = "" if root.host == "localhost" else root.host
    ended = WorkerExit(role="worker", rank=rank, node=host, attempt=1, exit_code=root.exit_code, signal=root.signal)
    worker = WorkerEvidence(rank=rank, exit=ended)
    diagnosis = _contract(ended, matcher) or bare_status(Reading(worker, WorkerReading()), ended, matcher, several=True)
    diagnosis.rank, diagnosis.original, diagnosis.line = rank, _original_of(ended), quoted_line(root.line)
    return diagnosis


def _name_signal(diagnosis: Diagnosis, best: Clue, reading: Reading) -> None:
    """Add the exit code, the signal and the rank to the diagnosis, if a launcher's or shell's line reports them."""
    if best.phrase not in (Phrase.NATIVE_CRASH, Phrase.KILLED_BY_SIGNAL):
        return
    crash = best.phrase == Phrase.NATIVE_CRASH
    told = [
        n
        for n in reading.said.notes
        if n.signal is not None and (n.signal in CRASHES if crash else n.signal not in CRASHES)
    ]
    same = [n for n in told if n.line == best.line] or [n for n in told if n.signal not in (1, 2, 15)]
    if not same:
        return
    number = same[0].signal
    if not crash:
        diagnosis.code = signal_code(number or 0)
    if diagnosis.original is None:
        diagnosis.original = Original(signal=signal_name(number or 0))
    named = next((n for n in told if n.signal == number and n.rank is not None), None)
    if diagnosis.rank is None and named is not None:
        diagnosis.rank = named.rank


def _rank_of_file(reading: Reading) -> int:
    """Return the rank in the tags of a file's lines; else the file's position on the command line."""
    return reading.said.tagged if reading.said.tagged is not None else reading.worker.rank


def _original_of(ended: WorkerExit) -> Original:
    return Original(exit_code=ended.exit_code, signal=signal_name(ended.signal) if ended.signal is not None else None)


def _status_says_more(ended: WorkerExit, strongest: Weight | None, *, gave_up: bool, stopped: bool) -> bool:
    """Return whether the exit status that the user typed is better evidence than the strongest clue in the logs."""
    code = ended.exit_code
    sig = ended.signal if ended.signal is not None else (code - 128 if code is not None and 128 < code <= 159 else None)
    if sig is None:
        return strongest is None and code in (124, 126, 127)
    if sig in HARD:
        return strongest is None or strongest >= Weight.OWN
    if sig == 6:
        return strongest is None or (strongest >= Weight.ABORT and not gave_up)
    if sig == 15 and stopped:
        return False  # the log line about the cancellation explains more than SIGTERM
    return strongest is None or strongest > Weight.PEERS


_SIGTERM = 15
_IN_BOX = Lazy(r"^\s*(?:traceback|msg)\s*: \"?Signal \d+ \(|^\s*exitcode\s*: -\d")
_TERMINATED = Lazy(r"SIGTERM|-15\b|[Ss]ignal 15\b|\bTerminated\b")
#: Statuses to which timeout(1) and shells give a meaning.
_TELLING_STATUSES = (124, 126, 127)

#: How often a cause from logs alone is right, where the catalogue lacks the wording that would know better
#: (`benchmarks/explain/calibration.py`).
_CONFIDENCE = {
    Weight.EVENT: 0.95, Weight.DEATH: 0.95, Weight.ENDING: 0.8, Weight.BROAD: 0.75, Weight.CRASH: 0.9,
    Weight.OWN: 0.4, Weight.WARNED: 0.7, Weight.PEERS: 0.6, Weight.ABORT: 0.5, Weight.CONSEQUENCE: 0.5,
}  # fmt: skip
#: Exceptions that are a mistake in the program, whatever their message.
_MISTAKES = frozenset({
    "AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "NotImplementedError",
    "RecursionError", "TypeError", "UnboundLocalError", "ZeroDivisionError",
})  # fmt: skip
_OF_A_MISTAKE = 0.75


def _confidence(cause: Clue) -> float:
    mistake = cause.weight is Weight.OWN and cause.raised is not None and cause.raised.type in _MISTAKES
    return _OF_A_MISTAKE if mistake else _CONFIDENCE[cause.weight]


def _order(cause: Clue, reading: int, *, several: bool) -> tuple[float, int, bool, float, int, LinePlace]:
    """Return the sort key of a cause: its strength; then its time, if there are several files; then its file and
    line."""
    at = cause.line.moment if several else None
    weight, tier, hint, place = key(cause)
    return (weight, tier, hint, at or 0.0, reading, place)


def _kernel_clues(items: Sequence[Evidence], matcher: Matcher) -> list[Clue]:
    if not items:
        return []
    text = "\n".join(item.text for item in items)
    said = read_worker_logs(WorkerEvidence(log=LogExcerpt(source="kernel log", text=text)), matcher)
    return [_dated(clue, items) for clue in said.clues if clue.weight is Weight.EVENT]


def _dated(clue: Clue, items: Sequence[Evidence]) -> Clue:
    """Return the clue with the time at which holdfast read the line, because the line may only have seconds since
    boot."""
    at = next((item.at for item in items if item.at is not None and clue.line.raw in item.text), None)
    return clue if at is None else replace(clue, line=replace(clue.line, moment=at))


#: Failure classes that a program may report when its device has failed.
_BYHARDWARE = frozenset({
    Phrase.KERNEL_LAUNCH_FAILED, Phrase.ILLEGAL_INSTRUCTION, Phrase.ACCELERATOR_FAULT, Phrase.COLLECTIVE_TIMEOUT,
    Phrase.COLLECTIVE_SYSTEM_ERROR, Phrase.USER_EXCEPTION, Phrase.PEER_LOST,
})  # fmt: skip
_VICTIM = Lazy(r"Killed process \d+|oom-kill:.*\bpid=\d+")
_PID = Lazy(r"(?:Killed process |pid[=: ]*)(\d{1,9})")


def kernel_knows_better(
    diagnosis: Diagnosis, evidence: AttemptEvidence, readings: Sequence[Reading], matcher: Matcher
) -> Diagnosis:
    """Replace the diagnosis by a cause from the kernel log, if the worker's exit or log line is vague.

    Otherwise return the diagnosis as it is.
    """
    ended = diagnosis.exit
    if ended is None or not evidence.kernel:
        return diagnosis
    bare = diagnosis.cause is None and diagnosis.trigger in (Trigger.SIGNAL, Trigger.EXIT_CODE, None)
    killed = ended.signal == 9 or ended.exit_code == 137
    kernel = tuple(item for item in evidence.kernel if of_node(ended, item.node))
    victims = any(_VICTIM.search(item.text) for item in kernel)
    for cause in _kernel_clues(kernel, matcher):
        named = _PID.search(cause.line.text)
        if named and ended.pid is not None and int(named[1]) != ended.pid:
            continue
        if cause.phrase == Phrase.HOST_OUT_OF_MEMORY_KILLED:
            # The process that triggered the kernel's memory killer need not be the victim. If lines name victims, only
            # these count.
            if not (killed and bare) or (victims and named is None):
                continue
        elif not bare and (
            matcher.catalogue.row(cause.phrase).blame is not Blame.HARDWARE or diagnosis.phrase not in _BYHARDWARE
        ):
            continue
        better = _diagnosis(cause, matcher)
        better.worker, better.exit, better.collateral = diagnosis.worker, ended, diagnosis.collateral
        return better
    return diagnosis


def _diagnosis(cause: Clue, matcher: Matcher) -> Diagnosis:
    wording = wording_of(cause, matcher)
    diagnosis = Diagnosis(cause.phrase, matcher.catalogue.row(cause.phrase), Trigger.LOG, cause=cause, wording=wording)
    if cause.note is not None and cause.note.signal is not None:
        diagnosis.trigger = Trigger.SIGNAL
        name = signal_name(cause.note.signal)
        if cause.phrase == Phrase.KILLED_BY_SIGNAL:
            diagnosis.code = signal_code(cause.note.signal)
        diagnosis.reason = signal_reason(who_of("worker", cause.rank, cause.note.host), name, cause.phrase)
    elif wording is None and cause.raised is not None:
        diagnosis.trigger = Trigger.EXCEPTION
    elif wording is not None and wording.where is Where.KERNEL:
        diagnosis.trigger = Trigger.KERNEL
    if grown := cause.fields.get("grown"):
        diagnosis.reason = (
            f"{who_of('worker', cause.rank, '')}: SIGKILL while its memory was growing ({grown} in its last lines);"
            " most likely the memory kill of the kernel or the container"
        )
        diagnosis.trigger = Trigger.SIGNAL
    return diagnosis


def _contract(ended: WorkerExit | None, matcher: Matcher, said: Evidence | None = None) -> Diagnosis | None:
    """Diagnose a contract code (200 to 219): with such a code the worker itself says whether a rerun
    helps."""
    code = ended.exit_code if ended is not None else None
    if code is None or not 200 <= code <= 219:
        return None
    permanent = code >= 210
    row = matcher.catalogue.row(Phrase.USER_EXCEPTION)
    last = "Its last line is in the evidence" if said is not None else "It printed nothing"
    says = "trying again is useless" if permanent else "trying again may help"
    assert ended is not None  # `code` is not None
    who = who_of(ended.role, ended.rank, ended.node)
    return Diagnosis(
        Phrase.USER_EXCEPTION,
        row,
        Trigger.EXIT_CODE,
        code=code,
        blame=Blame.WORKLOAD,
        rerun=Rerun.NEVER if permanent else Rerun.LATER,
        reason=f"{who}: ended with status {code}, by which the program itself says that {says}",
        meaning=f"by which the program itself says that {says}",
        solution=(
            f"Find why the program chose this status: it did so on purpose. {last}."
            if permanent
            else "By this status the program asks for another try. If it comes back, read the program's last lines."
        ),
        evidence=[said] if said is not None else [],
        rule=OtherRule.EXIT_STATUS,
    )


def _not_there(reading: Reading, ended: WorkerExit | None, matcher: Matcher) -> Diagnosis | None:
    cause = missing_command(reading, ended)
    if cause is None:
        return None
    diagnosis = _diagnosis(cause, matcher)
    diagnosis.reason = f"the command {cause.fields['cmd']} does not exist where the job runs"
    diagnosis.original = _original_of(ended) if ended is not None else None
    return diagnosis


def _from_words(reading: Reading, ended: WorkerExit | None, matcher: Matcher) -> Diagnosis | None:
    """Diagnose the attempt from the words in the worker's log, if they are better evidence than the exit; else None."""
    best = reading.best
    if best is None:
        return None
    # After holdfast's stop the signal came from holdfast, so only the log counts.
    ours = ended is not None and ended.after_stop
    signalled = ended is not None and ended.signal is not None and best.weight >= Weight.OWN and not ours
    # Report the signal unless a line explains it. For SIGABRT (6) the line before the abort is such an explanation.
    if signalled and ended is not None and (ended.signal != 6 or best.weight is Weight.ABORT):
        return None
    diagnosis = _diagnosis(best, matcher)
    if best.weight is Weight.WARNED:
        diagnosis.confidence = 0.6
    elif best.weight >= Weight.PEERS:
        diagnosis.confidence = 0.4
    return diagnosis
