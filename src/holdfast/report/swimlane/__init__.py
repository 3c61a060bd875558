"""The swimlane of a job: time by nodes and ranks, drawn without JavaScript.

    swimlane = swimlane_of(events, attempts, now=now)      what happened to whom, from the journal's views
    figure(swimlane, zone, link=…)                         the picture with legend and table: an HTML `<figure>`
    STYLE                                                  its style sheet; light, dark and printed
    scale_of(swimlane)                                     from a moment to its place in the picture, and back

Equal ranks share a row, so that ten thousand of them stay one small picture. All texts are escaped here.
Pure: no clock, no file; times are shown in the `zone` that the caller hands in.
"""

from __future__ import annotations

from holdfast.report.swimlane.swimlane_build import swimlane_of
from holdfast.report.swimlane.swimlane_model import (
    Band,
    Mark,
    MarkKind,
    NodeLanes,
    PhaseSpan,
    Stretch,
    Swimlane,
    SwimlaneRow,
)
from holdfast.report.swimlane.swimlane_style import STYLE
from holdfast.report.swimlane.swimlane_svg import Link, figure, scale_of, svg

__all__ = [
    "STYLE",
    "Band",
    "Link",
    "Mark",
    "MarkKind",
    "NodeLanes",
    "PhaseSpan",
    "Stretch",
    "Swimlane",
    "SwimlaneRow",
    "figure",
    "scale_of",
    "svg",
    "swimlane_of",
]
