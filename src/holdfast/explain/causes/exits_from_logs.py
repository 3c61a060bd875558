"""Finds exits in logs.

It makes clues from the lines in which launchers and shells report an exit. If only logs are known, it finds the rank of
each log file and each rank's exit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Where
from holdfast.explain.causes.bare_status import CRASHES
from holdfast.explain.causes.common_failure import raised_by
from holdfast.explain.logs.clue_ranking import gave_up_on_a_peer, key, wording_of
from holdfast.explain.logs.log_reader import Reading, glance_worker_logs, kill_with_memory
from holdfast.explain.logs.peer_errors import first_hand
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind, WorkerExit, signal_name
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndNote, LinePlace, Weight, WorkerReading

#: Signals of crashes, except SIGABRT, which a program sends to itself.
HARD = CRASHES - {6}
#: Signals with which somebody asks a process to end.
_ASKING = frozenset({1, 2, 3, 15})
#: Signals that explain an exit, as far as a launcher's line can: crashes, kills, and requests to end.
_TOLD = CRASHES | _ASKING | {9}
_ABORTED = Lazy(r"srun: Job step aborted|error: \*\*\* (?:STEP|JOB) \S+ .{0,80}CANCELLED")
_SHELL = Lazy(r"(?:\S+: line \d+: *\d* *)?(?:Killed|Terminated)\b")


def with_notes(said: WorkerReading) -> list[Clue]:
    """Return the clues of a log reading, and clues made from the exits that launchers and shells report, strongest
    first."""
    clues = list(said.clues)
    tells = [note for note in said.notes if note.signal in _TOLD]
    if gave_up_on_a_peer(clues):
        tells = [note for note in tells if note.signal != 6]
    if any(clue.phrase in (Phrase.KILLED_BY_SIGNAL, Phrase.STOPPED_BY_OPERATOR) for clue in clues):
        tells = [note for note in tells if note.signal not in _ASKING]  # these clues say more
    clues += [_of_note(note) for note in tells]
    clues = kill_with_memory(clues)
    aborted = min((clue.place for clue in clues if _ABORTED.search(clue.line.text)), default=None)
    if aborted is not None:
        # After Slurm aborts a step it kills the other ranks, so their exits are not the cause.
        clues = [each for each in clues if not (each.phrase == Phrase.KILLED_BY_SIGNAL and aborted < each.place)]
    link = min((clue.place for clue in clues if clue.weight is Weight.PEERS), default=None)
    if link is not None:
        clues = [_cleaned_up(clue) if link < clue.place else clue for clue in clues]
    return sorted(clues, key=key)


def _of_note(note: EndNote) -> Clue:
    weight = Weight.CRASH if note.signal in HARD else Weight.WARNED if note.signal == 9 else Weight.ABORT
    phrase = Phrase.NATIVE_CRASH if note.signal in CRASHES else Phrase.KILLED_BY_SIGNAL
    return Clue(
        weight=weight,
        phrase=Phrase.STOPPED_BY_OPERATOR if note.signal == _SIGINT else phrase,
        line=note.line,
        place=LinePlace(line=note.line.number + 0.5),
        rank=note.rank,
        note=note,
        fields={"signal": signal_name(note.signal or 0)},
        grown=note.grown,
    )


def _cleaned_up(clue: Clue) -> Clue:
    """Lower the weight of a shell's "Killed" line, if the launcher killed the worker to clean up after a failure."""
    if clue.phrase != Phrase.KILLED_BY_SIGNAL or not _SHELL.match(clue.line.text):
        return clue
    return replace(clue, weight=max(clue.weight, Weight.ABORT))


_NAME = Lazy(
    r"(?:^|[/_.\-])[Rr]ank[-_.=]?(?P<a>\d{1,6})(?!\d)|(?:^|/)(?P<b>\d{1,6})/(?:stdout|stderr|std)(?:\.log|\.txt)?$"
)
_STOPS = Lazy(r"Sending process \d+ closing signal SIG[A-Z]+")
_WORDS_CHARS = 8192
_SIGINT, _SIGTERM = 2, 15
#: Launchers whose process numbers are ranks. Slurm is not among them, because each of its tasks may itself be a
#: launcher.
_SUMMARIES = ("torchrun", "mpirun", "torch.multiprocessing")


def ranks_alone(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings of log files that are about one rank each, with that rank.

    Leave out logs of a launcher or the kernel.

    A file's rank comes from its name or from the tags of its lines. Without a rank in either, each file keeps its
    position on the command line as its rank.
    """
    ended = [reading for reading in readings if reading.worker.exit is not None]
    if len(ended) > 1:
        return ended
    told = {id(each): rank for each in readings if (rank := _rank_of(each)) is not None}
    if len(told) > 1 and len(set(told.values())) == len(told):
        return [_as_rank(each, told[id(each)]) for each in readings if id(each) in told]
    return [each for each in readings if not _of_others(each)]


def ranks_with_ends(
    readings: Sequence[Reading], evidence: AttemptEvidence, matcher: Matcher
) -> tuple[list[Reading], AttemptEvidence] | None:
    """Return the ranks' log readings with the exits that a launcher reports, and the evidence for these exits.

    Return None if these exits are unknown, or if a scheduler's line is better evidence than the exit of any rank.
    """
    ranks = ranks_alone(readings)
    mine = {id(each.worker.log) for each in ranks}
    others = [each for each in readings if id(each.worker.log) not in mine]
    kernel: list[Evidence] = []
    for other in others:
        for clue in (*other.said.clues, *other.said.weaker):
            wording = wording_of(clue, matcher)
            if wording is not None and wording.where is Where.KERNEL:
                text, source = clue.line.raw, f"{clue.line.source}:{clue.line.number}"
                kernel.append(Evidence(kind=EvidenceKind.KERNEL, text=text, source=source, at=clue.line.moment))
            elif clue.weight is Weight.EVENT:
                return None
    if _raised(others) and not _raised(ranks):
        return None  # a rank has no file because its output is in the launcher's log
    if any(each.worker.exit is None for each in ranks):
        known = {each.worker.rank for each in ranks}
        ends = _ends(others, known)
        if not ends:
            return None
        ranks = [_ended(each, ends.get(each.worker.rank)) for each in ranks]
        # Add the ranks for which the user passed no file.
        ranks += [_without_log(end) for rank, end in sorted(ends.items()) if rank not in known]
    if len(ranks) < 2:
        return None
    ranks = [_with_own_words(each) for each in ranks]
    workers = tuple(each.worker for each in ranks)
    return ranks, replace(evidence, workers=workers, kernel=(*evidence.kernel, *kernel))


def rank_of_name(source: str) -> int | None:
    """Return the rank in a file's name: 3 for `rank3.log` or `attempt_0/3/stderr.log`; None if the name has no rank."""
    name = _NAME.search(source)
    return int(name["a"] or name["b"]) if name is not None else None


def _rank_of(reading: Reading) -> int | None:
    rank = rank_of_name(reading.worker.log.source) if reading.worker.log is not None else None
    return reading.said.tagged if rank is None else rank


def _of_others(reading: Reading) -> bool:
    """Return whether the file is not about one rank: a launcher's log is about several, the kernel log about none."""
    if reading.said.tagged is not None:
        return False
    of_kernel = bool(reading.said.clues) and all(clue.weight is Weight.EVENT for clue in reading.said.clues)
    return of_kernel or any(note.rank is not None for note in reading.said.notes)


def _as_rank(reading: Reading, rank: int) -> Reading:
    return reading if reading.worker.rank == rank else Reading(replace(reading.worker, rank=rank), reading.said)


def _ends(others: Sequence[Reading], ranks: set[int]) -> Mapping[int, WorkerExit]:
    """Return the exit of each rank (rank → exit) from a launcher's summary.

    Empty if a torchrun summary names no first failure.
    """
    notes = [note for each in others for note in each.said.notes if note.by in _SUMMARIES and note.rank is not None]
    boxed = [note for note in notes if note.host] or notes
    told: dict[int, EndNote] = {note.rank: note for note in boxed if note.rank is not None}
    if not ranks or not any(note.root or note.by != "torchrun" for note in told.values()):
        return {}
    ends = {rank: _exit(rank, note) for rank, note in told.items()}
    # torchrun lists every rank that failed or that torchrun stopped, so a rank that is not listed exited with status 0.
    silent = ranks - set(told)
    stopped = sum(_stops(each) for each in others)
    listed = sum(1 for note in told.values() if note.signal == _SIGTERM and not note.root)
    if len(silent) == 1 and stopped <= listed and all(note.by == "torchrun" for note in told.values()):
        ends |= {rank: _worker_exit(rank, exit_code=0, order=0) for rank in silent}
    return ends


def _stops(reading: Reading) -> int:
    excerpt = reading.worker.log
    return len(_STOPS.compiled.findall(excerpt.text)) if excerpt is not None else 0


def _exit(rank: int, note: EndNote) -> WorkerExit:
    stopped = note.signal == _SIGTERM and not note.root
    order = 1 if note.root else 2
    return _worker_exit(rank, exit_code=note.exit_code, signal=note.signal, order=order, after_stop=stopped)


def _worker_exit(
    rank: int,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    order: int = 2,
    after_stop: bool = False,
) -> WorkerExit:
    return WorkerExit(
        role="worker",
        rank=rank,
        node="",
        attempt=1,
        exit_code=exit_code,
        signal=signal,
        order=order,
        after_stop=after_stop,
    )


def _raised(readings: Sequence[Reading]) -> bool:
    """Return whether an exception ended the program, according to any of the log readings."""
    return any(raised_by(clue) is not None for each in readings for clue in each.said.clues)


def _without_log(end: WorkerExit) -> Reading:
    worker = WorkerEvidence(rank=end.rank, exit=end)
    return Reading(worker, replace(glance_worker_logs(worker), given=True))


def _ended(reading: Reading, end: WorkerExit | None) -> Reading:
    return reading if end is None else Reading(replace(reading.worker, exit=end), reading.said)


def _with_own_words(reading: Reading) -> Reading:
    """Return the log reading with `first_hand` set: whether the last lines show that the rank failed by itself."""
    worker = reading.worker
    if worker.exit is None or worker.log is None:
        return reading
    own = first_hand(replace(worker.exit, last_words=worker.log.text[-_WORDS_CHARS:]))
    return Reading(worker, replace(reading.said, first_hand=own))
