"""How the swimlane looks: the shapes of marks, the patterns of phases, and the style sheet.

Each mark has a shape and each phase a pattern, so that readers need not distinguish colours. The colours are CSS
variables that the page may override.
"""

from __future__ import annotations

from holdfast.report.swimlane.swimlane_model import MarkKind

#: Kind of mark → its name in the style sheet, and its shape around the point 0, 0.
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

#: Part of an attempt → its look (a name in the style sheet) and its name in the legend.
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

#: Look of a part → the pattern drawn over its colour, in a tile of 6 by 6. Running time has no pattern.
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
    """Return the look and the name of a part of an attempt.

    A part from a later version of holdfast looks like waiting.
    """
    return PHASES.get(name, ("wait", name))


#: Plain CSS for a `<style>` element. It contains no text of users or programs.
STYLE = """
.sw{--sw-ink:#1b1f24;--sw-faint:#57606a;--sw-line:#d0d7de;--sw-life:#8aa4c0;--sw-own:#c1121f;--sw-peer:#8a4b00;
--sw-stopped:#57606a;--sw-good:#1a7f37;--sw-hang:#8250df;--sw-fault:#b35900;--sw-person:#0550ae;--sw-paper:#ffffff;
--sw-wait:#eef1f4;--sw-check:#d7ecdf;--sw-prepare:#d9e8f7;--sw-start:#c4dcf5;--sw-run:#a8cdf0;--sw-detect:#f7dfc1;
--sw-drain:#f3cfc9;--sw-decide:#e4d6f5;--sw-silent:#d9c6f4;--sw-pattern:#00000038;margin:0;color:var(--sw-ink)}
@media (prefers-color-scheme:dark){.sw{--sw-ink:#e6edf3;--sw-faint:#9ea7b3;--sw-line:#3d444d;--sw-life:#5d7fa3;
--sw-own:#ff6b6b;--sw-peer:#e3a04f;--sw-stopped:#aab4bf;--sw-good:#4ac26b;--sw-hang:#c297ff;--sw-fault:#ffa657;
--sw-person:#79c0ff;--sw-paper:#0d1117;--sw-wait:#21262d;--sw-check:#1d3a2a;--sw-prepare:#1c3048;--sw-start:#1f3e61;
--sw-run:#27527f;--sw-detect:#503a1c;--sw-drain:#54302c;--sw-decide:#3d2f57;--sw-silent:#4a3470;--sw-pattern:#ffffff40}}
.sw-scroll{overflow-x:auto}
.sw-picture{display:block;width:100%;min-width:46rem;height:auto;font:12px system-ui,sans-serif}
.sw-picture text{fill:var(--sw-ink)}.sw-picture .sw-time{fill:var(--sw-faint);font-size:11px}
.sw-node{font-weight:600}.sw-picture .sw-culprit{font-weight:700;fill:var(--sw-own)}.sw-attempt{font-size:11px}
.sw-picture a text{text-decoration:underline}
.sw-tick{stroke:var(--sw-line)}.sw-frame{fill:none;stroke:var(--sw-faint)}.sw-life{fill:var(--sw-life)}
.sw-pattern{fill:var(--sw-pattern);stroke:var(--sw-pattern);stroke-width:1}
.sw-f-wait{fill:var(--sw-wait)}.sw-f-check{fill:var(--sw-check)}.sw-f-prepare{fill:var(--sw-prepare)}
.sw-f-start{fill:var(--sw-start)}.sw-f-run{fill:var(--sw-run)}.sw-f-detect{fill:var(--sw-detect)}
.sw-f-drain{fill:var(--sw-drain)}.sw-f-decide{fill:var(--sw-decide)}.sw-f-silent{fill:var(--sw-silent)}
.sw-m{stroke:var(--sw-paper);stroke-width:1.2;fill:var(--sw-c);color:var(--sw-c)}
.sw-hollow{fill:var(--sw-paper);stroke:var(--sw-c);stroke-width:2.2}
.sw-line{fill:none;stroke:var(--sw-c);stroke-width:2.4}
.sw-own,.sw-memory,.sw-lost,.sw-check{--sw-c:var(--sw-own)}.sw-peer{--sw-c:var(--sw-peer)}
.sw-stopped{--sw-c:var(--sw-stopped)}.sw-finished,.sw-progress,.sw-back{--sw-c:var(--sw-good)}
.sw-hang{--sw-c:var(--sw-hang)}.sw-fault{--sw-c:var(--sw-fault)}.sw-operator,.sw-asked{--sw-c:var(--sw-person)}
.sw-cursor{fill:var(--sw-ink);fill-opacity:.04}a:is(:hover,:focus) .sw-cursor{fill-opacity:.35}
.sw-hair{stroke:none;pointer-events:none}a:is(:hover,:focus) .sw-hair{stroke:var(--sw-ink);stroke-width:1.5}
.sw-legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;margin:.6rem 0 0;padding:0;font-size:.85rem}
.sw-legend li{display:flex;align-items:center;gap:.35rem}.sw figcaption p{margin:.3rem 0;font-size:.85rem;
color:var(--sw-faint)}
.sw-table{border-collapse:collapse;font-size:.85rem;margin:.6rem 0}.sw-table caption{text-align:left;font-weight:600}
.sw-table th,.sw-table td{border:1px solid var(--sw-line);padding:.2rem .5rem;text-align:left;vertical-align:top}
.sw-table ul{margin:0;padding-left:1.1rem}
@media print{.sw-picture{min-width:0}.sw-scroll{overflow:visible}.sw-f,.sw-life,.sw-m{print-color-adjust:exact;
-webkit-print-color-adjust:exact}}
"""
