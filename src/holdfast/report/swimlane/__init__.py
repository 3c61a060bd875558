"""The swimlane of a job: time by nodes and ranks, drawn without JavaScript.

    swimlane = swimlane_of(events, attempts, now=now)      builds the model from the journal's events
    figure(swimlane, zone, link=…)                         the picture with legend and table: an HTML `<figure>`
    STYLE                                                  its style sheet; light, dark and printed
    scale_of(swimlane)                                     maps times to horizontal positions, and back

Ranks with equal histories share a row, so the picture of ten thousand ranks stays small. The package escapes all texts.
It is pure: it reads no clock and no file, and shows times in the `zone` that callers pass.
"""

from __future__ import annotations

from holdfast.report.swimlane.journal_pass import SwimlaneFacts, swimlane_facts
from holdfast.report.swimlane.swimlane_build import swimlane_from, swimlane_of
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
    "SwimlaneFacts",
    "SwimlaneRow",
    "figure",
    "scale_of",
    "svg",
    "swimlane_facts",
    "swimlane_from",
    "swimlane_of",
]
