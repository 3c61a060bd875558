"""Warns once, with stacks, about an idle gang, if the job has no hang time-out. It stops nothing. Pure.

A gang is idle if, for `after_s` seconds, no rank has printed a line, reported a step, changed its CPU use or moved
bytes. If the job has a hang time-out, `holdfast.decide.queries.hang_detection` is used instead: it stops a gang that
hangs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.explain.hangs.hang_judgement import with_stacks
from holdfast.model.evidence import HangEvidence, RankSnapshot
from holdfast.model.gang_protocol import Closeness, LookAtRanks, RanksSeen
from holdfast.model.job_spec import Placement

#: The number of samples of a silent gang before the warning is due.
PARTS = 4
#: Seconds that a node may take for a sample. The job does not wait for it.
ANSWER_S = 60.0
#: A rank counts as active if its use of CPU changes by more than this many cores.
CHANGE_CORES = 0.25
#: A rank counts as active if it moved more than this many bytes between two samples.
MOVED_BYTES = 1 << 20

Look = tuple[RankSnapshot, ...]


class _OpenIdleLook(msgspec.Struct):
    look: LookAtRanks
    waits_for: set[str]
    due: float
    answers: list[RanksSeen] = []


class IdleWarning:
    """Watches one job, and warns when it has been idle for `after_s`. Times are seconds on the owner's clock."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._attempt = 0
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._began_at = 0.0
        #: The time of the last activity of any rank, in seconds.
        self._since = 0.0
        self._next_at: float | None = None
        self._number = 0
        self._asked: _OpenIdleLook | None = None
        self._looks: list[Look] = []
        self._cores: dict[int, float] = {}
        self._ended: set[int] = set()

    def begin(self, attempt: int, placements: Sequence[Placement], began_at: float, now: float) -> None:
        """Start to watch an attempt whose ranks have all been up since `began_at`. `placements`: the placement of each
        rank.
        """
        ranks: dict[str, list[int]] = {}
        for placement in placements:
            ranks.setdefault(placement.node, []).append(placement.rank)
        self._attempt, self._ranks = attempt, {node: tuple(of_node) for node, of_node in ranks.items()}
        self._began_at = began_at
        self._asked = None
        self._ended = set()
        self._moved(began_at, now)
        self._next_at = began_at + self._after_s / PARTS

    def end(self) -> None:
        """Stop watching, because no attempt runs."""
        self._next_at = self._asked = None

    def next_wake(self) -> float | None:
        """Return when to call `due`; None: not again in this attempt."""
        return self._asked.due if self._asked is not None else self._next_at

    def due(self, now: float) -> LookAtRanks | HangEvidence | None:
        """Return the request to all nodes that is due at `now`, or the evidence for the warning."""
        if self._asked is not None:
            return self._whole(self._asked, now) if now >= self._asked.due else None
        if self._next_at is None or now < self._next_at:
            return None
        return self._ask(Closeness.WORDS, now)

    def hear(self, node: str, seen: RanksSeen, now: float) -> LookAtRanks | HangEvidence | None:
        """Record a node's answer to a sample. Return the next request, or the evidence for the warning. `node`: empty
        if there is only one node.
        """
        asked = self._asked
        if asked is None or (seen.attempt, seen.number) != (self._attempt, asked.look.number):
            return None
        node = node or next(iter(asked.waits_for), "")
        if node not in asked.waits_for:
            return None
        asked.waits_for.remove(node)
        asked.answers.append(seen)
        return None if asked.waits_for else self._whole(asked, now)

    # ---------------------------------------------------------------------------------- internal methods

    def _ask(self, closeness: Closeness, now: float) -> LookAtRanks:
        self._number += 1
        look = LookAtRanks(attempt=self._attempt, number=self._number, closeness=closeness)
        self._asked = _OpenIdleLook(look, set(self._ranks), now + ANSWER_S)
        return look

    def _whole(self, asked: _OpenIdleLook, now: float) -> LookAtRanks | HangEvidence | None:
        self._asked = None
        if asked.look.closeness is Closeness.WORDS:
            return self._listened(asked, now)
        look = tuple(sorted((shot for seen in asked.answers for shot in seen.look), key=lambda shot: shot.rank))
        if asked.look.closeness is Closeness.STACKS:
            self._next_at = None
            return self._evidence(look, now) if look else None
        if not look or self._moves(look):
            self._moved(now, now)
            self._looks = [look] if look else []
            return None
        self._looks = [*self._looks[:1], look]
        if now - self._since >= self._after_s and len(self._looks) > 1:
            return self._ask(Closeness.STACKS, now)
        self._next_at = now + self._after_s / PARTS
        return None

    def _listened(self, asked: _OpenIdleLook, now: float) -> LookAtRanks | None:
        heard = [one for seen in asked.answers for one in seen.heard]
        self._ended = {rank for ranks in self._ranks.values() for rank in ranks} - {one.rank for one in heard}
        newest = max((one.at for one in heard if one.at is not None), default=self._began_at)
        if newest > self._since:
            self._moved(newest, now)
            return None
        return self._ask(Closeness.LIGHT, now)

    def _moved(self, at: float, now: float) -> None:
        """Restart the idle time at `at`, because a rank was active then."""
        self._since = at
        self._looks = []
        self._cores = {}
        part_s = self._after_s / PARTS
        self._next_at = at + part_s if at >= now else max(at + part_s, now + part_s / 2)

    def _moves(self, look: Look) -> bool:
        """Return whether a rank was active since the previous sample. Keep each rank's CPU use for the
        next comparison.
        """
        before = {shot.rank: shot for shot in self._looks[-1]} if self._looks else {}
        if before and before.keys() != {shot.rank for shot in look}:
            return True
        known, self._cores = self._cores, {}
        for shot in look:
            last = before.get(shot.rank)
            if last is None or shot.at <= last.at:
                continue
            if shot.pid != last.pid or shot.io_bytes - last.io_bytes > MOVED_BYTES:
                return True
            cores = self._cores[shot.rank] = (shot.cpu_s - last.cpu_s) / (shot.at - last.at)
            if abs(cores - known.get(shot.rank, cores)) > CHANGE_CORES:
                return True
        return False

    def _evidence(self, look: Look, now: float) -> HangEvidence:
        hang = HangEvidence(attempt=self._attempt, silent_s=now - self._since, at=now)
        hang = with_stacks(hang, [*self._looks, look], self._began_at, sorted(self._ended))
        return replace(hang, why=hang.why.partition("; no rank has printed anything")[0])
