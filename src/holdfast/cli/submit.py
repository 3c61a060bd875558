"""`holdfast submit --platform slurm|kubernetes job.yaml`: submits a job file to a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli._printing import print_line
from holdfast.cli._shared_options import home, say
from holdfast.errors import BadUsage

if TYPE_CHECKING:
    from holdfast.model.job_spec import PlatformJob
    from holdfast.platforms.kubernetes.submit.kubernetes_submit import ClusterSubmission
    from holdfast.platforms.slurm.submit.slurm_submit import PreparedScript
    from holdfast.platforms.submitting.submit_request import SubmitRequest
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions

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
"""Keys of the section `slurm:` that are options too."""
_OF_BOTH = ("nodes", "spares", "gpus", "cpus", "memory")
_OF_KUBERNETES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "namespace": (("--namespace", "-n"), "NAME", "Kubernetes: the namespace.  [the context's]"),
    "image": (("--image",), "IMAGE", "Kubernetes: the image that workers run in."),
    "holdfast-image": (("--holdfast-image",), "IMAGE", "Kubernetes: the image with holdfast in it."),
    "queue": (("--queue",), "NAME", "Kubernetes: the queue of Kueue or Volcano."),
    "gang": (("--gang",), "WAY", "Kubernetes: who places all pods at once.  [auto]"),
    "priority-class": (("--priority-class",), "NAME", "Kubernetes: the priority class of all pods."),
    "service-account": (("--service-account",), "NAME", "Kubernetes: the workers' service account."),
}
"""Names of the section `kubernetes:` that are options too, beside `_OF_BOTH`."""


def _params() -> list[click.Parameter]:
    named: list[click.Parameter] = [
        click.Option([f"own_{key.replace('-', '_')}", *forms], metavar=metavar, help=text)
        for key, (forms, metavar, text) in {**_NAMES, **_OF_KUBERNETES}.items()
    ]
    return [
        click.Argument(["job"], metavar="JOB.yaml"),
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF RUN]"),
        click.Option(
            ["--platform"],
            metavar="NAME",
            help="slurm or kubernetes; default: the one whose section the file has.",
        ),
        click.Option(["--dry-run"], is_flag=True, help="Print the script or the objects, and submit nothing."),
        click.Option(["--server"], is_flag=True, hidden=True),
        click.Option(["--wait"], is_flag=True, help="Wait for the job's end; the status is the job's."),
        click.Option(["--json"], is_flag=True, help="Print the ids as one JSON object."),
        click.Option(["--name"], metavar="NAME", help="What the job is called; default: the file's name."),
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
            ["own_may_taint", "--may-taint/--no-may-taint"],
            default=None,
            help="Kubernetes: taint a node that a person has to look at.  [no]",
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
    server: bool,
    wait: bool,
    json: bool,
    name: str | None,
    max_restarts: str | None,
    sbatch: tuple[str, ...],
    **own: str | bool | None,
) -> None:
    """Hand a job file to a cluster.

    The job runs there as `holdfast run --job` would run it here. What its `slurm:` or `kubernetes:` section says
    (nodes, spares, gpus, partition, namespace ...) can be said by options, which win. A later edit of the file changes
    nothing: the job runs from a copy. With --dry-run=server, Kubernetes judges the objects, and makes none.
    """
    from holdfast.launch.jobfile.job_file_reader import text_of
    from holdfast.platforms.submitting.submit_request import SubmitRequest, must_be_a_job_file, platform_of
    from holdfast.settings.resolved_settings import resolve

    typed = [*(["--name", name] if name else []), *(["--max-restarts", max_restarts] if max_restarts else []), *words]
    where = home()
    settings = resolve(_of_run(typed).settings(), os.environ, where)
    request = SubmitRequest(
        path=Path(job), platform=platform, options=_options(own, sbatch), run_words=tuple(typed), home=where
    )
    must_be_a_job_file(request.path)
    text = text_of(request.path)
    on = platform_of(request, text)
    _of_this_platform(request, on)
    if on == "kubernetes":
        _on_kubernetes(request, settings, text, dry_run=dry_run, server=server, wait=wait, as_json=json)
        return
    if server:
        raise BadUsage("--dry-run=server: Slurm judges no script", hint=f"holdfast submit --dry-run {job}")
    _on_slurm(request, settings, text, dry_run=dry_run, wait=wait, as_json=json)


def _of_this_platform(request: SubmitRequest, on: str) -> None:
    """Raises `BadUsage` for an option that only another platform uses."""
    for key, each in request.options.items():
        other = "kubernetes" if key in (*_OF_KUBERNETES, "may-taint") else "slurm" if key not in _OF_BOTH else on
        if other != on:
            only = "section `kubernetes:` of the job file" if on == "kubernetes" else "batch script"
            raise BadUsage(
                f"{each.option}: it is an option for {other}, and this job goes to {on}; what else {on} is asked for "
                f"stands in the {only}",
                hint=f"holdfast submit --platform {other} …",
            )


def _on_slurm(
    request: SubmitRequest, settings: Settings, text: bytes, *, dry_run: bool, wait: bool, as_json: bool
) -> None:
    import time

    from holdfast.platforms.slurm.submit.slurm_submit import prepare, submit, will_not_start

    prepared = prepare(request, settings, text, cwd=Path.cwd())
    for note in prepared.notes:
        say(note)
    if dry_run:
        _would_submit("slurm", prepared.script, as_json)
        say(f"nothing was submitted; the job would run from a copy of {request.path}: {prepared.order.job_file}")
        return

    def told(found: PlatformJob) -> None:
        _tell(found, prepared, as_json)
        if sorry := will_not_start(found, prepared):
            say(sorry)

    status = submit(prepared, now=time.time(), wait=wait, environment=os.environ, told=told)
    sys.exit(status)


def _on_kubernetes(
    request: SubmitRequest, settings: Settings, text: bytes, *, dry_run: bool, server: bool, wait: bool, as_json: bool
) -> None:
    from holdfast.platforms.kubernetes.remote.cluster_jobs import with_server
    from holdfast.platforms.kubernetes.submit.kubernetes_submit import dry, prepare, submit

    prepared = prepare(request, settings, text)
    for note in prepared.notes:
        say(note)
    if dry_run and not server:
        _would_submit("kubernetes", dry(prepared), as_json)
        say("nothing was submitted, and no server was asked; to have one judge it: --dry-run=server")
        return
    if dry_run:
        found, objects = with_server(lambda api: submit(api, prepared, only_judge=True))
        _would_submit("kubernetes", objects, as_json)
        if found.note:
            say(found.note)
        say(f"nothing was submitted: namespace {found.plan.namespace} would take these objects")
        return
    found, _ = with_server(lambda api: submit(api, prepared))
    _tell_of_objects(found, as_json)
    if wait:
        from holdfast.platforms.kubernetes.remote.wait_for_end import await_end

        sys.exit(with_server(lambda api: await_end(api, found.plan, say)))


def _would_submit(platform: str, text: str, as_json: bool) -> None:
    """The script, or the objects."""
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.would_submit/1", "platform": platform, "text": text}))
    else:
        print_line(text, nl=False)


def _tell_of_objects(found: ClusterSubmission, as_json: bool) -> None:
    plan = found.plan
    if as_json:
        from holdfast.model.job_spec import PlatformJob
        from holdfast.report.report_json import pretty

        known = PlatformJob(platform="kubernetes", id=plan.name, number=found.uid, cluster=plan.namespace)
        print_line(pretty({"schema": "holdfast.submitted/1", "platform": known, "name": plan.job}))
        return
    where = f"--platform kubernetes -n {plan.namespace}"
    print_line(
        f"submitted {plan.job} to Kubernetes: job {plan.name} in namespace {plan.namespace}, {found.pods}\n"
        + (f"  placement    {found.note}\n" if found.note else "")
        + f"  look at it   holdfast show {plan.name} {where}\n"
        f"  its logs     holdfast logs -f {plan.name} {where}\n"
        f"  end it       holdfast stop {plan.name} {where} --reason TEXT"
    )


def _options(own: dict[str, str | bool | None], sbatch: tuple[str, ...]) -> dict[str, Any]:
    from holdfast.platforms.submitting.submit_request import TypedValue

    found = {}
    for param, value in own.items():
        key = param.removeprefix("own_").replace("_", "-")
        if value is not None:
            off = "no-" if value is False else ""
            found[key] = TypedValue(value=value, option=f"--{off}{key}")
    for word in sbatch:
        key, equals, value = word.partition("=")
        if not key.strip("-"):
            raise BadUsage(f"--sbatch {word}: expected NAME or NAME=VALUE", hint="holdfast submit --sbatch nice=100 …")
        found[key] = TypedValue(value=value if equals else True, option=f"--sbatch {word}")
    return found


_JOB = "JOB.yaml"
_INSTEAD = {"nnodes": "--nodes", "spares": "--spares", "report": "--report"}
"""Options of run that must agree with the request to Slurm (nodes, an array): submit has its own."""


def _of_run(words: list[str]) -> RunOptions:
    """Reads the words as `holdfast run` would, so that a mistake shows now and not when the job begins."""
    from holdfast.cli.run import command
    from holdfast.settings.run_options import RunOptions

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
    return RunOptions(**context.params)


def _tell(found: PlatformJob, prepared: PreparedScript, as_json: bool) -> None:
    order = prepared.order
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.submitted/1", "platform": found, "name": order.name}))
        return
    array = order.wanted.text("array")
    one = f"{found.id}_{array.partition('%')[0].partition(',')[0].partition('-')[0]}" if array else found.id
    many = f", an array of jobs {array}" if array else ""
    print_line(
        f"submitted {order.name} as Slurm job {found.id}{many}\n"
        f"  look at it   holdfast show {one}\n"
        f"  its logs     holdfast logs -f {one}\n"
        f"  end it       holdfast stop {found.id} --reason TEXT"
    )


class _Submit(click.Command):
    """`--dry-run=server` beside `--dry-run`, which takes no value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if "--dry-run=server" in own:
            at = own.index("--dry-run=server")
            args = [*args[:at], "--dry-run", "--server", *args[at + 1 :]]
        return super().parse_args(ctx, args)


command = _Submit(
    "submit",
    params=_params(),
    callback=_main,
    help=_main.__doc__,
    context_settings={"help_option_names": ["-h", "--help"]},
)
