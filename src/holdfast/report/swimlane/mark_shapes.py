"""The looks of marks and phases. Each has a shape or pattern, so that readers need not distinguish colours."""

from __future__ import annotations

from holdfast.report.swimlane.swimlane_model import MarkKind

#: For each kind: its name in the style sheet, and its shape around the point 0, 0.
SHAPES: dict[MarkKind, tuple[str, str]] = {
    MarkKind.OWN_DEATH: ("own", '<circle r="5.5"/>'),
    MarkKind.PEER_DEATH: ("peer", '<circle class="sw-hollow" r="4.6"/>'),
    MarkKind.STOPPED: ("stopped", '<rect x="-4.5" y="-4.5" width="9" height="9"/>'),
    MarkKind.FINISHED: ("finished", '<path class="sw-line" d="M-5 0 L-1.5 4 L5 -4.5"/>'),
    MarkKind.HANG: ("hang", '<path d="M-5 -5h3.4v10h-3.4z M1.6 -5h3.4v10h-3.4z"/>'),
    MarkKind.FAULT: ("fault", '<path d="M1.5 -7 L-5 1 H-1 L-2 7 L5 -2 H0.5z"/>'),
    MarkKind.MEMORY_KILL: ("memory", '<path d="M-6 -4.5 H6 L0 6z"/>'),
    MarkKind.PROGRESS: ("progress", '<path class="sw-hollow" d="M-5 4.5 L0 -5 L5 4.5z"/>'),
    MarkKind.OPERATOR: ("operator", '<circle cy="-3.2" r="2.7"/><path d="M-5.5 5.5 a5.5 5.5 0 0 1 11 0z"/>'),
    MarkKind.STOP_ASKED: (
        "asked",
        '<path class="sw-hollow" d="M-2.2 -5.2 H2.2 L5.2 -2.2 V2.2 L2.2 5.2 H-2.2 L-5.2 2.2 V-2.2z"/>',
    ),
    MarkKind.LOST: ("lost", '<path class="sw-line" d="M-4.5 -4.5 L4.5 4.5 M4.5 -4.5 L-4.5 4.5"/>'),
    MarkKind.CHECK: ("check", '<path d="M0 -6 L6 0 L0 6 L-6 0z"/>'),
    MarkKind.BACK: ("back", '<path class="sw-line" d="M4.6 1.5 A4.8 4.8 0 1 1 3 -3.6 M3.4 -7 V-3 H-0.6"/>'),
}

#: For each part of an attempt: its look and its name.
PHASES: dict[str, tuple[str, str]] = {
    "backoff": ("wait", "back-off"),
    "assembling": ("wait", "waiting for nodes"),
    "checking": ("check", "checks"),
    "preparing": ("prepare", "prepare"),
    "starting": ("start", "start"),
    "running": ("run", "run"),
    "detection": ("detect", "detection"),
    "draining": ("drain", "drain"),
    "decision": ("decide", "decide"),
    "queued": ("wait", "queued"),
}

#: The pattern drawn over the colour of a look, in a tile of 6 by 6; running time has none.
PATTERNS: dict[str, str] = {
    "wait": '<circle cx="3" cy="3" r="1"/>',
    "check": '<path d="M0 6 L6 0"/>',
    "prepare": '<path d="M0 3 H6"/>',
    "start": '<path d="M3 0 V6"/>',
    "detect": '<path d="M0 0 L6 6"/>',
    "drain": '<path d="M0 0 L6 6 M0 6 L6 0"/>',
    "decide": '<path d="M0 3 H6 M3 0 V6"/>',
    "silent": '<path d="M0 6 L6 0"/>',
}


def phase(name: str) -> tuple[str, str]:
    """Return the look and the name of a part; a part of a later version looks like waiting."""
    return PHASES.get(name, ("wait", name))
