"""Detects a gang that hangs: the owner requests samples of the ranks from all nodes at once, and judges all samples
together.

Pure: callers pass in `now`, and get requests to the nodes.

    hangs.begin(attempt, placements, now), hangs.end()     watch an attempt; stop watching
    hangs.due(now), hangs.next_wake()                 returns the next request, or the hang that was found
    hangs.hear(node, seen, now)                       takes a node's sample; returns the same as `due` once all have
    answered

First the owner requests only the time at which each rank last printed a line or reported a step, which costs nothing.
It takes closer samples only of a silent gang. `HangWatch` decides when to take a sample, and how close it is;
`holdfast.explain.hangs.hang_judgement` judges the samples. A node that does not answer in time is named with its ranks,
and the others are judged without it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.explain.hangs.hang_judgement import (
    LOOKS,
    Hung,
    Judgement,
    Look,
    LookAgain,
    NotHung,
    by_rank,
    gap_s,
    judge,
)
from holdfast.explain.hangs.rank_motion import Manner, last_word, view
from holdfast.explain.text.sentences import ranks as name_ranks
from holdfast.model.events import HangFound
from holdfast.model.evidence import HangEvidence, RankSnapshot
from holdfast.model.gang_protocol import Closeness, LookAtRanks, RanksSeen, WantLastWords
from holdfast.model.job_spec import Placement

_MOST_LOOKS = 64
#: The longest interval between samples of ranks that print nothing but work: 2**4 / 2 hang time-outs. The interval
#: doubles up to it.
_MOST_CALM = 4


class NativeLook(enum.Enum):
    """Whether the sample with native frames is due. It is taken only once, because it halts the processes for a
    moment.
    """

    LATER = enum.auto()
    WANTED = enum.auto()
    TAKEN = enum.auto()


class HangWatch:
    """Schedules the samples of one attempt's ranks. All times are seconds since the epoch.

        watch.heard(rank, at)             call it when a rank has printed a line or reported a step; cheap
        watch.next_wake()                 the time to call `wants`
        watch.wants(now)                  the kind of sample that is due, or None; take the sample, pass it to `looked`
        watch.looked(look, now)           returns a Judgement; Hung is final

    Sampling begins shortly before the time-out ends, so that the judgement is ready at its end. While some ranks print
    and others never do (often only rank 0 logs), the silent ranks get light samples, and close samples only on
    suspicion.
    """

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
        """Record that the rank has exited, so that it is not watched any more."""
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
        """Whether the next sample includes native frames. That happens once, when all ranks are silent."""
        return self._closer is NativeLook.WANTED

    def wants(self, now: float) -> Closeness | None:
        """Return the kind of sample that is due; None: not before `next_wake`."""
        if self._over or not self._words or now < self._next_at:
            return None
        early_s = self.timeout_s - gap_s(self.timeout_s)
        if self._looks and min(self._words.values()) > max(shot.at for shot in self._looks[0]):
            self._forget()  # every rank has printed a line or reported a step since the first sample
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
        """Judge from all samples so far, with this new one, whether the attempt hangs.

        The result `Hung` is final. After any other result, `next_wake` returns when to take the next sample. `look`:
        the sample that `wants` requested. `closeness`: its kind.
        """
        self._looks.append(look)
        if len(self._looks) > _MOST_LOOKS:
            del self._looks[1]
        judgement = judge(self.attempt, self.timeout_s, self._started_at, self._looks, self._ended)
        if closeness is Closeness.LIGHT:
            return self._looked_lightly(judgement, now)
        self._closer = self._closer_after(look, judgement)
        match judgement:
            case Hung() if self._closer is NativeLook.WANTED:
                # The attempt hangs. Take one more sample with native frames, because it shows where native code waits;
                # the delay does no harm.
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
        """Schedule the next sample, because this one showed no hang.

        If all ranks are silent, it is due soon; otherwise the intervals grow.
        """
        early_s = self.timeout_s - gap_s(self.timeout_s)
        silent_at = max(self._words.values(), default=now) + early_s
        if silent_at <= now:
            self._calm = 0
            self._next_at = max(now + self.timeout_s / 2, judgement.look_at)
            return
        self._calm = min(self._calm + 1, _MOST_CALM)
        self._light_at = now + self.timeout_s / 2 * 2**self._calm
        self._next_at = min(silent_at, self._light_at)


#: Seconds that a node may take to answer. A node's own limit for the stacks of a few ranks is shorter.
ANSWER_S = 10.0
#: Seconds added to `ANSWER_S` for stacks, per rank of the largest node. A node samples some ranks in parallel, at most
#: 5 s each.
STACK_S = 1.5
#: Seconds added to `ANSWER_S` if native frames are requested.
NATIVE_S = 15.0
#: The evidence of a hang has the snapshots of at most this many culprits, and of at most this many other ranks.
SHOWN = 64

#: The owner's next step: a request to every node, or the event for a hang that was found.
Next = LookAtRanks | WantLastWords | HangFound


class _OpenLook(msgspec.Struct):
    """An open request for a sample: not all nodes have answered."""

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
        #: The nodes that did not answer the last sample → how many seconds the owner waited for each.
        self._deaf: dict[str, float] = {}
        self._number = 0

    def begin(self, attempt: int, placements: Sequence[Placement], now: float) -> None:
        """Start to watch an attempt, because all its ranks are up. A second call for the same attempt has no effect.
        `placements`: the placement of each rank.
        """
        if self._watch is not None and self._watch.attempt == attempt:
            return
        self._watch = HangWatch(attempt, self._timeout_s, [placement.rank for placement in placements], now)
        self._asked = None
        ranks: dict[str, list[int]] = {}
        for placement in placements:
            ranks.setdefault(placement.node, []).append(placement.rank)
        self._ranks = {node: tuple(of_node) for node, of_node in ranks.items()}

    def end(self) -> None:
        """Stop watching, because no attempt runs."""
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
        """Record a node's answer. Ignore an answer to another sample. `node`: empty if there is only one node."""
        watch, asked = self._watch, self._asked
        if watch is None or asked is None or (seen.attempt, seen.number) != (watch.attempt, asked.look.number):
            return []
        node = node or next(iter(asked.waits_for), "")
        if node not in asked.waits_for:
            return []
        asked.waits_for.remove(node)
        asked.answers[node] = seen
        return [] if asked.waits_for else self._looked(watch, asked, now)

    # ---------------------------------------------------------------------------------- internal methods

    def _ask(self, watch: HangWatch, closeness: Closeness, now: float) -> LookAtRanks:
        self._number += 1
        native = closeness is Closeness.STACKS and watch.native
        look = LookAtRanks(attempt=watch.attempt, number=self._number, closeness=closeness, native=native)
        limit_s = ANSWER_S
        if closeness is Closeness.STACKS:
            limit_s += STACK_S * max(map(len, self._ranks.values()), default=0)
            limit_s += NATIVE_S if native else 0.0
        # Skip nodes that did not answer the previous sample. The sample with native frames follows at once, and a
        # second wait would bring nothing.
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
        """Update the watch from the nodes' answers: when each rank last printed a line or reported a step, and which
        ranks have exited.
        """
        for node, seen in answers.items():
            for heard in seen.heard:
                if heard.at is not None:
                    watch.heard(heard.rank, heard.at)
            for rank in set(self._ranks[node]) & watch.ranks() - {heard.rank for heard in seen.heard}:
                watch.ended(rank)


def with_missing(hang: HangEvidence, missing: Mapping[str, tuple[int, ...]], waited_s: float) -> HangEvidence:
    """Add the ranks of nodes without a sample (`missing`) to the hang's reason. If all sampled ranks wait alike, the
    ranks without a sample are the culprits. `waited_s`: how long the owner waited for these nodes, in seconds.
    """
    if not missing:
        return hang
    ranks = tuple(sorted(rank for of_node in missing.values() for rank in of_node))
    gave = f"{name_ranks(ranks)} on {', '.join(missing)} gave no answer within {waited_s:.0f} s"
    seen = Counter(shot.rank for look in hang.looks[-1:] for shot in look)
    if set(hang.culprits) >= set(seen):
        return replace(hang, culprits=ranks, why=f"{gave}, while {hang.why}")
    return replace(hang, why=f"{hang.why}; {gave}")


def _with_nodes(hang: HangEvidence, ranks: Mapping[str, tuple[int, ...]]) -> HangEvidence:
    """Add the node's name to the hang's reason, if all culprits are on one of several nodes."""
    who = name_ranks(hang.culprits)
    nodes = [node for node, of_node in ranks.items() if set(of_node) & set(hang.culprits)]
    if len(ranks) < 2 or len(nodes) != 1 or not hang.why.startswith(f"{who} ") or hang.why.startswith(f"{who} on "):
        return hang
    return replace(hang, why=f"{who} on {nodes[0]}{hang.why.removeprefix(who)}")


def _bounded(hang: HangEvidence) -> HangEvidence:
    """Keep the snapshots of only the first culprits and of a few other ranks, because a report shows no more."""
    kept = set(hang.culprits[:SHOWN])

    def some(look: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
        others = [shot.rank for shot in look if shot.rank not in kept][:SHOWN]
        return tuple(shot for shot in look if shot.rank in kept or shot.rank in others)

    if all(len(look) <= SHOWN for look in hang.looks):
        return hang
    return replace(hang, looks=tuple(some(look) for look in hang.looks))
