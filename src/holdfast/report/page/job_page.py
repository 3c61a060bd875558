"""Builds the page section by section, in the words and the order of the job's page in `holdfast web`.

A test compares the two. This page has the environment and the report as JSON besides.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.model.decisions import AttemptRecord
from holdfast.model.events import Event
from holdfast.model.exit_report import Evidence, ExitReport, Outcome, SourceLines
from holdfast.model.human_format import Zone, clock, duration, ranks, with_address
from holdfast.record.job_views import JobDetail
from holdfast.report.brief_report import numbered, report_entries
from holdfast.report.failure_place import FailurePlace, source_of
from holdfast.report.page.page_facts import JournalFacts, budgets, commands_of, facts_of, others, then_of
from holdfast.report.swimlane import STYLE, figure, swimlane_of
from holdfast.report.text_report import bound_in_words
from holdfast.safe_text import harmless

#: Plain CSS. It contains no text of users or programs, and loads no file.
PAGE_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#57606a;--line:#d0d7de;--paper:#ffffff;--block:#f3f5f7;
--bad:#b3121d;--good:#1a7f37;--warn:#8a4b00}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#9ea7b3;--line:#3d444d;--paper:#0d1117;--block:#161b22;
--bad:#ff7b72;--good:#4ac26b;--warn:#e3a04f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.2rem}
h1{font-size:1.5rem;margin:0 0 .6rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}
.word{color:var(--warn)}.word-failed{color:var(--bad)}.word-succeeded{color:var(--good)}
dl{margin:0}dl div{display:grid;grid-template-columns:6rem minmax(0,1fr);gap:.2rem .8rem;padding:.15rem 0}
dt{color:var(--faint)}dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
pre,code{font:13px/1.4 ui-monospace,monospace}code{overflow-wrap:anywhere}
pre{background:var(--block);border:1px solid var(--line);border-radius:4px;padding:.5rem .7rem;margin:.2rem 0;
overflow-x:auto;max-height:32rem}
ol{padding-left:1.6rem}li p{margin:.4rem 0 .1rem;color:var(--faint)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{border:1px solid var(--line);padding:.25rem .55rem;text-align:left;vertical-align:top}
summary{cursor:pointer}section>details>summary{font-size:1.1rem;font-weight:600;margin:1.2rem 0 .4rem}
.lead{font-size:1.15rem;margin:.4rem 0;overflow-wrap:anywhere}small{color:var(--faint)}
@media (max-width:40rem){dl div{grid-template-columns:minmax(0,1fr)}}
@media print{main{max-width:none;padding:0}pre{max-height:none;overflow:visible;white-space:pre-wrap;
overflow-wrap:anywhere}.wide{overflow:visible}section{break-inside:auto}h2{break-after:avoid}li,tr{break-inside:avoid}}
"""


MOST_EVIDENCE = 40
#: Maximum number of groups of ranks whose end is explained.
MOST_OTHERS = 40
#: Maximum number of lines shown of one piece of evidence: its last lines.
MOST_LINES = 60
#: Limit on the JSON report on the page, in characters. If the report is longer, the page names the file instead.
MOST_JSON = 120_000
_LINE = 1000
_NODES = 200
_ATTEMPTS = 100


def page(
    known: JobDetail,
    events: Iterable[tuple[float, Event]],
    zone: Zone,
    *,
    now: float,
    report_json: str,
    written_by: str,
    scene: FailurePlace | None = None,
) -> str:
    """Return the whole HTML document of one job.

    `known`: the job's attempts and report. `events`: its journal, oldest first. `now`: seconds since the epoch.
    `report_json`: the report as `--json` prints it. `written_by`: the versions of the programs that made the page.
    `scene`: the place of the failure in the worker's log. The page leaves out the source lines that come from the log,
    because secrets are not masked there. Those of the report have none.
    """
    history = list(events)
    facts = facts_of(history, known)
    swimlane = swimlane_of(history, known.attempts, now=None if known.report is not None else now)
    word = known.report.outcome.value if known.report is not None else known.view.state.value
    title = f"{known.view.name or known.view.id} {word.upper()}"
    body = [
        _top(known, word, zone, now, scene or FailurePlace()),
        _section("Time by nodes and ranks", figure(swimlane, zone)),
        _attempts(known, zone),
        _others(known, facts),
        _decision(known, facts),
        _evidence(known.report.report, zone) if known.report is not None else "",
        _environment(known, facts, written_by, zone, now),
        _json(report_json),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{safe(title, 200)}</title><style>{PAGE_STYLE}{STYLE}</style></head>\n"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def safe(text: object, most: int = 4000) -> str:
    """Return any text for HTML: without control characters, and with markup escaped."""
    plain = harmless(str(text))
    return html.escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")


def block(text: str, most_lines: int = MOST_LINES) -> str:
    """Return the last lines of a text as a `<pre>` block."""
    lines = harmless(text).split("\n")
    left = len(lines) - most_lines
    shown = [line if len(line) <= _LINE else f"{line[: _LINE - 1]}…" for line in lines[-most_lines:]]
    note = f"… {left} lines before these are in the report\n" if left > 0 else ""
    return f'<pre tabindex="0">{html.escape(note + chr(10).join(shown))}</pre>'


def _top(known: JobDetail, word: str, zone: Zone, now: float, scene: FailurePlace) -> str:
    view, report = known.view, known.report
    last = report.report if report is not None else None
    failed = report is not None and report.outcome is not Outcome.SUCCEEDED
    look = safe(word.replace(" ", "-"))
    name = f"{safe(view.name or view.id)} <small>{safe(view.id)}</small>"
    head = f'<h1>{name} <span class="word word-{look}">{safe(word)}</span></h1>'
    rows: list[tuple[str, str]] = []
    if last is not None:
        head += f'<p class="lead">{safe(scene.said or last.reason)}</p>'
    if report is not None and last is not None and failed:
        frames = tuple(replace(frame, source="") for frame in scene.frames)
        source = source_of(last, scene)
        for label, text in report_entries(report, replace(scene, frames=frames)):
            if label:
                rows.append(_entry((label, text), source))
            else:
                head += f"<p>{safe(text)}</p>"
    rows.append(("Started", f"{safe(clock(view.created, zone))} on {safe(view.host)}"))
    ended = view.ended if view.ended is not None else now
    rows.append(("Took" if report is not None else "Runs since", safe(duration(max(ended - view.created, 0.0)))))
    typed = commands_of(view.id, report is None, failed, last)
    rows.append(("Type", "<br>".join(f"<code>{safe(line)}</code>" for line in typed)))
    return f"<header>{head}{_pairs(rows)}</header>"


def _entry(entry: tuple[str, str], source: SourceLines | None) -> tuple[str, str]:
    """Return one line of the terminal's report as the title and the value of a row. `source`: see `source_of`."""
    label, text = entry
    value = safe(text)
    if label == "where" and source is not None:
        place, _, callers = text.partition("\n")
        value = f"<code>{safe(place)}</code>{block(chr(10).join(numbered(source)))}<code>{safe(callers)}</code>"
    elif label in ("where", "log"):
        value = f"<code>{value}</code>"
    return label.capitalize(), f"<strong>{value}</strong>" if label == "fix" else value


def _evidence(last: ExitReport, zone: Zone) -> str:
    items = [f"<li><p>{safe(_source(item, zone))}</p>{block(item.text)}</li>" for item in last.evidence[:MOST_EVIDENCE]]
    if not items:
        return ""
    more = len(last.evidence) - MOST_EVIDENCE
    note = f"<p>{more} more in report.json</p>" if more > 0 else ""
    return _folded(f"Evidence, the strongest first: {len(last.evidence)}", f"<ol>{''.join(items)}</ol>{note}")


def _source(item: Evidence, zone: Zone) -> str:
    node = f" on {item.node}" if item.node else ""
    when = f", {clock(item.at, zone)}" if item.at is not None else ""
    return f"{item.source or item.kind.value}{node}{when}"


def _attempts(known: JobDetail, zone: Zone) -> str:
    if not known.attempts:
        return _section("Attempts", "<p>None has ended yet.</p>")
    shown = known.attempts[-_ATTEMPTS:]
    rows = [_attempt(record, zone) for record in reversed(shown)]
    head = _head("Attempt", "Started", "Took", "Step", "Why it ended", "Then")
    left = len(known.attempts) - len(shown)
    note = f"<p>{left} attempts before these are in report.json</p>" if left else ""
    return _section("Attempts", f"{_table('Table of attempts', head, rows)}{note}")


def _attempt(record: AttemptRecord, zone: Zone) -> str:
    report = record.report
    cells = [
        clock(record.started_at, zone),
        duration(record.ended_at - record.started_at),
        "" if record.step is None else str(record.step),
        f"{report.phrase}: {report.reason}",
        then_of(record),
    ]
    return f'<tr><th scope="row">{record.attempt}</th>{"".join(f"<td>{safe(cell)}</td>" for cell in cells)}</tr>'


def _others(known: JobDetail, facts: JournalFacts) -> str:
    if known.report is None or known.report.outcome is Outcome.SUCCEEDED:
        return ""
    groups = others(known.report, facts.evidence)
    rows = [f"<li>{safe(ranks(each.ranks))}: {safe(each.words)}</li>" for each in groups[:MOST_OTHERS]]
    return _section("Other ranks", f"<ul>{''.join(rows)}</ul>") if rows else ""


def _decision(known: JobDetail, facts: JournalFacts) -> str:
    if not known.attempts:
        return ""
    last = known.attempts[-1]
    kind = last.decision.kind.value
    spent = "".join(f"<li>{safe(line)}</li>" for line in budgets(known.report, known, facts.spec))
    after = f"<p>After attempt {last.attempt}: <strong>{kind}</strong>: {safe(then_of(last))}</p>"
    return _folded(f"Decision: {kind}", f"{after}<ul>{spent}</ul>")


def _environment(known: JobDetail, facts: JournalFacts, written_by: str, zone: Zone, now: float) -> str:
    view, spec = known.view, facts.spec
    rows = [("Owner", safe(f"pid {view.pid} on {view.host}"))]
    if spec is not None:
        each = " on each node" if any(role.per_node for role in spec.roles) and spec.nodes.many else ""
        rows.append(("Workers", safe(f"{spec.world_size}{each}")))
        for role in spec.roles[:8]:
            rows.append((f"Command of {safe(role.name, 80)}", f"<code>{safe(' '.join(role.command), 2000)}</code>"))
            if role.env:
                rows.append((f"Variables of {safe(role.name, 80)}", safe(", ".join(sorted(role.env)))))
        if spec.image:
            rows.append(("Image", safe(spec.image)))
    if view.platform is not None:
        rows.append(("Platform", safe(f"{view.platform.platform} {view.platform.id} {view.platform.cluster}".strip())))
    names = [_node(node.name, node.address, node.devices) for node in facts.nodes[:_NODES]]
    if len(facts.nodes) > _NODES:
        names.append(f"and {len(facts.nodes) - _NODES} more")
    if names:
        rows.append(("Nodes", safe("; ".join(names), 12_000)))
    if known.report is not None and known.report.report.devices:
        rows.append(("Blamed devices", safe(", ".join(known.report.report.devices[:16]))))
    if known.attempts and known.attempts[-1].bound:
        rows.append(("Bound", safe(bound_in_words(known.attempts[-1].bound))))
    checks = known.attempts[-1].checks if known.attempts else None
    if checks is not None:
        listed = [
            f"{check.name} {check.state}{f': {check.message}' if check.message else ''}" for check in checks.checks
        ]
        rows.append(
            ("Pre-checks", safe(f"{checks.state.value}: {'; '.join(listed)}" if listed else checks.state.value))
        )
    rows.append(("Page written", safe(f"{clock(now, zone)} by {written_by}")))
    return _section("Environment", _pairs(rows))


def _node(name: str, address: str, devices: Sequence[str]) -> str:
    listed = f" [{', '.join(devices[:16])}]" if devices else ""
    return with_address(name, address) + listed


def _json(report_json: str) -> str:
    text = report_json
    note = ""
    if len(text) > MOST_JSON:
        text = text[:MOST_JSON]
        note = f"<p>Only the first {MOST_JSON} characters: the whole is in the job's report.json.</p>"
    inside = f'{note}<pre tabindex="0">{html.escape(harmless(text))}</pre>'
    return f"<section><details><summary>The report as JSON</summary>{inside}</details></section>"


def _folded(title: str, inside: str) -> str:
    return f"<section><details><summary>{title}</summary>{inside}</details></section>"


def _section(title: str, inside: str) -> str:
    return f"<section><h2>{title}</h2>{inside}</section>"


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in rows)}</dl>"


def _head(*names: str) -> str:
    return "".join(f'<th scope="col">{name}</th>' for name in names)


def _table(name: str, head: str, rows: Sequence[str]) -> str:
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
