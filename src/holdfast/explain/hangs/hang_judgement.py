"""Decides from samples (snapshots of every rank) whether an attempt hangs, and which rank caused the hang. Pure.

A gang hangs if no rank has printed a line or reported a step for the whole time-out, and one of these is true: no rank
uses the CPU; the ranks that use the CPU are at the same place of a collective in every sample; one rank makes no
progress while the others wait for it. A rank that computes silently makes progress, so the gang does not hang, even if
all others wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.explain.hangs.rank_motion import Manner, View, view
from holdfast.explain.hangs.wait_rules import WaitTarget
from holdfast.explain.text.sentences import ranks as name_ranks
from holdfast.model.evidence import HangEvidence, RankSnapshot
from holdfast.model.noun_base import Noun

Look = tuple[RankSnapshot, ...]

#: Number of samples without progress that are needed to report a hang, if no rank uses the CPU.
LOOKS = 2
#: Number of samples needed if some ranks spin in a collective (use the CPU while they wait) and another rank does not
#: move.
SPIN_LOOKS = 3
#: Number of samples, and of time-outs without output, needed if every rank spins in a collective. For a while, a loop
#: that mostly communicates looks the same.
ALL_SPIN_LOOKS = 6
ALL_SPIN_FACTOR = 2.0
#: Number of samples, and of time-outs without output, needed if ranks use the CPU at the same place (an endless loop)
#: and the others wait for them in a collective.
LOOP_LOOKS = 7
LOOP_FACTOR = 2.0
#: Number of time-outs without output needed to report a hang, if nothing shows whether the rank that the others wait
#: for makes progress: its child process uses the CPU, or the rank uses the CPU and has no stack.
CHILD_FACTOR = 3.0
#: Number of samples, of time-outs and of seconds without output, needed if ranks use the CPU at one line and no rank
#: waits for them. This is an endless loop or one long computation.
SAME_LINE_LOOKS = 10
SAME_LINE_FACTOR = 10.0
SAME_LINE_S = 600.0
#: Number of samples kept as evidence: the first, the last but one, and the last.
KEPT_LOOKS = 3
_TELLING_GAP_S = 1.0

_STANDS = (Manner.STOPPED, Manner.ASLEEP, Manner.IDLE)
_WAITS = (Manner.IN_PEERS, Manner.SPINS_IN_PEERS)
_LOOPS = (Manner.SAME_LINE, Manner.LOOPS, Manner.CHILD_LOOPS)
#: Targets of a wait without a stack that may really be other ranks: a lock or a socket of the library that waits for
#: them.
_MAYBE_PEERS = (WaitTarget.PEERS, WaitTarget.DEVICE, WaitTarget.THREAD)


class NotHung(Noun, frozen=True, kw_only=True):
    """The judgement that the attempt does not hang, because a rank moves.

    The caller drops its samples, and takes the next at `look_at`.
    """

    why: str
    look_at: float


class LookAgain(Noun, frozen=True, kw_only=True):
    """The judgement that the attempt may hang.

    The caller takes one more sample at `look_at`, and calls `judge` again with all samples.
    """

    why: str
    look_at: float


class Hung(Noun, frozen=True, kw_only=True):
    """The judgement that the attempt hangs."""

    evidence: HangEvidence


Judgement = NotHung | LookAgain | Hung


def gap_s(timeout_s: float) -> float:
    """Return the seconds between two samples: a quarter of the time-out, at least 0.5 s and at most 10 s."""
    return min(10.0, max(0.5, timeout_s / 4))


def judge(
    attempt: int, timeout_s: float, started_at: float, looks: Sequence[Look], ended: Collection[int] = ()
) -> Judgement:
    """Decide whether the attempt hangs, from the samples taken since a rank last moved. All times are seconds since the
    epoch.

    Only ranks in the last sample count. A rank that is missing from all earlier samples counts as moving.

    timeout_s: the hang time-out, in seconds.
    started_at: the start of the attempt.
    looks: the samples, in time order.
    ended: ranks that have already exited with status 0 (after any other exit the gang would be stopping).
    """
    if not looks or not looks[-1]:
        return NotHung(why="no rank is alive", look_at=started_at + timeout_s)
    now = max(shot.at for shot in looks[-1])
    again = now + gap_s(timeout_s)
    if len(looks) == 1:
        return LookAgain(why="one look cannot tell standing from moving", look_at=again)
    views = _views(looks, started_at)
    silent_s = min(one.silent_s for one in views)
    gang_is_silent = silent_s >= timeout_s
    stands = [one for one in views if one.manner in _STANDS and one.silent_s >= timeout_s]
    waits = [one for one in views if one.manner in _WAITS]
    fresh = [one for one in views if one.manner in _STANDS and one not in stands and not one.spoke]
    rest = [one for one in views if one not in (*stands, *waits, *fresh)]
    span_s = now - min(shot.at for shot in looks[0])

    def hung(why: str = "") -> Hung:
        culprits, reason = culprit(views, ended)
        silence = silent_s if gang_is_silent else min(one.silent_s for one in views if one.rank in culprits)
        return Hung(
            evidence=HangEvidence(
                attempt=attempt,
                silent_s=silence,
                looks=_kept(looks),
                culprits=culprits,
                why=f"{reason}{why}",
                at=now,
            )
        )

    stopped = [one for one in stands if one.manner is Manner.STOPPED]
    if stopped and span_s >= timeout_s and len(looks) >= SPIN_LOOKS:
        return hung()  # a stopped process never continues by itself, even if other ranks move
    # A rank that seems to loop counts as moving, unless other ranks wait for the looping rank.
    moves = (Manner.MOVING,) if waits and gang_is_silent else (Manner.MOVING, Manner.LOOPS, Manner.CHILD_LOOPS)
    moving = [one for one in rest if one.manner in moves]
    if moving:
        if stopped:
            return LookAgain(why=f"{_some(stopped)} stopped, {_some(moving)} still moving", look_at=again)
        return NotHung(why=f"{_some(moving)} moving", look_at=now + timeout_s / 2)
    if rest and not gang_is_silent:
        return NotHung(why=f"{_some(rest)} at work", look_at=now + timeout_s / 2)
    if fresh and not gang_is_silent:
        return LookAgain(why=f"{_some(fresh)} standing, but not for long", look_at=again)
    if not gang_is_silent and not (stands and waits):
        if stopped:
            return LookAgain(why=f"{_some(stopped)} stopped", look_at=again)
        return NotHung(why="some rank still prints, and none blocks the others", look_at=now + timeout_s / 2)
    if len(looks) < (LOOKS if gang_is_silent else SPIN_LOOKS):
        return LookAgain(why="too few looks to be sure", look_at=again)
    enough, words = _enough(views, stands, rest, len(looks), silent_s, timeout_s)
    return hung(words) if enough else LookAgain(why=words, look_at=again)


def with_stacks(hang: HangEvidence, looks: Sequence[Look], started_at: float, ended: Collection[int]) -> HangEvidence:
    """Return the hang with the samples `looks`, which have stacks, and choose the culprit again from these stacks.

    `ended`: ranks that had exited with status 0 before the hang. `started_at`: the start of the attempt, in seconds
    since the epoch.
    """
    views = _views(looks, started_at)
    culprits, why = culprit(views, ended)
    return replace(hang, looks=tuple(looks), culprits=culprits, why=why)


def by_rank(looks: Sequence[Look]) -> dict[int, list[RankSnapshot]]:
    """Return the snapshots of each rank, in time order."""
    found: dict[int, list[RankSnapshot]] = {}
    for look in looks:
        for shot in look:
            found.setdefault(shot.rank, []).append(shot)
    return found


def _views(looks: Sequence[Look], started_at: float) -> list[View]:
    """Return the view of each rank in the last sample. A view combines the rank's snapshots from all samples."""
    shots = by_rank(looks)
    return [view(shots[shot.rank], started_at) for shot in looks[-1]]


def _enough(
    views: Sequence[View], stands: Sequence[View], rest: Sequence[View], looks: int, silent_s: float, timeout_s: float
) -> tuple[bool, str]:
    """Return whether there are enough samples to report a hang, if no rank makes progress.

    Also return a text: an addition to the hang's reason, or why another sample is needed.
    """
    if any(one.manner is Manner.BUSY for one in rest):
        if any(one.manner is Manner.STOPPED for one in stands):
            return looks >= SPIN_LOOKS, ""
        return False, f"{_some(rest)} burning CPU, and without stacks its place is not known"
    if rest:
        if any(one.manner is Manner.STOPPED for one in stands):
            return looks >= SPIN_LOOKS, ""
        if any(one.manner is Manner.SPINS for one in rest):
            if not _all_wait_for(rest, views):
                return False, f"{_some(rest)} burning CPU, and without stacks its place is not known"
            return looks >= LOOP_LOOKS and silent_s >= CHILD_FACTOR * timeout_s, f"; the same in {looks} looks"
        if 0 < sum(one.manner in _WAITS for one in views) == len(views) - len(rest):
            factor = CHILD_FACTOR if any(one.manner is Manner.CHILD_LOOPS for one in rest) else LOOP_FACTOR
            return looks >= LOOP_LOOKS and silent_s >= factor * timeout_s, f"; the same in {looks} looks"
        long_s = max(SAME_LINE_FACTOR * timeout_s, SAME_LINE_S)
        return looks >= SAME_LINE_LOOKS and silent_s >= long_s, f"; the same in {looks} looks"
    if any(one.manner is Manner.SPINS_IN_PEERS for one in views):
        if stands:
            return looks >= SPIN_LOOKS, ""
        return (
            looks >= ALL_SPIN_LOOKS and silent_s >= ALL_SPIN_FACTOR * timeout_s,
            f"; the same in {looks} looks",
        )
    return True, ""


def _all_wait_for(those: Sequence[View], views: Sequence[View]) -> bool:
    """Return whether every other rank waits for peers, or is idle without a stack in a call that may be a wait for
    peers."""
    others = [one for one in views if one not in those]
    return bool(others) and all(
        one.manner in _WAITS
        or (
            one.manner is Manner.IDLE and one.main.state != "D" and (one.wait is None or one.wait.waits in _MAYBE_PEERS)
        )
        for one in others
    )


def _kept(looks: Sequence[Look]) -> tuple[Look, ...]:
    return tuple(looks) if len(looks) <= KEPT_LOOKS else (looks[0], *looks[-(KEPT_LOOKS - 1) :])


# ---------------------------------------------------------------------------- functions that find the rank that differs


def culprit(views: Sequence[View], ended: Collection[int] = ()) -> tuple[tuple[int, ...], str]:
    """Return the ranks that differ from the rest, and a sentence about the difference.

    If it returns several ranks, they cannot be distinguished. The criteria, in this order: stopped; not waiting for
    peers while the others are; exited while the others wait; at a lower step; at another place than most; silent for
    clearly the longest time.
    """
    if len(views) == 1 and not ended:
        return (views[0].rank,), _sentence(views, [])
    spinning = [one for one in views if one.manner is Manner.SPINS]
    if spinning and _all_wait_for(spinning, views):
        return _narrowed(spinning, [one for one in views if one not in spinning])
    for manners in ((Manner.STOPPED,), (Manner.ASLEEP, Manner.IDLE), (*_LOOPS, Manner.SPINS, Manner.BUSY)):
        those = [one for one in views if one.manner in manners]
        others = [one for one in views if one.manner not in manners]
        if those and (others or manners == (Manner.STOPPED,)):
            return _narrowed(those, others)
    if ended and all(one.manner in _WAITS for one in views):
        gone = tuple(sorted(ended))
        verb = "have" if len(gone) > 1 else "has"
        return gone, f"{name_ranks(gone)} {verb} ended already, and {_tell(views)}"
    return _narrowed(views, [])


def _narrowed(those: Sequence[View], others: Sequence[View]) -> tuple[tuple[int, ...], str]:
    """Return those of the ranks `those` that differ from the others in step, place or silence; all of them if none
    differs.
    """
    if any(one.manner is Manner.STOPPED for one in those):
        return tuple(one.rank for one in those), _sentence(those, others)
    steps = [one.step for one in those if one.step is not None]
    if len(steps) == len(those) > 1 and min(steps) < max(steps):
        low = [one for one in those if one.step == min(steps)]
        rest = [one for one in those if one.step != min(steps)]
        if len(low) <= len(rest):
            words = f"{_sentence(low, [*rest, *others])}; it is at step {min(steps)}, the others at {max(steps)}"
            return tuple(one.rank for one in low), words
    places = Counter(one.place for one in those)
    most, count = places.most_common(1)[0]
    if len(places) > 1 and count > len(those) / 2:
        odd = [one for one in those if one.place != most]
        return tuple(one.rank for one in odd), _sentence(odd, [*(one for one in those if one.place == most), *others])
    by_silence = sorted(those, key=lambda one: -one.silent_s)
    # A rank that never prints does not stand out by its silence, because often only rank 0 logs.
    if (
        len(those) > 1
        and all(one.heard for one in those)
        and by_silence[0].silent_s - by_silence[1].silent_s >= _TELLING_GAP_S
    ):
        first, rest = by_silence[0], [one for one in those if one is not by_silence[0]]
        return (first.rank,), f"{_sentence([first], [*rest, *others])}; it fell silent first"
    words = _sentence(those, others)
    return tuple(one.rank for one in those), f"{words}; no rank stands out" if len(those) > 1 else words


def _sentence(those: Sequence[View], others: Sequence[View]) -> str:
    least = min(one.silent_s for one in (*those, *others))
    new = "anything new" if any(one.repeats for one in (*those, *others)) else "anything"
    silence = f"; no rank has printed {new} for {least:.0f} s"
    if not others:
        return _tell(those) + silence
    return f"{_tell(those)} while {_tell(others)}{silence}"


def _tell(views: Sequence[View]) -> str:
    """Describe the ranks, as in `rank 2 is stopped (state T)`.

    Ranks with the same description are grouped, in at most four groups.
    """
    groups: dict[str, list[int]] = {}
    for one in views:
        groups.setdefault(one.doing, []).append(one.rank)
    parts = []
    for doing, ranks in list(groups.items())[:4]:
        parts.append(f"{name_ranks(tuple(sorted(ranks)))} {_plural(doing) if len(ranks) > 1 else doing}")
    if len(groups) > 4:
        parts.append(f"{len(groups) - 4} more places hold the rest")
    return ", ".join(parts)


def _plural(doing: str) -> str:
    verb, _, rest = doing.partition(" ")
    plural = {"is": "are", "waits": "wait", "burns": "burn", "moves": "move"}
    return f"{plural.get(verb, verb)} {rest}".rstrip().replace(", where it waits for ", ", where they wait for ")


def _some(views: Sequence[View]) -> str:
    return f"{name_ranks(tuple(one.rank for one in views))} {'is' if len(views) == 1 else 'are'}"
