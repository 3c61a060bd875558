"""`holdfast faults`: reports, lists, lints and replays device faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.remote_owner import job_options, node_of_job, run_verb
from holdfast.cli.options.fault_options import named, open_fault_log, policy_from, policy_options
from holdfast.cli.options.option_groups import GroupedCommand, OptionGroup
from holdfast.cli.options.shared_options import home, utc_option
from holdfast.cli.output.printing import print_line, say

if TYPE_CHECKING:
    from holdfast.node.devices.fault_commands import LevelChange, Policy


@click.group()
def command() -> None:
    """Report, list, lint and replay device faults."""


#: The options in `faults report --help`. `--help-all` has the others.
_GROUPS = (
    OptionGroup("Fault", ("device", "code", "recover", "severity", "text", "node"), ("occur", "once", "at")),
    OptionGroup("What happens", ("dry-run", "yes", "json")),
    OptionGroup("Other nodes and rules", ("job",), ("on", "fault-codes", "fault-rules")),
)


@command.command(cls=GroupedCommand, groups=_GROUPS)
@click.option("--device", required=True, metavar="D", help="The device, or the node's own name: npu0, gpu3, node7.")
@click.option("--code", required=True, metavar="C", help="The fault code: 80E18005, 79, NODE-DISK-IO …")
@click.option("--occur", is_flag=True, help="The fault began (the default).")
@click.option("--recover", is_flag=True, help="The fault is over.")
@click.option("--once", is_flag=True, help="The fault began and ended at the same moment.")
@click.option(
    "--severity",
    type=click.Choice(["info", "minor", "major", "critical"], case_sensitive=False),
    help="The severity of a code that no list has; without it such a code is refused.",
)
@click.option("--node", default="", metavar="NAME", help="The device's node, if it is not this machine.")
@click.option("--text", default="", metavar="TEXT", help="The message that reported the fault.")
@click.option("--at", type=float, metavar="SECONDS", help="Time of the fault, in seconds since 1970; default: now.")
@click.option("--dry-run", is_flag=True, help="Print the consequences, without recording the fault.")
@click.option("--yes", is_flag=True, help="Ask no question, and treat a code that no list has as a major fault.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --job, one for each node.")
@job_options
@policy_options
def report(
    device: str,
    code: str,
    occur: bool,
    recover: bool,
    once: bool,
    severity: str | None,
    node: str,
    text: str,
    at: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    job: str | None,
    on_node: str,
    fault_codes: str | None,
    fault_rules: str | None,
) -> None:
    """Record one fault of a device, and print the device's standing. An unknown device is created."""
    import json
    import os
    import socket
    import time

    from holdfast.errors import BadUsage
    from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity
    from holdfast.node.devices.fault_commands import event_refusal, explain_event, notify_all, publish
    from holdfast.platforms.platform_registry import node_called

    said = {Assertion.OCCUR: occur, Assertion.RECOVER: recover, Assertion.ONCE: once}
    given = [assertion for assertion, yes in said.items() if yes]
    if len(given) > 1:
        options = " and ".join(f"--{assertion}" for assertion in given)
        raise BadUsage(f"{options} were given together; one of them was expected", hint="holdfast faults report --help")
    if job is not None:
        from holdfast.owner.nodes.operator_client import Verb

        words = ["--device", device, "--code", code, *(f"--{assertion}" for assertion in given)]
        words += ["--severity", severity] if severity else []
        words += ["--text", text, *(["--dry-run"] if dry_run else []), *(["--yes"] if yes else [])]
        words += ["--json"] if as_json else []
        words += [] if at is None else ["--at", str(at)]
        note, where = node_of_job(job)
        print_line(run_verb(note, where, Verb.REPORT_FAULT, words, node=on_node or node))
        return
    now = time.time()
    event = FaultEvent(
        device=device,
        code=code,
        assertion=given[0] if given else Assertion.OCCUR,
        severity=Severity((severity or "major").lower()),
        at=now if at is None else at,
        node=node or node_called(os.environ) or socket.gethostname(),
        text=text,
        source="command line",
    )
    policy = policy_from(fault_codes, fault_rules)
    if dry_run and (why := event_refusal(event, now)):
        raise BadUsage(f"the event would be refused: {why}")
    keep = not named(fault_codes, fault_rules)
    if not dry_run and not yes and event.assertion is not Assertion.RECOVER:
        with open_fault_log(policy, now, writable=False, keep=keep) as log:
            if severity is None:
                _known_code(device, code, log.policy)
            log.engine.handle(event, now)
            level = log.engine.level(device) or Remedy.NONE
        if level >= Remedy.RESTART_WORKERS and event.node in ("", socket.gethostname(), node_called(os.environ)):
            _ask_to_stop(device, level.name)
    with open_fault_log(policy, now, writable=not dry_run, keep=keep) as log:
        policy = log.policy
        if dry_run:
            changes = log.engine.handle(event, now) + log.engine.tick(now)
        else:
            changes = log.report(event, now)
        stands = log.standing(device)
        if not dry_run:
            publish(event.node, log.standings())
    if not dry_run:
        notify_all(home())
    if as_json:
        whole = {
            "schema": "holdfast.fault_reported/1",
            "device": device,
            "node": event.node,
            "code": event.code,
            "dry_run": dry_run,
            "event": explain_event(event, policy),
            "changes": [_plain(change) for change in changes],
            "standing": stands.standing,
            "reason": stands.reason,
        }
        print_line(json.dumps(whole))
        return
    print_line(("would be: " if dry_run else "") + explain_event(event, policy))
    _tell([change for change in changes if change.kind != "level"], policy)
    print_line(f"{device}: {stands.standing}" + (f"; {stands.reason}" if stands.reason else ""))


def _known_code(device: str, code: str, policy: Policy) -> None:
    """Raise `BadUsage` unless a list has this fault code, because a misspelt code would isolate the device."""
    import difflib

    from holdfast.catalogue.fault_codes import canonical
    from holdfast.errors import BadUsage
    from holdfast.node.devices.fault_commands import list_codes

    known = [row["code"] for row in list_codes(policy)]
    if canonical(code) in {canonical(each) for each in known}:
        return
    near = difflib.get_close_matches(canonical(code), known, n=3, cutoff=0.6)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    report = f"holdfast faults report --device {device} --code"
    insist = f"{report} {code} --severity major --yes"
    raise BadUsage(
        f"--code {code}: no list names this fault code, and its severity was not given{meant}",
        hint="; ".join([*(f"{report} {each}" for each in near[:1]), "holdfast faults list", f"to insist: {insist}"]),
    )


def _ask_to_stop(device: str, level: str) -> None:
    """Print the jobs on this machine that the fault may stop. On a terminal, continue only if the user agrees."""
    import sys

    from holdfast.record.job_views import JobState, look

    running = [view for view in look(home()).jobs if view.state is JobState.RUNNING]
    if not running:
        return
    jobs = ", ".join(f"{view.name} ({view.id})" for view in running)
    say(f"the fault asks for {level} of {device}: it stops workers that use {device}, of {jobs}")
    if sys.stdin.isatty():
        click.confirm("Report it?", abort=True, err=True)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object with a list of `codes`.")
@policy_options
def list_(as_json: bool, fault_codes: str | None, fault_rules: str | None) -> None:
    """List every fault code, its level and its rules."""
    import json

    from holdfast.model.faults import Remedy
    from holdfast.node.devices.fault_commands import list_codes

    rows = list_codes(policy_from(fault_codes, fault_rules))
    for row in rows:
        for rule in (row["frequency"], row["duration"]):
            if rule is not None:
                rule["remedy"] = Remedy(rule["remedy"]).name
    if as_json:
        print_line(json.dumps({"schema": "holdfast.fault_codes/1", "codes": rows}))
        return
    for row in rows:
        rules = []
        if counted := row["frequency"]:
            rules.append(f"{counted['times']} in {counted['window_s']} s: {counted['remedy']}")
        if lasting := row["duration"]:
            rules.append(f"longer than {lasting['fault_s']} s: {lasting['remedy']}")
        remedy = row["remedy"] if row["listed"] else f"({row['remedy']})"
        print_line(
            f"{row['code']:<20} {remedy:<17} {row['name']}".rstrip() + (f"  [{'; '.join(rules)}]" if rules else "")
        )


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def lint(files: tuple[str, ...], as_json: bool) -> None:
    """Print every entry of these files that holdfast would ignore, and why. Exit status 1 if there is one."""
    from holdfast.node.devices.fault_commands import lint as look

    found = look(files)
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(
            pretty(
                {
                    "schema": "holdfast.fault_lint/1",
                    "files": [
                        {
                            "file": finding.file,
                            "kind": finding.kind,
                            "codes": finding.codes,
                            "rules": finding.rules,
                            "used": not finding.broken,
                            "problems": [str(problem) for problem in finding.problems],
                        }
                        for finding in found
                    ],
                }
            )
        )
    for finding in () if as_json else found:
        for problem in finding.problems:
            print_line(f"{finding.file}: {problem}")
        if finding.broken:
            print_line(f"{finding.file}: the file would not be used; the default configuration would apply")
        else:
            count = len(finding.problems)
            print_line(
                f"{finding.file}: {finding.kind}, {finding.codes} codes with a level, {finding.rules} rules; "
                + (f"{count} remark{'s' if count != 1 else ''}" if count else "all of it is used")
            )
    if any(finding.loses for finding in found):
        raise click.exceptions.Exit(1)


@command.command()
@click.argument("file", metavar="CASE.json | EVENTS.jsonl")
@click.option("--dry-run", is_flag=True, help="Only print what each rule would do.")
@click.option("--json", "as_json", is_flag=True, help="Print the timeline of EVENTS.jsonl as JSON lines.")
@utc_option
@policy_options
def replay(file: str, dry_run: bool, as_json: bool, fault_codes: str | None, fault_rules: str | None) -> None:
    """Replay a fault case, or past events, and print the levels that follow from the rules.

    CASE.json has `config`, `timeline` and `checks`; one JSON object per check is printed. EVENTS.jsonl has one event
    per line (`at` in seconds, `device`, `code`, `assertion`, `severity`); the timeline of levels is printed.
    """
    import json

    from holdfast.errors import BadUsage
    from holdfast.node.devices.fault_commands import is_case, play_cases, play_events
    from holdfast.safe_files import read_given

    try:
        data = read_given(file, 1 << 30)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadUsage(f"{file}: {why}; a fault case or a log of events was expected") from error
    if is_case(data):
        results, said = play_cases(data)
        for line in said:
            say(line)
        for result in results:
            print_line(json.dumps(result))
        return
    policy = policy_from(fault_codes, fault_rules, dry_run=dry_run)
    changes, bad, _ = play_events(data.decode("utf-8", "replace").splitlines(), policy)
    for line in bad:
        say(f"{file}: {line}; not used")
    if as_json:
        for change in changes:
            print_line(json.dumps({"schema": "holdfast.fault_change/1", **_plain(change)}))
        return
    _tell(changes, policy, stamped=True)
    if not changes:
        print_line("no event changed the level of any device")
    if bad and not changes:
        raise click.exceptions.Exit(2)


def _plain(change: LevelChange) -> dict[str, object]:
    after = change.after.name if change.after is not None else None
    before = change.before.name if change.before is not None else None
    entry = {"at": change.at, "device": change.device, "before": before, "after": after, "code": change.code}
    return {**entry, "kind": str(change.kind), "reason": change.reason}


def _tell(changes: list[LevelChange], policy: Policy, *, stamped: bool = False) -> None:
    from holdfast.record.local_time import clock

    for change in changes:
        text = change.told(seed_names=policy.seed_names)
        print_line(f"{clock(change.at)}  {text}" if stamped else text)
