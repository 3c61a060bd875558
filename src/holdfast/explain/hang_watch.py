"""Schedules the looks at the ranks of an attempt; `holdfast.explain.hang_judgement` judges the looks. Pure.

    watch = HangWatch(attempt, timeout_s, ranks, started_at)
    watch.heard(rank, at)             call it when a rank has printed a line or reported a step; cheap
    watch.next_wake()                 the time to call `wants`
    watch.wants(now)                  the kind of look that is due, or None; take that look and pass it to `looked`
    watch.looked(look, now)           returns a Judgement; Hung is final

Looks begin shortly before the time-out ends, so that the judgement comes when it has ended. While some ranks print and
others never do (often only rank 0 logs), the silent ranks get light looks, and close looks only on suspicion.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from holdfast.explain.hang_judgement import LOOKS, Hung, Judgement, Look, LookAgain, NotHung, by_rank, gap_s, judge
from holdfast.explain.rank_motion import Manner, last_word, view
from holdfast.model.hang_messages import Closeness

_MOST_LOOKS = 64
#: Limit on the exponent of the back-off: ranks that are silent but move are looked at ever more rarely, down to once in
#: 2^4 / 2 time-outs.
_MOST_CALM = 4


class NativeLook(enum.Enum):
    """The state of the single look that includes native frames, which halts the processes for a moment."""

    LATER = enum.auto()
    WANTED = enum.auto()
    TAKEN = enum.auto()


class HangWatch:
    """The watch over one attempt. All times are seconds since the epoch."""

    def __init__(self, attempt: int, timeout_s: float, ranks: Iterable[int], started_at: float) -> None:
        self.attempt = attempt
        self.timeout_s = timeout_s
        self._started_at = started_at
        self._words = dict.fromkeys(ranks, started_at)
        self._ended: set[int] = set()
        self._looks: list[Look] = []
        self._suspicious = False
        self._calm = 0
        self._light_at = started_at + timeout_s
        self._over = False
        self._closer = NativeLook.LATER
        self._next_at = started_at + timeout_s - gap_s(timeout_s)

    def heard(self, rank: int, at: float) -> None:
        """Record that the rank printed a line or reported a step at the time `at`."""
        if at > self._words.get(rank, at):
            self._words[rank] = at

    def ended(self, rank: int) -> None:
        """Record that the rank has exited."""
        if self._words.pop(rank, None) is not None:
            self._ended.add(rank)

    def ranks(self) -> frozenset[int]:
        """Return the watched ranks that have not exited."""
        return frozenset(self._words)

    def next_wake(self) -> float | None:
        """Return the time to call `wants`; None if no rank is left to watch."""
        return None if self._over or not self._words else self._next_at

    @property
    def native(self) -> bool:
        """Whether the next look should include native frames, which happens once, when all ranks are silent."""
        return self._closer is NativeLook.WANTED

    def wants(self, now: float) -> Closeness | None:
        """Return the kind of look that is due; None: no look is due, and `next_wake` gives a later time."""
        if self._over or not self._words or now < self._next_at:
            return None
        early_s = self.timeout_s - gap_s(self.timeout_s)
        if self._looks and min(self._words.values()) > max(shot.at for shot in self._looks[0]):
            self._forget()  # every rank has printed or reported since the first look
        if now - max(self._words.values()) >= early_s:
            return Closeness.STACKS
        if self._suspicious:
            return Closeness.STACKS
        light_at = max(self._light_at, min(self._words.values()) + self.timeout_s)
        if now >= light_at:
            return Closeness.LIGHT
        self._next_at = min(max(self._words.values()) + early_s, light_at)
        return None

    def looked(self, look: Look, now: float, closeness: Closeness = Closeness.STACKS) -> Judgement:
        """Judge with one more look, which `wants` requested. `Hung` is final; otherwise `next_wake` gives the next
        time."""
        self._looks.append(look)
        if len(self._looks) > _MOST_LOOKS:
            del self._looks[1]
        judgement = judge(self.attempt, self.timeout_s, self._started_at, self._looks, self._ended)
        if closeness is Closeness.LIGHT:
            return self._looked_lightly(judgement, now)
        self._closer = self._closer_after(look, judgement)
        match judgement:
            case Hung() if self._closer is NativeLook.WANTED:
                # A hanging job can wait for one more look, which shows where native code waits.
                self._next_at = now
                return LookAgain(why="the frames of machine code are wanted", look_at=now)
            case Hung():
                self._over = True
            case LookAgain():
                self._next_at = max(now, judgement.look_at)
            case NotHung():
                self._forget()
                self._rest(judgement, now)
        return judgement

    def _closer_after(self, look: Look, judgement: Judgement) -> NativeLook:
        if self._closer is not NativeLook.LATER:
            return NativeLook.TAKEN
        silent = all(shot.at - last_word(shot, self._started_at) >= self.timeout_s for shot in look)
        doubtful = isinstance(judgement, LookAgain) and silent and len(self._looks) >= LOOKS
        read = any(shot.stack_source == "py-spy" for shot in look)
        return NativeLook.WANTED if read and (doubtful or isinstance(judgement, Hung)) else NativeLook.LATER

    def _looked_lightly(self, judgement: Judgement, now: float) -> Judgement:
        if len(self._looks) < 2:
            self._next_at = now + gap_s(self.timeout_s)
            return LookAgain(why="one look cannot tell standing from moving", look_at=self._next_at)
        if self._stands():
            self._forget()
            self._suspicious = True
            self._next_at = now
            return LookAgain(why="a rank stands: its stack is wanted", look_at=now)
        self._forget()
        calm = NotHung(why="the silent ranks move", look_at=now)
        self._rest(judgement if isinstance(judgement, NotHung) else calm, now)
        return NotHung(why=calm.why, look_at=self._next_at)

    def _stands(self) -> bool:
        found = by_rank(self._looks)
        for rank in self._words:
            shots = found.get(rank, [])
            if len(shots) < 2:
                continue
            seen = view(shots, self._started_at)
            if seen.silent_s >= self.timeout_s and seen.manner in (Manner.STOPPED, Manner.IDLE, Manner.ASLEEP):
                return True
        return False

    def _forget(self) -> None:
        self._looks.clear()
        self._suspicious = False
        self._closer = NativeLook.LATER

    def _rest(self, judgement: NotHung, now: float) -> None:
        """Schedule the next look after no hang was found: when the gang is silent again, or, while only some ranks are
        silent, at growing intervals."""
        early_s = self.timeout_s - gap_s(self.timeout_s)
        silent_at = max(self._words.values(), default=now) + early_s
        if silent_at <= now:
            self._calm = 0
            self._next_at = max(now + self.timeout_s / 2, judgement.look_at)
            return
        self._calm = min(self._calm + 1, _MOST_CALM)
        self._light_at = now + self.timeout_s / 2 * 2**self._calm
        self._next_at = min(silent_at, self._light_at)
