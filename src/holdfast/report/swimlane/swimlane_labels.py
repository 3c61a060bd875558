"""Names of the rows, bands and marks of a swimlane. The picture and the table use the same names."""

from __future__ import annotations

import html

from holdfast.model.human_format import Zone, clock, duration, ranks
from holdfast.report.swimlane.swimlane_model import Band, Mark, NodeLanes, Swimlane, SwimlaneRow
from holdfast.safe_text import one_line

#: Maximum number of characters shown of a text.
_MOST = 300


def safe(text: str, most: int = _MOST) -> str:
    """Return any text in a form safe for HTML, also in an attribute: one line, cut and escaped."""
    plain = one_line(text)
    return html.escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")


def lane_name(lane: SwimlaneRow, nodes: NodeLanes) -> str:
    """Name a row: `rank 3`, or `ranks 0 to 2`; if it covers several nodes, `10000 ranks, 8 on each node`."""
    if len(nodes.nodes) == 1:
        return ranks(lane.ranks)
    each, rest = divmod(lane.count, len(nodes.nodes))
    if lane.count == 1:
        return "1 rank"
    return f"{lane.count} ranks" if rest or not each else f"{lane.count} ranks, {each} on each node"


def nodes_name(nodes: NodeLanes) -> str:
    """Name nodes, as in `gpu-1` or `1249 nodes: gpu-1 … gpu-1250`."""
    names = nodes.nodes
    if len(names) == 1:
        return names[0] or "a node without a name"
    return f"{len(names)} nodes: {names[0]} … {names[-1]}"


def mark_words(mark: Mark, zone: Zone, bands: tuple[Band, ...]) -> str:
    """Describe a mark, as in `own death at 2026-11-23 04:00:41 +01:00, 0.6 s into attempt 1: exit status 1`."""
    many = f"{mark.count} × " if mark.count > 1 else ""
    until = f" to {clock(mark.until, zone)}" if mark.until is not None and mark.until - mark.at >= 1 else ""
    into = ""
    for band in bands:
        if band.attempt == mark.attempt and mark.at >= band.start:
            into = f", {duration(mark.at - band.start)} into attempt {band.attempt}"
    text = f": {mark.text}" if mark.text else ""
    return f"{many}{mark.kind.value} at {clock(mark.at, zone)}{until}{into}{text}"


def band_words(band: Band, zone: Zone) -> str:
    """Describe a band, as in `attempt 1, 2026-11-23 04:00:41 +01:00, 0.7 s: UserException`."""
    end = "it runs" if band.running else band.phrase or "how it ended is not known"
    return f"attempt {band.attempt}, {clock(band.start, zone)}, {duration(band.end - band.start)}: {end}"


def summary(swimlane: Swimlane, zone: Zone) -> str:
    """Describe the picture in a few sentences, for people who cannot see it."""
    many = len(swimlane.bands)
    ranks_of = f"{swimlane.ranks} rank{'' if swimlane.ranks == 1 else 's'}"
    nodes = f"{swimlane.machines} node{'' if swimlane.machines == 1 else 's'}"
    told = [f"{many} attempt{'' if many == 1 else 's'} of {ranks_of} on {nodes}."]
    told += [f"{band_words(band, zone)}." for band in swimlane.bands[-4:]]
    for node in swimlane.nodes:
        for lane in node.lanes:
            if lane.culprit and lane.marks:
                last = mark_words(lane.marks[-1], zone, swimlane.bands)
                told.append(f"{lane_name(lane, node)} on {nodes_name(node)}, the culprit: {last}.")
    return " ".join(told[:10])
