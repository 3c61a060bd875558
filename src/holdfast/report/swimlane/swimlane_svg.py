"""Draws the swimlane as one `<svg>` with a legend. It uses no scripts, and is readable without colours."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.model.human_format import Zone, clock, duration
from holdfast.report.swimlane.swimlane_labels import band_words, lane_name, mark_words, nodes_name, safe, summary
from holdfast.report.swimlane.swimlane_model import Band, Mark, MarkKind, NodeLanes, Stretch, Swimlane, SwimlaneRow
from holdfast.report.swimlane.swimlane_style import PATTERNS, SHAPES, phase
from holdfast.report.swimlane.swimlane_table import table

#: Minimum width of a drawn part of an attempt, in the unit of `Scale.width`.
_LEAST = 9.0
#: Short parts of attempts are drawn wider than to scale. Together they get at most this fraction of the width.
_MOST_AT_LEAST = 0.4


class Scale:
    """Maps seconds since the epoch to x positions between `left` and `left + width`, and back.

    `borders`: times between which the scale is linear.
    """

    def __init__(self, borders: Sequence[float], *, left: float, width: float) -> None:
        times = sorted(set(borders))
        if len(times) < 2:
            first = times[0] if times else 0.0
            times = [first, first + 1.0]
        spans = [after - before for before, after in pairwise(times)]
        least = min(_LEAST, _MOST_AT_LEAST * width / len(spans))
        total = sum(spans)
        widths = [least + (width - least * len(spans)) * span / total for span in spans]
        places = [left]
        for each in widths:
            places.append(places[-1] + each)
        #: Pairs of (time, x position), both rising. Between two pairs the scale is linear.
        self.knots: tuple[tuple[float, float], ...] = tuple(zip(times, places, strict=True))
        self._times, self._places = times, places
        #: Whether some part of an attempt is drawn more than twice as wide as to scale.
        self.stretched = min(spans) / total * width < least / 2

    def place(self, at: float) -> float:
        """Return the x position of a time. A time outside the picture is drawn at its edge."""
        return _between(self._times, self._places, at)

    def moment(self, place: float) -> float:
        """Return the time at an x position."""
        return _between(self._places, self._times, place)


def _between(source: Sequence[float], target: Sequence[float], value: float) -> float:
    if not value > source[0]:
        return target[0]
    if value >= source[-1]:
        return target[-1]
    at = bisect_right(source, value) - 1
    share = (value - source[at]) / (source[at + 1] - source[at])
    return target[at] + share * (target[at + 1] - target[at])


WIDTH = 1120
#: The x positions between which time is drawn. The names of the rows are to the left.
LEFT, RIGHT = 212, 1100
#: Heights of the picture's rows: the time axis, the job's row, a node's row and a rank's row.
_AXIS, _JOB, _NODE, _LANE = 30, 40, 24, 22
#: Minimum distance between two marks, in the units of the picture. Marks that are closer in time are moved apart.
_APART = 12.0
#: Maximum number of characters shown of a row's name.
_LABEL = 29

#: A function that returns the address to which a row links; None: the row has no link.
Link = Callable[[NodeLanes, SwimlaneRow], str | None]
#: A function that returns the address of the page about a moment (seconds since the epoch).
Address = Callable[[float], str]
_SLICES = 160


def scale_of(swimlane: Swimlane) -> Scale:
    """Return the scale that maps times to x positions of the picture, and back. A cursor over the picture needs it."""
    borders = [swimlane.start, swimlane.end]
    borders += [at for band in swimlane.bands for part in band.parts for at in (part.start, part.end)]
    return Scale(borders, left=LEFT, width=RIGHT - LEFT)


def figure(
    swimlane: Swimlane, zone: Zone, *, ident: str = "sw", link: Link | None = None, at: Address | None = None
) -> str:
    """Return the picture with its legend, its notes, and a folded table with the same content. The page needs `STYLE`.

    `ident`: the beginning of the picture's ids, different for each picture on a page. `link`: returns the address for a
    row. `at`: returns the address that shows all ranks at a moment, for a cursor over the picture.
    """
    notes = []
    if scale_of(swimlane).stretched:
        notes.append("Time runs to the right. Short parts are drawn wider than they were.")
    if swimlane.left_out:
        notes.append(f"The first {swimlane.left_out} attempts are not drawn.")
    return (
        f'<figure class="sw"><div class="sw-scroll" tabindex="0" role="region" aria-label="Swimlane">'
        f"{svg(swimlane, zone, ident=ident, link=link, at=at)}</div>"
        f"<figcaption>{legend(swimlane, ident=ident)}<p>{' '.join(notes)}</p></figcaption>"
        f"<details><summary>The same as a table</summary>{table(swimlane, zone)}</details></figure>"
    )


class _Pen(NamedTuple):
    """Draws the parts of one picture. `y`: the upper edge of a row. `ident`: the beginning of the picture's ids."""

    swimlane: Swimlane
    scale: Scale
    zone: Zone
    ident: str

    def ground(self, height: float) -> list[str]:
        """Draw the axis: the start of each attempt and the end of the picture."""
        out = []
        free_from = 0.0
        moments = [(band.start, f"{band.attempt}") for band in self.swimlane.bands] + [(self.swimlane.end, "")]
        day, zone_name = "", ""
        for at, _ in moments:
            x = self.scale.place(at)
            out.append(f'<line class="sw-tick" x1="{x:.1f}" x2="{x:.1f}" y1="{_AXIS - 6}" y2="{height:.0f}"/>')
            date, _, rest = clock(at, self.zone).partition(" ")
            time, _, zone_name = rest.partition(" ")
            last = at == self.swimlane.end and at != moments[0][0]
            from_x = x - 52 if last else x
            if from_x >= free_from:
                anchor = ' text-anchor="end"' if last else ""
                out.append(f'<text class="sw-time" x="{x:.1f}" y="{_AXIS - 10}"{anchor}>{safe(time)}</text>')
                free_from = from_x + 58
            day = day or date
        out.append(f'<text class="sw-time" x="6" y="{_AXIS - 10}">{safe(f"{day} {zone_name}")}</text>')
        return out

    def cursor(self, height: float, at: Address) -> Iterator[str]:
        """Yield slices of the axis, each a link to its moment.

        The Tab key reaches the first slice, and arrow keys the others.
        """
        wide = (RIGHT - LEFT) / _SLICES
        for slice_ in range(_SLICES):
            x = LEFT + slice_ * wide
            moment = self.scale.moment(x + wide / 2)
            yield (
                f'<a href="{safe(at(moment), 300)}" tabindex="{-1 if slice_ else 0}">'
                f"<title>{safe(clock(moment, self.zone))}</title>"
                f'<rect class="sw-cursor" x="{x:.1f}" y="0" width="{wide:.2f}" height="{_AXIS}"/>'
                f'<line class="sw-hair" x1="{x:.1f}" x2="{x:.1f}" y1="{_AXIS}" y2="{height:.0f}"/></a>'
            )

    def job_row(self, y: float) -> list[str]:
        """Draw the row of the job: its attempts with their phases, and its marks."""
        out = [_label("attempts", y + 16, "sw-node")]
        for band in self.swimlane.bands:
            decided = f" · {band.decision}" if band.decision else ""
            out.append(f"<g><title>{safe(band_words(band, self.zone) + decided)}</title>")
            for part in band.parts:
                look, name = phase(part.name)
                x, end = self.scale.place(part.start), self.scale.place(part.end)
                took = f"attempt {band.attempt}: {name}, {duration(part.end - part.start)}"
                out.append(f"<g><title>{safe(took)}</title>{_filled(x, y, end - x, 16, look, self.ident)}</g>")
            x, end = self.scale.place(band.start), self.scale.place(band.end)
            out.append(f'<rect class="sw-frame" x="{x:.1f}" y="{y:.0f}" width="{max(end - x, 1):.1f}" height="16"/>')
            words = next((each for each in _names(band) if 6.4 * len(each) <= end - x), "")
            if words:
                out.append(f'<text class="sw-attempt" x="{x + 1:.1f}" y="{y + 29:.0f}">{safe(words)}</text>')
            out.append("</g>")
        return out + self.marks(self.swimlane.marks, y + 8)

    def lane(self, node: NodeLanes, lane: SwimlaneRow, y: float, link: Link | None) -> list[str]:
        """Draw one row: its name, the lives of its processes, and its marks."""
        name = lane_name(lane, node)
        kind = "sw-lane sw-culprit" if lane.culprit else "sw-lane"
        label = _label(("▸ " if lane.culprit else "") + name, y + 15, kind, indent=16)
        to = link(node, lane) if link is not None else None
        out = [f'<a href="{safe(to, 2000)}">{label}</a>' if to else label]
        whole = f"{name} on {nodes_name(node)}"
        out += [self.stretch(each, whole, lane, y) for each in lane.stretches]
        return out + self.marks(lane.marks, y + 11, of=whole)

    def stretch(self, each: Stretch, whole: str, lane: SwimlaneRow, y: float) -> str:
        """Draw the life of a process (`each`) in the row `lane`. `whole`: the row's name and node. `y`: the upper edge
        of the row.
        """
        x, end = self.scale.place(each.start), self.scale.place(each.end)
        step = f", last step {lane.step}" if lane.step is not None else ""
        words = f"{whole}, attempt {each.attempt}: {duration(each.end - each.start)}{step}"
        out = f'<rect class="sw-life" x="{x:.1f}" y="{y + 7:.0f}" width="{max(end - x, 1.5):.1f}" height="8" rx="2"/>'
        if each.silent_from is not None:
            from_x = self.scale.place(each.silent_from)
            out += _filled(from_x, y + 7, end - from_x, 8, "silent", self.ident)
            words += f", nothing moved for {duration(each.end - each.silent_from)}"
        return f"<g><title>{safe(words)}</title>{out}</g>"

    def marks(self, marks: Sequence[Mark], y: float, of: str = "") -> list[str]:
        """Draw marks, each with its description.

        `y`: the upper edge of the row. `of`: the row that the descriptions name; empty: they name no row.
        """
        out = []
        for mark, x in zip(marks, _places([self.scale.place(mark.at) for mark in marks]), strict=True):
            words = mark_words(mark, self.zone, self.swimlane.bands)
            words = f"{of}: {words}" if of else words
            shape = _use(mark.kind, self.ident)
            out.append(f'<g transform="translate({x:.1f} {y:.0f})"><title>{safe(words)}</title>{shape}</g>')
        return out


def svg(
    swimlane: Swimlane, zone: Zone, *, ident: str = "sw", link: Link | None = None, at: Address | None = None
) -> str:
    """Return only the picture. Each band, row and mark has its description as a `<title>`."""
    pen = _Pen(swimlane, scale_of(swimlane), zone, ident)
    y = float(_AXIS)
    out = pen.job_row(y)
    y += _JOB
    for node in swimlane.nodes:
        out.append(_label(nodes_name(node), y + 16, "sw-node"))
        out += pen.marks(node.marks, y + 12)
        y += _NODE
        for lane in node.lanes:
            out += pen.lane(node, lane, y, link)
            y += _LANE
    y += 6
    if at is not None:
        out += pen.cursor(y, at)
    role = "img" if link is None and at is None else "group"
    head = (
        f'<svg class="sw-picture" viewBox="0 0 {WIDTH} {y:.0f}" width="{WIDTH}" height="{y:.0f}" role="{role}"'
        f' aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{ident}-title">Time by nodes and ranks</title>'
        f'<desc id="{ident}-desc">{safe(summary(swimlane, zone), 2000)}</desc>'
    )
    return "".join([head, _defs(ident), *pen.ground(y), *out, "</svg>"])


def legend(swimlane: Swimlane, *, ident: str = "sw") -> str:
    """Return the legend: the shapes that occur in the picture, with their names."""
    seen = {mark.kind for mark in swimlane.marks}
    for node in swimlane.nodes:
        seen |= {mark.kind for mark in (*node.marks, *(mark for lane in node.lanes for mark in lane.marks))}
    items = [
        f'<li><svg class="sw-key" viewBox="-8 -8 16 16" width="16" height="16" aria-hidden="true">{_use(kind, ident)}'
        f"</svg> {kind.value}</li>"
        for kind in MarkKind
        if kind in seen
    ]
    looks = dict.fromkeys(phase(part.name) for band in swimlane.bands for part in band.parts)
    items += [
        f'<li><svg class="sw-key" viewBox="0 0 22 12" width="22" height="12" aria-hidden="true">'
        f"{_filled(0, 0, 22, 12, look, ident)}</svg> {safe(name)}</li>"
        for look, name in looks
    ]
    if any(each.silent_from is not None for node in swimlane.nodes for lane in node.lanes for each in lane.stretches):
        items.append(
            '<li><svg class="sw-key" viewBox="0 0 22 12" width="22" height="12" aria-hidden="true">'
            f"{_filled(0, 0, 22, 12, 'silent', ident)}</svg> nothing moved</li>"
        )
    return f'<ul class="sw-legend">{"".join(items)}</ul>'


def _defs(ident: str) -> str:
    patterns = [
        f'<pattern id="{ident}-p-{name}" class="sw-pattern" width="6" height="6" patternUnits="userSpaceOnUse">'
        f"{shape}</pattern>"
        for name, shape in PATTERNS.items()
    ]
    shapes = [f'<g id="{ident}-m-{name}">{shape}</g>' for name, shape in SHAPES.values()]
    return f"<defs>{''.join(patterns)}{''.join(shapes)}</defs>"


def _names(band: Band) -> Sequence[str]:
    """Return possible names for a band, the longest first."""
    end = "running" if band.running else band.phrase
    return (f"attempt {band.attempt}: {end}", f"attempt {band.attempt}", str(band.attempt))


def _places(wanted: Sequence[float]) -> list[float]:
    """Return rising x positions for marks.

    Each position is at least `_APART` after the previous one, and none is far beyond the right edge.
    """
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + _APART) if places else place)
    most = RIGHT + 8.0
    for index in reversed(range(len(places))):
        if places[index] <= most:
            break
        places[index], most = most, most - _APART
    return places


def _use(kind: MarkKind, ident: str) -> str:
    name = SHAPES[kind][0]
    return f'<use class="sw-m sw-{name}" href="#{ident}-m-{name}"/>'


def _filled(x: float, y: float, width: float, height: float, look: str, ident: str) -> str:
    place = f'x="{x:.1f}" y="{y:.0f}" width="{max(width, 0.5):.1f}" height="{height:.0f}"'
    over = f'<rect {place} fill="url(#{ident}-p-{look})"/>' if look in PATTERNS else ""
    return f'<rect class="sw-f sw-f-{look}" {place}/>{over}'


def _label(text: str, y: float, kind: str, indent: int = 6) -> str:
    return f'<text class="{kind}" x="{indent}" y="{y:.0f}"><title>{safe(text)}</title>{safe(text, _LABEL)}</text>'
