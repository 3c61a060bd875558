"""`holdfast submit --platform slurm job.yaml`: a job file into a cluster's queue."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.errors import BadUsage
from holdfast.show.cli._options import home, say
from holdfast.show.cli._out import tell

if TYPE_CHECKING:
    from holdfast.loop.submit import Prepared
    from holdfast.model.jobs import PlatformJob

_NAMES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "nodes": (("--nodes", "--nnodes", "-N"), "N|MIN:MAX", "Nodes that take part.  [1]"),
    "spares": (("--spares",), "N", "Further nodes, kept ready."),
    "gpus": (("--gpus", "--gpus-per-node"), "N", "GPUs of each node."),
    "cpus": (("--cpus", "--cpus-per-task", "-c"), "N", "Cores of each node."),
    "memory": (("--memory", "--mem"), "SIZE", "Memory of each node: 64G."),
    "partition": (("--partition", "-p"), "NAME", "The partition."),
    "account": (("--account", "-A"), "NAME", "The account that pays."),
    "qos": (("--qos", "-q"), "NAME", "The quality of service."),
    "time": (("--time", "-t"), "LIMIT", "The time limit: minutes, H:M:S, D-H."),
    "signal": (("--signal",), "SIGNAL@S", "A signal before the time limit."),
    "comment": (("--comment",), "TEXT", "A comment."),
    "constraint": (("--constraint", "-C"), "FEATURES", "Features that the nodes must have."),
    "exclude": (("--exclude", "-x"), "NODES", "Nodes that are not wanted."),
    "reservation": (("--reservation",), "NAME", "The reservation."),
    "array": (("--array", "-a"), "INDICES", "One job for each index: 0-19%4."),
    "output": (("--output", "-o"), "FILE", "Where what is printed goes.  [slurm-%j.out]"),
    "report": (("--report",), "FILE", "Also write report.json there; %j and %A_%a are filled in."),
    "replace-wait": (("--replace-wait",), "SECONDS", "With too few nodes left: how long another is waited for."),
    "python": (("--python",), "PATH", "The Python that has holdfast on the nodes.  [this one]"),
}
"""Names of the section that are options too."""


def _params() -> list[click.Parameter]:
    named: list[click.Parameter] = [
        click.Option([f"own_{key.replace('-', '_')}", *forms], metavar=metavar, help=text)
        for key, (forms, metavar, text) in _NAMES.items()
    ]
    return [
        click.Argument(["job"], metavar="JOB.yaml"),
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF RUN]"),
        click.Option(["--platform"], metavar="NAME", help="slurm; the one whose section the file has, unless given."),
        click.Option(["--dry-run"], is_flag=True, help="Print the script, and submit nothing."),
        click.Option(["--wait"], is_flag=True, help="Wait for the job's end; the status is the job's."),
        click.Option(["--json"], is_flag=True, help="Print the ids as one JSON object."),
        click.Option(["--name"], metavar="NAME", help="What the job is called; the file's name unless given."),
        click.Option(["--max-restarts"], metavar="N", help="As for run."),
        *named,
        click.Option(
            ["own_requeue", "--requeue/--no-requeue"], default=None, help="Whether Slurm may start it again.  [yes]"
        ),
        click.Option(
            ["own_requeue_at_limit", "--requeue-at-limit/--no-requeue-at-limit"],
            default=None,
            help="At the time limit: save, and have Slurm start the job again.  [no]",
        ),
        click.Option(
            ["sbatch", "--sbatch"], multiple=True, metavar="NAME[=VALUE]", help="Any other option of sbatch; repeated."
        ),
    ]


def _main(
    *,
    job: str,
    words: tuple[str, ...],
    platform: str | None,
    dry_run: bool,
    wait: bool,
    json: bool,
    name: str | None,
    max_restarts: str | None,
    sbatch: tuple[str, ...],
    **own: str | bool | None,
) -> None:
    """Hand a job file to a cluster's queue.

    The job runs there as `holdfast run --job` would run it here. What its `slurm:` section says (nodes, spares, gpus,
    partition, time ...) can be said by options, which win. A later edit of the file changes nothing: the job runs from
    a copy.
    """
    import time

    from holdfast.loop.submit import Request, prepare, submit, will_not_start
    from holdfast.settings.chosen import resolve

    typed = [*(["--name", name] if name else []), *(["--max-restarts", max_restarts] if max_restarts else []), *words]
    given = _of_run(typed)
    where = home()
    from holdfast.settings.table import BY_NAME

    settings = resolve(
        {key: value for key, value in given.items() if key.replace("_", "-") in BY_NAME}, os.environ, where
    )
    request = Request(
        path=Path(job), platform=platform, options=_options(own, sbatch), run_words=tuple(typed), home=where
    )
    prepared = prepare(request, settings, cwd=Path.cwd())
    for note in prepared.notes:
        say(note)
    if dry_run:
        tell(prepared.script, nl=False)
        say(f"nothing was submitted; the job would run from a copy of {job}: {prepared.order.job_file}")
        return

    def told(found: PlatformJob) -> None:
        _tell(found, prepared, json)
        if sorry := will_not_start(found, prepared):
            say(sorry)

    status = submit(prepared, now=time.time(), wait=wait, environment=os.environ, told=told)
    sys.exit(status)


def _options(own: dict[str, str | bool | None], sbatch: tuple[str, ...]) -> dict[str, Any]:
    from holdfast.loop.submit import of_option

    found = {}
    for param, value in own.items():
        key = param.removeprefix("own_").replace("_", "-")
        if value is not None:
            off = "no-" if value is False else ""
            found[key] = of_option(f"--{off}{key}", value)
    for word in sbatch:
        key, equals, value = word.partition("=")
        if not key.strip("-"):
            raise BadUsage(f"--sbatch {word}: expected NAME or NAME=VALUE", hint="holdfast submit --sbatch nice=100 …")
        found[key] = of_option(f"--sbatch {word}", value if equals else True)
    return found


_JOB = "JOB.yaml"
_INSTEAD = {"nnodes": "--nodes", "spares": "--spares", "report": "--report"}
"""Options of run that have to agree with what Slurm is asked for (nodes, an array): submit has its own."""


def _of_run(words: list[str]) -> dict[str, object]:
    """What `holdfast run` makes of these words, so that a mistake shows now and not when the job begins."""
    from holdfast.show.cli.run import command

    try:
        context = command.make_context("holdfast run", ["--job", _JOB, *words])
    except click.UsageError as error:
        raise BadUsage(f"behind `--`: {error.format_message()}", hint="holdfast run --help") from None
    if str(context.params["job"]) != _JOB:
        raise BadUsage(
            f"behind `--`: --job {context.params['job']}: expected the job file before the `--`",
            hint=f"holdfast submit {context.params['job']}",
        )
    for param, option in _INSTEAD.items():
        if context.get_parameter_source(param) is click.core.ParameterSource.COMMANDLINE:
            raise BadUsage(
                f"behind `--`: --{param}: submit has an option of its own; expected {option} before the `--`",
                hint=f"holdfast submit {option} … job.yaml",
            )
    if extra := context.params["words"]:
        raise BadUsage(
            f"{extra[0]!r}: expected options of holdfast run behind `--`; what runs stands in the job file",
            hint="holdfast submit job.yaml -- --hang-timeout 600",
        )
    return dict(context.params)


def _tell(found: PlatformJob, prepared: Prepared, as_json: bool) -> None:
    order = prepared.order
    if as_json:
        from holdfast.show.report_json import pretty

        tell(pretty({"schema": "holdfast.submitted/1", "platform": found, "name": order.name}))
        return
    array = order.wanted.text("array")
    one = f"{found.id}_{array.partition('%')[0].partition(',')[0].partition('-')[0]}" if array else found.id
    many = f", an array of jobs {array}" if array else ""
    tell(
        f"submitted {order.name} as Slurm job {found.id}{many}\n"
        f"  look at it   holdfast show {one}\n"
        f"  its logs     holdfast logs -f {one}\n"
        f"  end it       holdfast stop {found.id} --reason TEXT"
    )


command = click.Command(
    "submit",
    params=_params(),
    callback=_main,
    help=_main.__doc__,
    context_settings={"help_option_names": ["-h", "--help"]},
)
