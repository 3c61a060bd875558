"""Folds the rows of ranks with equal histories into one row. Among ten thousand ranks, only few histories differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from holdfast.model.human_format import natural
from holdfast.report.swimlane.swimlane_model import Band, Mark, MarkKind, NodeLanes, Stretch, SwimlaneRow

#: Limit on the rows of a picture. Above this limit, ranks that ended in the same way share a row.
MOST_ROWS = 36
#: Limit on the marks on the row of a job or a node.
MOST_MARKS = 48
#: Ranks share a row if their times differ by less than this fraction of the attempt's duration.
_NEAR = 0.02
_TEXTS = 3

_GRAVE = frozenset({MarkKind.OWN_DEATH, MarkKind.HANG, MarkKind.MEMORY_KILL, MarkKind.FAULT, MarkKind.LOST})


class RankRow:
    """One rank on one node, before folding."""

    __slots__ = ("culprit", "marks", "node", "rank", "role", "step", "stretches")

    def __init__(self, node: str, rank: int) -> None:
        self.node, self.rank, self.role = node, rank, ""
        self.culprit = False
        self.step: int | None = None
        self.stretches: list[Stretch] = []
        self.marks: list[Mark] = []

    @property
    def grave(self) -> bool:
        return self.culprit or any(mark.kind in _GRAVE for mark in self.marks)


_Story = Callable[[RankRow], Hashable]


def fold_rows(
    rows: Sequence[RankRow], marks: Mapping[str, Sequence[Mark]], bands: Sequence[Band]
) -> tuple[NodeLanes, ...]:
    """Group the rows by node, and fold them into at most about `MOST_ROWS` rows.

    Fold ranks with the same events at the same times. If that leaves too many rows, ignore the times.
    """
    exact = _by_times(rows, bands)
    span_s = max((band.end for band in bands), default=0.0) - min((band.start for band in bands), default=0.0)
    for story in (exact, _by_kinds):
        nodes = _by_node(rows, marks, story, span_s)
        if sum(len(node.lanes) for node in nodes) + len(nodes) <= MOST_ROWS:
            return nodes
    return _limited(rows, marks, span_s)


def thin_marks(marks: Sequence[Mark], span_s: float) -> tuple[Mark, ...]:
    """Merge marks of the same kind that lie close together. `marks` are sorted by time. `span_s`: the duration of the
    picture, in seconds.
    """
    near_s = span_s / 100
    while True:
        groups: list[list[Mark]] = []
        last: dict[MarkKind, list[Mark]] = {}
        for mark in marks:
            group = last.get(mark.kind)
            if group is not None and mark.at - group[-1].at <= near_s:
                group.append(mark)
                continue
            last[mark.kind] = [mark]
            groups.append(last[mark.kind])
        if len(groups) <= MOST_MARKS or near_s > span_s:
            return tuple(_together(group) for group in groups[:MOST_MARKS])
        near_s = near_s * 2 or 1.0


def _by_times(rows: Sequence[RankRow], bands: Sequence[Band]) -> _Story:
    """Return a key function. Its key is equal for rows with the same events at nearly the same times."""
    values: dict[tuple[int, str], set[float]] = defaultdict(set)
    for row in rows:
        for key, at in _moments(row):
            values[key].add(at)
    near = {band.attempt: max(_NEAR * (band.end - band.start), 0.02) for band in bands}
    clusters: dict[tuple[int, str], dict[float, int]] = {}
    for key, found in values.items():
        number, before, numbers = 0, None, {}
        for at in sorted(found):
            if before is not None and at - before > near.get(key[0], 0.0):
                number += 1
            numbers[at], before = number, at
        clusters[key] = numbers

    def story(row: RankRow) -> Hashable:
        return (_by_kinds(row), tuple((key, clusters[key][at]) for key, at in _moments(row)))

    return story


def _by_kinds(row: RankRow) -> Hashable:
    """Return a key that is equal for rows with the same events in the same order."""
    attempts = tuple((each.attempt, each.silent_from is None) for each in row.stretches)
    return (row.role, row.culprit, attempts, tuple((mark.attempt, mark.kind) for mark in row.marks))


def _by_end(row: RankRow) -> Hashable:
    """Return a key that depends only on how the row ended. There are few such keys, however long the job was."""
    return (row.culprit, row.marks[-1].kind if row.marks else None)


def _moments(row: RankRow) -> Iterable[tuple[tuple[int, str], float]]:
    for each in row.stretches:
        yield (each.attempt, "start"), each.start
        yield (each.attempt, "end"), each.end
    for mark in row.marks:
        yield (mark.attempt, mark.kind), mark.at


def _by_node(
    rows: Sequence[RankRow], marks: Mapping[str, Sequence[Mark]], story: _Story, span_s: float
) -> tuple[NodeLanes, ...]:
    of_node: dict[str, dict[Hashable, list[RankRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        of_node[row.node][story(row)].append(row)
    alike: dict[Hashable, list[str]] = defaultdict(list)
    for node in sorted({*of_node, *marks}, key=natural):
        stories = frozenset((told, len(found)) for told, found in of_node[node].items())
        alike[node if marks.get(node) else (stories,)].append(node)
    groups = []
    for names in alike.values():
        lanes = [
            _lane([row for name in names for row in of_node[name][told]], ranks_of=names[0])
            for told in of_node[names[0]]
        ]
        groups.append(_node(names, lanes, marks, span_s))
    groups.sort(key=lambda node: not any(lane.culprit for lane in node.lanes))
    return tuple(groups)


def _limited(rows: Sequence[RankRow], marks: Mapping[str, Sequence[Mark]], span_s: float) -> tuple[NodeLanes, ...]:
    """Return the nodes with culprits and serious marks first, as many as fit in the picture, and all other nodes as one
    entry."""
    of_node: dict[str, list[RankRow]] = defaultdict(list)
    for row in rows:
        of_node[row.node].append(row)
    names = sorted({*of_node, *marks}, key=natural)
    names.sort(
        key=lambda name: (not any(row.culprit for row in of_node[name]), not _is_grave(of_node[name], marks, name))
    )
    kept: list[NodeLanes] = []
    room = MOST_ROWS
    for index, name in enumerate(names):
        lanes = _few(of_node[name], room // 2 if index else room - 8)
        if room - len(lanes) - 1 < 8:
            rest = names[index:]
            others = [row for each in rest for row in of_node[each]]
            return (*kept, _node(rest, _few(others, 8), marks, span_s))
        kept.append(_node([name], lanes, marks, span_s))
        room -= len(lanes) + 1
    return tuple(kept)


def _few(rows: Sequence[RankRow], most: int) -> list[SwimlaneRow]:
    """Fold rows into about `most` rows: by their events, or by how they ended if that leaves too many."""
    for story in (_by_kinds, _by_end):
        found: dict[Hashable, list[RankRow]] = defaultdict(list)
        for row in rows:
            found[story(row)].append(row)
        if len(found) <= most:
            break
    return [_lane(each) for each in found.values()]


def _is_grave(rows: Sequence[RankRow], marks: Mapping[str, Sequence[Mark]], node: str) -> bool:
    return any(row.grave for row in rows) or bool(marks.get(node))


def _node(
    names: Sequence[str], lanes: list[SwimlaneRow], marks: Mapping[str, Sequence[Mark]], span_s: float
) -> NodeLanes:
    lanes.sort(key=lambda lane: (not lane.culprit, lane.ranks))
    own = sorted((mark for name in names for mark in marks.get(name, ())), key=lambda mark: mark.at)
    return NodeLanes(nodes=tuple(names), lanes=tuple(lanes), marks=thin_marks(own, span_s))


def _lane(rows: Sequence[RankRow], ranks_of: str | None = None) -> SwimlaneRow:
    """Fold these rows into one. `ranks_of`: a node; the folded row shows only this node's ranks. None: it shows the
    ranks of all nodes.
    """
    stretches: dict[int, list[Stretch]] = defaultdict(list)
    marks: dict[tuple[int, MarkKind], list[Mark]] = defaultdict(list)
    for row in rows:
        for each in row.stretches:
            stretches[each.attempt].append(each)
        for mark in row.marks:
            marks[mark.attempt, mark.kind].append(mark)
    steps = [row.step for row in rows if row.step is not None]
    return SwimlaneRow(
        ranks=tuple(sorted(row.rank for row in rows if ranks_of is None or row.node == ranks_of)),
        role=rows[0].role if len({row.role for row in rows}) == 1 else "",
        stretches=tuple(_widest(each) for _, each in sorted(stretches.items())),
        marks=tuple(sorted((_together(each) for each in marks.values()), key=lambda mark: mark.at)),
        culprit=any(row.culprit for row in rows),
        step=min(steps) if steps else None,
        count=len(rows),
    )


def _widest(found: Sequence[Stretch]) -> Stretch:
    silent = [each.silent_from for each in found if each.silent_from is not None]
    return Stretch(
        attempt=found[0].attempt,
        start=min(each.start for each in found),
        end=max(each.end for each in found),
        silent_from=max(silent) if silent else None,
    )


def _together(marks: Sequence[Mark]) -> Mark:
    """Merge equal marks into one mark, which has each of their texts once."""
    if len(marks) == 1:
        return marks[0]
    first, last = min(mark.at for mark in marks), max(mark.until or mark.at for mark in marks)
    texts = list(dict.fromkeys(mark.text for mark in marks))
    more = "; …" if len(texts) > _TEXTS and not texts[0].endswith("; …") else ""
    return Mark(
        kind=marks[0].kind,
        at=first,
        text="; ".join(texts[:_TEXTS]) + more,
        attempt=marks[0].attempt,
        until=last if last > first else None,
        count=sum(mark.count for mark in marks),
    )
