"""`holdfast check`: pre-checks here and now, for a person, a prolog, a health check or an init container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.show.cli._out import tell

if TYPE_CHECKING:
    from holdfast.loop.check import CheckPlan, CheckRound
    from holdfast.model.checks import CheckInfo
    from holdfast.model.events import ChecksFinished

FAILED = 252
"""The exit status of a failed check: the code of CheckFailed."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME[:PARAMETER=VALUE;…]]...")
@click.option("--list", "as_list", is_flag=True, help="List the checks: question, cost, parameters; run none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plugin", metavar="FILE", multiple=True, default=None, help="A Python file or an executable.")
@click.option("--check-timeout", metavar="SECONDS", default=None, help="Bound each check, its retries included.")
@click.option("--inconclusive", type=click.Choice(["warn", "fail"]), default="warn", show_default=True,
              help="What a check that crashed or ran out of time means.")  # fmt: skip
@click.option("--job", metavar="FILE", help="Check what this job file needs: its checks, programs and environment.")
def command(
    names: tuple[str, ...],
    as_list: bool,
    as_json: bool,
    plugin: tuple[str, ...],
    check_timeout: str | None,
    inconclusive: str,
    job: str | None,
) -> None:
    """Run pre-checks on this machine: those named, else the default ones. Exit status 0, or 252 where one failed."""
    import os

    from holdfast.loop.check import choices_from_text, plan_checks
    from holdfast.model.checks import CheckChoice, InconclusivePolicy
    from holdfast.record.home import home_of
    from holdfast.settings.chosen import resolve

    options: dict[str, Any] = {"plugin": plugin or None, "check_timeout": check_timeout}
    home = home_of(os.environ)
    settings = resolve(options, os.environ, home)
    plugins = settings.names("plugin") or ()
    if as_list:
        _list(names, plugins, as_json)
        return
    spec, where = None, ""
    if job is not None:
        from pathlib import Path

        from holdfast.loop.jobfile import load

        spec = load(Path(job)).spec
    choices: tuple[CheckChoice, ...] | None = None
    if names:
        choices = tuple(choice for name in names for choice in choices_from_text(name, "holdfast check"))
    elif spec is not None and spec.checks is not None:
        choices, where = spec.checks, f"{job}: checks"
    elif configured := settings.names("checks"):
        choices, where = choices_from_text(",".join(configured)), settings.origin("checks")
    plan = plan_checks(
        choices,
        plugins=plugins,
        timeout_s=settings.number("check-timeout"),
        inconclusive=InconclusivePolicy(inconclusive),
        where=where,
    )
    raise SystemExit(_run(plan, spec, as_json, str(home)))


def _run(plan: CheckPlan, spec: Any, as_json: bool, home: str) -> int:
    import signal
    import socket
    import sys
    import time
    from pathlib import Path

    from holdfast.loop.check import CheckRound, run_round
    from holdfast.model.checks import CheckState, Site
    from holdfast.show.cli._options import say

    # A check must not outlive its caller: an end by signal goes through the same clean-up as any other.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    site = Site(
        node=socket.gethostname(),
        cwd=str(Path.cwd()),
        home=home,
        workers=spec.world_size if spec is not None else 1,
    )
    began = time.monotonic()
    current = CheckRound(plan, site=site, now=began, job=spec, keep_going=True)
    answer = run_round(current, time.monotonic, say)
    code = FAILED if answer.state == CheckState.FAIL else 0
    took_s = time.monotonic() - began
    if as_json:
        from holdfast.show.report_json import pretty

        tell(pretty(_object(current, answer, site.node, code, took_s)))
    else:
        _print(current, answer, site.node, took_s)
    return code


def _state(progress: Any, finding: Any) -> str:
    """One word for a check's end."""
    from holdfast.loop.check import Progress
    from holdfast.model.checks import Answer

    if finding is not None and finding.answer is Answer.INCONCLUSIVE:
        return "INCONCLUSIVE"
    return {Progress.PASSED: "PASS", Progress.WARNED: "WARN", Progress.FAILED: "FAIL"}.get(progress, "SKIPPED")


def _object(current: CheckRound, answer: ChecksFinished, node: str, code: int, took_s: float) -> dict[str, Any]:
    """The answer as `holdfast.checks/1`."""
    checks = [
        {
            "name": step.name,
            "state": _state(progress, finding),
            "result": finding.result if finding else None,
            "message": finding.message if finding else "",
            "solution": finding.solution if finding else "",
            "blame": finding.blame if finding and finding.message and finding.result else None,
            "nodes": list(finding.nodes) if finding else [],
            "devices": list(finding.devices) if finding else [],
            "tries": tried,
            "took_s": round(finding.took_s, 6) if finding else 0.0,
            "figures": finding.figures if finding else {},
        }
        for step, progress, tried, finding in current.progress()
    ]
    return {
        "schema": "holdfast.checks/1",
        "state": answer.state,
        "code": code,
        "node": node,
        "took_s": round(took_s, 6),
        "failure": answer.failure,
        "avoid": list(answer.avoid),
        "warnings": list(answer.warnings),
        "checks": checks,
    }


def _print(current: CheckRound, answer: ChecksFinished, node: str, took_s: float) -> None:
    """The table, then what to do about each failure, then one line that says it all."""
    import os
    import sys

    from holdfast.show.terminal import Style, columns, harmless, paint, wants_colour, wrapped

    colour, width = wants_colour(sys.stdout, os.environ), columns(os.environ)
    styles = {"PASS": Style.GOOD, "FAIL": Style.BAD, "WARN": Style.WARN, "INCONCLUSIVE": Style.WARN}
    rows = current.progress()
    name_width = max([len(step.name) for step, *_ in rows], default=0)
    problems = 0
    for step, progress, _, finding in rows:
        state = _state(progress, finding)
        took = _took(finding.took_s) if finding else ""
        head = f"{step.name:<{name_width}}  {state:<12}  {took:>8}  "
        message = harmless(finding.message) if finding else ""
        lines = wrapped(message, max(width, len(head) + 30), " " * len(head), head) if message else [head.rstrip()]
        text = "\n".join(lines)
        if state in styles:
            text = text.replace(state, paint(state, styles[state], colour), 1)
        tell(text)
        if state in ("FAIL", "WARN", "INCONCLUSIVE"):
            problems += state != "WARN"
            if finding and finding.solution:
                indent = " " * len(head)
                tell("\n".join(wrapped(harmless(finding.solution), width, indent + "  ", indent + "→ ")))
    failed = sum(1 for _, progress, _, finding in rows if _state(progress, finding) == "FAIL")
    if not rows:
        tell("no checks chosen")
    elif answer.state == "FAIL":
        what = f"{failed} of {len(rows)} checks failed" if failed else f"{problems} of {len(rows)} checks cannot tell"
        tell(f"FAIL: {node}: {what} in {_took(took_s)}")
    else:
        unsure = f", {problems} could not tell" if problems else ""
        tell(f"PASS: {node}: {len(rows) - problems} of {len(rows)} checks passed{unsure} in {_took(took_s)}")


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _list(names: tuple[str, ...], plugins: tuple[str, ...], as_json: bool) -> None:
    from holdfast.loop.check import catalogue

    chosen = catalogue(plugins, names)
    if as_json:
        from holdfast.show.report_json import pretty

        tell(pretty({"schema": "holdfast.check-list/1", "checks": chosen}))
        return
    for info in chosen:
        tell(_entry(info))
    tell("\nEvery check also takes timeout, retries, interval (seconds), inconclusive, failure (warn or fail).")


def _entry(info: CheckInfo) -> str:
    """One check of the list, with its parameters."""
    notes = ["by default" if info.by_default else "when named", f"cost {info.cost}"]
    if info.needs_gang:
        notes.append("loads the machine")
    if info.during_job:
        notes.append(f"may run during a job, every {info.interval_s:g} s")
    if info.source != "built-in":
        notes.append(info.source)
    lines = [f"{info.name}: {info.question}", f"    {'; '.join(notes)}; at most {info.limit_s:g} s"]
    for param in info.params:
        default = param.default
        if param.type.startswith("size"):
            shown = f"{int(str(default)) / 1e6:g} MB"
        elif isinstance(default, tuple | list):
            shown = ",".join(map(str, default)) or "none"
        else:
            shown = "unset" if default is None else str(default) or "none"
        lines.append(f"    {param.name} ({param.type}) = {shown}  {param.about}".rstrip())
    return "\n".join(lines)
