"""The style sheet of the swimlane. Its colours are variables that the page may override."""

from __future__ import annotations

#: Plain CSS for a `<style>` element; it has no text of users or programs.
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
