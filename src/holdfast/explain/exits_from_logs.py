"""Makes clues from the lines in which launchers and shells report an exit, and adds them to the worker's own clues."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.explain.bare_status import CRASHES
from holdfast.explain.clue_ranking import gave_up_on_a_peer, key
from holdfast.explain.memory_growth import kill_with_memory
from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import signal_name
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, EndNote, LinePlace, Weight, WorkerReading

#: Signals of crashes, except SIGABRT, which a program sends to itself.
HARD = CRASHES - {6}
_ABORTED = Lazy(r"srun: Job step aborted|error: \*\*\* (?:STEP|JOB) \S+ .{0,80}CANCELLED")
_SHELL = Lazy(r"(?:\S+: line \d+: *\d* *)?(?:Killed|Terminated)\b")


def with_notes(said: WorkerReading) -> list[Clue]:
    """Return the reading's clues and those from signals that launchers and shells report, strongest first."""
    clues = list(said.clues)
    tells = [note for note in said.notes if note.signal is not None and note.signal not in (2, 15, 1)]
    if gave_up_on_a_peer(clues):
        tells = [note for note in tells if note.signal != 6]
    clues += [_of_note(note) for note in tells if note.signal in HARD or note.signal in (6, 9)]
    clues = kill_with_memory(clues)
    aborted = min((clue.place for clue in clues if _ABORTED.search(clue.line.text)), default=None)
    if aborted is not None:
        # After Slurm aborts a step it kills the other ranks, so their exits are no cause.
        clues = [each for each in clues if not (each.phrase == Phrase.KILLED_BY_SIGNAL and aborted < each.place)]
    link = min((clue.place for clue in clues if clue.weight is Weight.PEERS), default=None)
    if link is not None:
        clues = [_cleaned_up(clue) if link < clue.place else clue for clue in clues]
    return sorted(clues, key=key)


def _of_note(note: EndNote) -> Clue:
    weight = Weight.CRASH if note.signal in HARD else Weight.WARNED if note.signal == 9 else Weight.ABORT
    return Clue(
        weight=weight,
        phrase=Phrase.NATIVE_CRASH if note.signal in CRASHES else Phrase.KILLED_BY_SIGNAL,
        line=note.line,
        place=LinePlace(line=note.line.number + 0.5),
        rank=note.rank,
        note=note,
        fields={"signal": signal_name(note.signal or 0)},
        grown=note.grown,
    )


def _cleaned_up(clue: Clue) -> Clue:
    """Weaken a clue from a shell's line about a kill: the launcher cleaned up after a failure between the workers."""
    if clue.phrase != Phrase.KILLED_BY_SIGNAL or not _SHELL.match(clue.line.text):
        return clue
    return replace(clue, weight=max(clue.weight, Weight.ABORT))
