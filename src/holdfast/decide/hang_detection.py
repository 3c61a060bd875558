"""Detects a gang that hangs: the owner asks all nodes at once to look at their ranks, and judges the looks together.

Pure: `now` comes in, requests to the nodes go out.

    hangs.begin(attempt, seats, now), hangs.end()     an attempt runs; it runs no more
    hangs.due(now), hangs.next_wake()                 returns the next request, or the hang that was found
    hangs.hear(node, seen, now)                       takes a node's look; returns the same once all have answered

First the owner asks when each rank last printed a line or reported a step, which costs nothing. It looks closer only at
a silent gang. `holdfast.explain.hang_watch` decides when to look, and how closely. A node that does not answer in time
is named with its ranks, and the others are judged without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.explain.hang_judgement import Hung
from holdfast.explain.hang_watch import HangWatch
from holdfast.explain.sentences import ranks as name_ranks
from holdfast.model.events import HangFound
from holdfast.model.evidence import HangEvidence, RankSnapshot
from holdfast.model.hang_messages import Closeness, LookAtRanks, RanksSeen, WantLastWords
from holdfast.model.job_spec import Seat

#: Seconds that a node may take to answer: longer than its own limit for the stacks of a few ranks.
ANSWER_S = 10.0
#: Seconds added for each rank of the largest node if stacks are requested: a node samples some ranks in parallel, at
#: most 5 s each.
STACK_S = 1.5
#: Seconds added if native frames are requested.
NATIVE_S = 15.0
#: The evidence keeps the looks at up to this many ranks that differ, and at up to this many others.
SHOWN = 64

#: A request to every node, or the hang that was found.
Next = LookAtRanks | WantLastWords | HangFound


class _OpenLook(msgspec.Struct):
    """A request for a look that not all nodes have answered."""

    look: LookAtRanks
    waits_for: set[str]
    asked_at: float
    due: float
    answers: dict[str, RanksSeen] = {}


class HangDetection:
    """Watches one job for a hang. `timeout_s`: the hang time-out. Times are seconds on the owner's clock."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._watch: HangWatch | None = None
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._asked: _OpenLook | None = None
        #: The nodes that did not answer the last look, with the seconds that it waited for them.
        self._deaf: dict[str, float] = {}
        self._number = 0

    def begin(self, attempt: int, seats: Sequence[Seat], now: float) -> None:
        """Start to watch an attempt whose ranks are all up. A second call for the same attempt does nothing."""
        if self._watch is not None and self._watch.attempt == attempt:
            return
        self._watch = HangWatch(attempt, self._timeout_s, [seat.rank for seat in seats], now)
        self._asked = None
        ranks: dict[str, list[int]] = {}
        for seat in seats:
            ranks.setdefault(seat.node, []).append(seat.rank)
        self._ranks = {node: tuple(of_node) for node, of_node in ranks.items()}

    def end(self) -> None:
        """Stop watching: no attempt runs."""
        self._watch = self._asked = None

    def next_wake(self) -> float | None:
        """Return when to call `due`; None: no attempt runs."""
        if self._watch is None:
            return None
        return self._asked.due if self._asked is not None else self._watch.next_wake()

    def due(self, now: float) -> list[Next]:
        """Return the requests that are due at `now`, or the hang that was found."""
        watch = self._watch
        if watch is None:
            return []
        if self._asked is not None:
            return self._looked(watch, self._asked, now) if now >= self._asked.due else []
        wake = watch.next_wake()
        return [self._ask(watch, Closeness.WORDS, now)] if wake is not None and wake <= now else []

    def hear(self, node: str, seen: RanksSeen, now: float) -> list[Next]:
        """Take a node's answer; ignore an answer to another look. `node`: empty if there is only one node."""
        watch, asked = self._watch, self._asked
        if watch is None or asked is None or (seen.attempt, seen.number) != (watch.attempt, asked.look.number):
            return []
        node = node or next(iter(asked.waits_for), "")
        if node not in asked.waits_for:
            return []
        asked.waits_for.remove(node)
        asked.answers[node] = seen
        return [] if asked.waits_for else self._looked(watch, asked, now)

    # ------------------------------------------------------------------------------------------ inside

    def _ask(self, watch: HangWatch, closeness: Closeness, now: float) -> LookAtRanks:
        self._number += 1
        native = closeness is Closeness.STACKS and watch.native
        look = LookAtRanks(attempt=watch.attempt, number=self._number, closeness=closeness, native=native)
        limit_s = ANSWER_S
        if closeness is Closeness.STACKS:
            limit_s += STACK_S * max(map(len, self._ranks.values()), default=0)
            limit_s += NATIVE_S if native else 0.0
        # The look with native frames follows at once: do not wait again for a node that did not answer the last one.
        wanted = set(self._ranks) - set(self._deaf if native else ())
        self._asked = _OpenLook(look, wanted or set(self._ranks), now, now + limit_s)
        return look

    def _looked(self, watch: HangWatch, asked: _OpenLook, now: float) -> list[Next]:
        self._asked = None
        missing = {node: self._ranks[node] for node in self._ranks if node not in asked.answers}
        if asked.look.closeness is Closeness.WORDS:
            self._listen(watch, asked.answers)
            wanted = watch.wants(now)
            return [] if wanted is None else [self._ask(watch, wanted, now)]
        look = sorted((shot for seen in asked.answers.values() for shot in seen.look), key=lambda shot: shot.rank)
        judgement = watch.looked(tuple(look), now, asked.look.closeness)
        waited_s = max((self._deaf.get(node, 0.0) for node in missing), default=0.0) if asked.look.native else 0.0
        waited_s = max(waited_s, now - asked.asked_at)
        self._deaf = dict.fromkeys(missing, waited_s)
        if not isinstance(judgement, Hung):
            return []
        evidence = with_missing(judgement.evidence, missing, waited_s)
        evidence = _bounded(_with_nodes(evidence, self._ranks))
        found: list[Next] = [HangFound(attempt=watch.attempt, evidence=evidence)]
        if not any(thread.frames for shot in look for thread in shot.threads):
            found.insert(0, WantLastWords(attempt=watch.attempt))
        return found

    def _listen(self, watch: HangWatch, answers: Mapping[str, RanksSeen]) -> None:
        """Update the watch with each rank's last line or step, and with the ranks that have ended."""
        for node, seen in answers.items():
            for heard in seen.heard:
                if heard.at is not None:
                    watch.heard(heard.rank, heard.at)
            for rank in set(self._ranks[node]) & watch.ranks() - {heard.rank for heard in seen.heard}:
                watch.ended(rank)


def with_missing(hang: HangEvidence, missing: Mapping[str, tuple[int, ...]], waited_s: float) -> HangEvidence:
    """Add the ranks without a look to the hang's reason. If all other ranks wait alike, these are the culprits."""
    if not missing:
        return hang
    ranks = tuple(sorted(rank for of_node in missing.values() for rank in of_node))
    gave = f"{name_ranks(ranks)} on {', '.join(missing)} gave no answer within {waited_s:.0f} s"
    seen = Counter(shot.rank for look in hang.looks[-1:] for shot in look)
    if set(hang.culprits) >= set(seen):
        return replace(hang, culprits=ranks, why=f"{gave}, while {hang.why}")
    return replace(hang, why=f"{hang.why}; {gave}")


def _with_nodes(hang: HangEvidence, ranks: Mapping[str, tuple[int, ...]]) -> HangEvidence:
    """Add the node's name to the culprits in the reason, if the job has several nodes and they are all on one."""
    who = name_ranks(hang.culprits)
    nodes = [node for node, of_node in ranks.items() if set(of_node) & set(hang.culprits)]
    if len(ranks) < 2 or len(nodes) != 1 or not hang.why.startswith(f"{who} ") or hang.why.startswith(f"{who} on "):
        return hang
    return replace(hang, why=f"{who} on {nodes[0]}{hang.why.removeprefix(who)}")


def _bounded(hang: HangEvidence) -> HangEvidence:
    """Keep only the looks at the culprits and at some other ranks: a report names no more."""
    kept = set(hang.culprits[:SHOWN])

    def some(look: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
        others = [shot.rank for shot in look if shot.rank not in kept][:SHOWN]
        return tuple(shot for shot in look if shot.rank in kept or shot.rank in others)

    if all(len(look) <= SHOWN for look in hang.looks):
        return hang
    return replace(hang, looks=tuple(some(look) for look in hang.looks))
