"""The swimlane as an HTML table, for people who cannot see the picture, and for copying."""

from __future__ import annotations

from holdfast.model.human_format import Zone, clock, duration
from holdfast.report.swimlane.swimlane_labels import lane_name, mark_words, nodes_name, safe
from holdfast.report.swimlane.swimlane_model import Mark, Swimlane
from holdfast.report.swimlane.swimlane_style import phase

#: Maximum number of marks shown for a row of the table: the last ones.
_MOST_MARKS = 12


def table(swimlane: Swimlane, zone: Zone) -> str:
    """Return two tables: attempts with their parts, and rows with their marks."""
    attempts = "".join(
        f'<tr><th scope="row">{band.attempt}</th><td>{safe(clock(band.start, zone))}</td>'
        f"<td>{safe(duration(band.end - band.start))}</td>"
        f"<td>{safe(', '.join(f'{phase(p.name)[1]} {duration(p.end - p.start)}' for p in band.parts))}</td>"
        f"<td>{safe('it runs' if band.running else band.phrase)}</td><td>{safe(band.decision)}</td></tr>"
        for band in swimlane.bands
    )
    rows = [_row("the job", "", swimlane.marks, zone, swimlane, None)] if swimlane.marks else []
    for node in swimlane.nodes:
        if node.marks:
            rows.append(_row(nodes_name(node), "", node.marks, zone, swimlane, None))
        rows += [
            _row(
                nodes_name(node),
                lane_name(lane, node) + (" (the culprit)" if lane.culprit else ""),
                lane.marks,
                zone,
                swimlane,
                lane.step,
            )
            for lane in node.lanes
        ]
    first = _head("attempt", "began", "took", "parts", "class", "decision")
    second = _head("where", "who", "last step", "what happened")
    return _framed("Attempts", first, attempts) + _framed("Nodes and ranks", second, "".join(rows))


def _framed(name: str, head: str, body: str) -> str:
    return (
        f'<div class="sw-scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="sw-table"><caption>{name}</caption>{head}<tbody>{body}</tbody></table></div>'
    )


def _row(where: str, who: str, marks: tuple[Mark, ...], zone: Zone, swimlane: Swimlane, step: int | None) -> str:
    told = [f"<li>{safe(mark_words(mark, zone, swimlane.bands))}</li>" for mark in marks[-_MOST_MARKS:]]
    if len(marks) > _MOST_MARKS:
        told.insert(0, f"<li>{len(marks) - _MOST_MARKS} marks before these</li>")
    happened = f"<ul>{''.join(told)}</ul>" if told else ""
    last = "" if step is None else str(step)
    return f'<tr><th scope="row">{safe(where)}</th><td>{safe(who)}</td><td>{last}</td><td>{happened}</td></tr>'


def _head(*names: str) -> str:
    cells = "".join(f'<th scope="col">{name}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"
