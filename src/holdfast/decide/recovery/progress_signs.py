"""Decides whether an attempt got further than earlier attempts, from its evidence and the history. Pure.

There are five signs of progress: a higher step of `holdfast.progress`, a higher count in the output, a finished
checkpoint, a run much longer than all earlier ones, and a run of at least `healthy_s`. A count is only progress if
lower counts came before it in the attempt: otherwise it may be the number of a restart or of a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.decisions import AttemptRecord
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.progress_facts import RESTORING, Count, Sign, SignKind

LONGER_FACTOR = 2.0
#: A run is much longer if it exceeds every earlier attempt by the factor `LONGER_FACTOR`, and by at least this many
#: seconds.
LONGER_S = 60.0
EPOCH = "epoch"


def signs_of(
    evidence: AttemptEvidence,
    counts: Sequence[Count],
    step: int | None,
    history: Sequence[AttemptRecord],
    *,
    ran_s: float,
    healthy_s: float,
) -> tuple[Sign, ...]:
    """Return the signs of progress of an attempt. Signs that restore the restart budget come first.

    `counts`: the last counts in the output. `step`: the step that `holdfast.progress` reported. `history`: the earlier
    attempts. `ran_s`: seconds in RUNNING. `healthy_s`: a run of this many seconds is a sign of progress.
    """
    found: list[Sign] = []
    if step is not None and (sign := _step(step, history)):
        found.append(sign)
    if history and (sign := _counted(counts, history)):
        found.append(sign)
    if evidence.checkpoints:
        first = evidence.checkpoints[0]
        more = f" and {len(evidence.checkpoints) - 1} more" if len(evidence.checkpoints) > 1 else ""
        found.append(Sign(kind=SignKind.CHECKPOINT, text=f"checkpoint {first}{more} was finished"))
    if history and (sign := _longer(ran_s, history)):
        found.append(sign)
    # If two attempts end at the same counts, the program seems to fail at that point. A long run is then no sign of
    # health.
    stuck = bool(counts) and bool(history) and _standing(counts) == _standing(history[-1].counts)
    if ran_s >= healthy_s and not stuck:
        found.append(Sign(kind=SignKind.HEALTHY, text=f"it ran for {ran_s:.0f} s, which counts as healthy"))
    return tuple(found)


def restores(signs: Iterable[Sign]) -> bool:
    """Return whether one of these signs of progress restores the user's restart budget."""
    return any(sign.kind in RESTORING for sign in signs)


def healthy(signs: Iterable[Sign]) -> bool:
    """Return whether one of these signs is that the attempt ran for at least `healthy_s` of the restart policy."""
    return any(sign.kind is SignKind.HEALTHY for sign in signs)


def stood_at(evidence: AttemptEvidence) -> tuple[Count, ...]:
    """Return the attempt's last counts (step, epoch), one for each name.

    The lowest rank of a role counts, because ranks advance together and a fast rank is ahead only by chance. Of several
    roles the furthest counts.
    """
    lowest: dict[tuple[str, str], Count] = {}
    for worker in evidence.workers:
        for count in worker.counts:
            known = lowest.get((worker.role, count.name))
            if known is None or _place(count) < _place(known):
                lowest[worker.role, count.name] = count
    highest: dict[str, Count] = {}
    for count in lowest.values():
        other = highest.get(count.name)
        if other is None or _place(count) > _place(other):
            highest[count.name] = count
    # The epoch comes first, because other counts may restart from zero in each epoch.
    return tuple(sorted(highest.values(), key=lambda count: (count.name != EPOCH, count.name)))


def _standing(counts: Iterable[Count]) -> list[tuple[str, tuple[float, float]]]:
    return [(count.name, _place(count)) for count in counts]


def _place(count: Count) -> tuple[float, float]:
    """Return the sort key of a count among counts of the same name: the epoch, then the value."""
    return (-1.0 if count.epoch is None else count.epoch, count.value)


def _step(step: int, history: Sequence[AttemptRecord]) -> Sign | None:
    best = max(((record.step, record.attempt) for record in history if record.step is not None), default=None)
    if best is not None and step <= best[0]:
        return None
    before = f" ({best[0]} in attempt {best[1]})" if best is not None else ""
    return Sign(kind=SignKind.STEP, text=f"holdfast.progress told step {step}{before}")


def _counted(counts: Sequence[Count], history: Sequence[AttemptRecord]) -> Sign | None:
    """Return a sign of progress for the first count that exceeds all earlier attempts. Return None if there is none, or
    if the epoch is lower than before.
    """
    series = [count for count in counts if not count.alone]
    earlier = [count for record in history for count in record.counts]
    comparable = {count.name for count in earlier} & {count.name for count in counts}
    if series and not comparable and all(count.alone for count in earlier):
        return Sign(kind=SignKind.COUNT, text=f"the output counts {words(series[0])}, and no earlier attempt counted")
    for count in counts:
        best = _best(count, history)
        if best is None:
            continue
        known, attempt = best
        if _place(count) > _place(known) and not count.alone:
            return Sign(
                kind=SignKind.COUNT, text=f"the output counts {words(count)} ({words(known)} in attempt {attempt})"
            )
        if count.name == EPOCH and count.value < known.value:
            return None
    return None


def _best(count: Count, history: Sequence[AttemptRecord]) -> tuple[Count, int] | None:
    """Return the furthest earlier count of the same name, with its attempt's number; None if none is comparable.

    A count with an epoch and one without are not comparable, because they may mean different things.
    """
    best: tuple[Count, int] | None = None
    for record in history:
        for other in record.counts:
            if other.name != count.name or (other.epoch is None) != (count.epoch is None):
                continue
            if best is None or _place(other) > _place(best[0]):
                best = other, record.attempt
    return best


def _longer(ran_s: float, history: Sequence[AttemptRecord]) -> Sign | None:
    longest_s, attempt = max((_ran_s(record), record.attempt) for record in history)
    if ran_s < LONGER_FACTOR * longest_s or ran_s < longest_s + LONGER_S:
        return None
    text = f"it ran for {ran_s:.0f} s (the longest run before: {longest_s:.0f} s in attempt {attempt})"
    return Sign(kind=SignKind.LONGER, text=text)


def _ran_s(record: AttemptRecord) -> float:
    # The record has subtracted `detection` from the phase in which the trouble began. That is mostly RUNNING, so add
    # the seconds again.
    return record.parts.get("running", 0.0) + record.parts.get("detection", 0.0)


def words(count: Count) -> str:
    """Return a count in words: `step 120`, `step 12 in epoch 3`, `370 of 1000`."""
    name, of, total = count.name.partition(" of ")
    said = f"{count.value:.12g} of {total}" if of else f"{name} {count.value:.12g}"
    return said if count.epoch is None else f"{said} in epoch {count.epoch:.12g}"
