"""`holdfast check`: runs pre-checks on this machine.

Its callers are people, prologs, health checks and init containers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options.completion_values import checks
from holdfast.cli.options.shared_options import utc_option
from holdfast.cli.output.printing import print_line
from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.model.check_results import CheckInfo
    from holdfast.node.check_entry import CheckPlan


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME[:PARAMETER=VALUE;…]]...", shell_complete=checks)
@click.option(
    "--list", "as_list", is_flag=True, help="List the checks with question, cost and parameters, and run none."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--plugin",
    metavar="FILE",
    multiple=True,
    default=None,
    help="A Python file or an executable with further pre-checks.",
)
@click.option("--check-timeout", metavar="TIME", default=None, help="Time limit of each check, including its retries.")
@click.option("--inconclusive", type=click.Choice(["warn", "fail"]), default="warn", show_default=True,
              help="The result of a check that crashed or reached its time limit.")  # fmt: skip
@click.option("--job", metavar="FILE", help="Check what this job file needs: its checks, programs and environment.")
@click.option(
    "--slurm", "hooks", flag_value="slurm", help="Check this node for Slurm: as HealthCheckProgram, Prolog or by hand."
)
@click.option("--drain", is_flag=True, help="With --slurm: drain the node with the reason if a check fails.")
@click.option("--resume", is_flag=True, help="With --slurm: end a drain by holdfast if all checks pass.")
@click.option(
    "--believe",
    metavar="USERS",
    help="With --slurm: also drain for devices that jobs of these users (or `all`) have blocked.",
)
@click.option(
    "--slurm-conf", "conf", metavar="FILE", help="With --slurm: the path of slurm.conf, if it is not at a usual place."
)
@utc_option
def command(**typed: Any) -> None:
    """Run the named pre-checks on this machine, or the default ones. Exit status 0, or 252 if a check failed."""
    if typed["hooks"] is None:
        if typed["drain"] or typed["resume"] or typed["believe"] or typed["conf"]:
            raise BadUsage(
                "--drain, --resume, --believe and --slurm-conf need --slurm", hint="holdfast check --slurm --drain"
            )
        _checked(**typed)
        return
    from holdfast.cli.node_checks.hook_check import for_hooks, hooks_of

    with for_hooks(hooks_of(typed["hooks"]), typed["conf"]):
        _checked(**typed)


def _checked(
    names: tuple[str, ...],
    as_list: bool,
    as_json: bool,
    plugin: tuple[str, ...],
    check_timeout: str | None,
    inconclusive: str,
    job: str | None,
    hooks: str | None,
    drain: bool,
    resume: bool,
    believe: str | None,
    conf: str | None,
) -> None:
    import os

    from holdfast.model.check_results import CheckChoice, InconclusivePolicy
    from holdfast.node.check_entry import choices_from_text, plan_checks
    from holdfast.record.state_directory import home_of
    from holdfast.settings.resolved_settings import resolve

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

        from holdfast.launch.jobfile.job_file_reader import load

        spec = load(Path(job)).spec
    choices: tuple[CheckChoice, ...] | None = None
    if names:
        choices = tuple(choice for name in names for choice in choices_from_text(name, "holdfast check"))
    elif spec is not None and spec.checks is not None:
        choices, where = spec.checks, f"{job}: checks"
    elif configured := settings.names("checks"):
        choices, where = choices_from_text(",".join(configured)), settings.origin("checks")
    elif hooks is not None:
        from holdfast.cli.node_checks.hook_check import hooks_of

        choices = choices_from_text(",".join(hooks_of(hooks).checks))
    plan = plan_checks(
        choices,
        plugins=plugins,
        timeout_s=settings.number("check-timeout"),
        inconclusive=InconclusivePolicy(inconclusive),
        where=where,
    )
    if hooks is not None:
        from holdfast.cli.node_checks.hook_check import NodeCheckOptions, believes, check_node

        asked = NodeCheckOptions(as_json=as_json, drains=drain, gives_back=resume, believes=believes(believe))
        raise SystemExit(check_node(plan, str(home), hooks, asked))
    raise SystemExit(_run(plan, spec, as_json, str(home)))


def _run(plan: CheckPlan, spec: Any, as_json: bool, home: str) -> int:
    import signal
    import socket
    import sys
    import time
    from pathlib import Path

    from holdfast.cli.node_checks.checks_table import FAILED, as_object, print_round
    from holdfast.cli.output.printing import say
    from holdfast.model.check_results import CheckState, Site
    from holdfast.node.check_entry import CheckRound, run_round

    # The running checks must not outlive their caller, so SIGTERM leads to the same clean-up as any other exit.
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
        from holdfast.report.report_json import pretty

        print_line(pretty(as_object(current, answer, site.node, code, took_s)))
    else:
        print_round(current, answer, site.node, took_s)
    return code


def _list(names: tuple[str, ...], plugins: tuple[str, ...], as_json: bool) -> None:
    from holdfast.node.check_entry import catalogue

    chosen = catalogue(plugins, names)
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.check-list/1", "checks": chosen}))
        return
    for info in chosen:
        print_line(_entry(info))
    print_line("\nEvery check also takes timeout, retries, interval (seconds), inconclusive, failure (warn or fail).")


def _entry(info: CheckInfo) -> str:
    """Return the text about one check for the list of checks, with its parameters."""
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
