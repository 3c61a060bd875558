"""`holdfast submit`: submits a job file or a script to a cluster, or to this machine's queue."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options.option_groups import GroupedCommand, OptionGroup
from holdfast.cli.options.shared_options import home
from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage
from holdfast.platforms.submission import SHARED
from holdfast.platforms.submit_request import submit_platforms

if TYPE_CHECKING:
    from holdfast.platforms.platform import PlatformAccess
    from holdfast.platforms.submission import Submission, SubmitOption, SubmitRequest, Submitted
    from holdfast.settings.run_options import RunOptions


def _options_by_key() -> dict[str, SubmitOption]:
    """Return the options of all platforms, by key. An option that several platforms share occurs once."""
    return {option.key: option for platform in submit_platforms() for option in platform.submit_options()}


def _groups() -> list[OptionGroup]:
    """Return the groups of options in the help: the verb's own options, those of all platforms, and those of one
    platform."""
    shared = [option.key for option in SHARED]
    verb = ("platform", "dry-run", "wait", "json", "name", "max-restarts")
    groups = [OptionGroup("Job", verb), OptionGroup("Nodes", shared)]
    placed = set(shared)
    for platform in submit_platforms():
        own = [option for option in platform.submit_options() if option.key not in placed]
        placed |= {option.key for option in own}
        often = [option.key for option in own if option.often]
        groups.append(OptionGroup(platform.title, often, [option.key for option in own if not option.often]))
    return groups


def _params() -> list[click.Parameter]:
    values, flags, further = [], [], []
    for key, option in _options_by_key().items():
        name = f"own_{key.replace('-', '_')}"
        if option.further:
            further.append(click.Option([name, *option.forms], metavar=option.metavar, multiple=True, help=option.help))
        elif option.metavar:
            values.append(click.Option([name, *option.forms], metavar=option.metavar, help=option.help))
        else:
            flags.append(click.Option([name, *option.forms], is_flag=True, default=None, help=option.help))
    return [
        click.Argument(["job"], metavar="[JOB.yaml]", required=False, default=""),
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="[-- WORDS OF RUN]"),
        click.Option(
            ["--platform"],
            metavar="NAME",
            help="local, slurm or kubernetes; default: see the manual.",
        ),
        click.Option(["--dry-run"], is_flag=True, help="Only print the script or the objects."),
        click.Option(["--server"], is_flag=True, hidden=True),
        click.Option(["--wait"], is_flag=True, help="Wait for the job's end, and exit with its status."),
        click.Option(["--json"], is_flag=True, help="Print the ids as one JSON object."),
        click.Option(["--name"], metavar="NAME", help="The job's name; default: the file's."),
        click.Option(["--max-restarts"], metavar="N", help="As for `holdfast run`."),
        *values,
        *flags,
        *further,
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
    **own: str | bool | tuple[str, ...] | None,
) -> None:
    """Submit a job to this machine's queue or to a cluster.

    `submit --devices 2 -- train.py` takes the words of `holdfast run` after `--`. Options override the section of the
    job file, which is copied.
    """
    typed = [*(["--name", name] if name else []), *(["--max-restarts", max_restarts] if max_restarts else []), *words]
    on, found = checked_submission(job, platform, _options(own), typed, server=server)
    if dry_run:
        shown, lines = found.judged() if server else (found.text(), (found.unsubmitted,))
        _would_submit(on.name, shown, json)
        for line in lines:
            say(line)
        return
    sys.exit(found.submit(lambda submitted: _tell(submitted, json), say, now=time.time(), wait=wait))


def checked_submission(
    job: str, platform: str | None, options: dict[str, Any], words: list[str], *, server: bool = False
) -> tuple[PlatformAccess, Submission]:
    """Validate a submission, print its notes, and return it with its platform. Raises `BadUsage`.

    `job`: the job file; empty: `words` name a script. `platform`: the typed name. `options`: the typed values for the
    platform's section, by key. `words`: words for `holdfast run`. `server`: the platform's server will validate it too.
    """
    from holdfast.launch.jobfile.job_file_reader import parsed, text_of
    from holdfast.platforms.submission import SubmitRequest
    from holdfast.platforms.submit_request import must_be_a_job_file, platform_meant
    from holdfast.settings.resolved_settings import resolve

    where = home()
    of_run = _of_run(words) if job else _of_script(words)
    settings = resolve(of_run.settings(), os.environ, where)
    request = SubmitRequest(
        path=Path(job),
        platform=platform,
        options=options,
        run_words=tuple(words),
        home=where,
        run_options=None if job else of_run,
    )
    text = b""
    if job:
        must_be_a_job_file(request.path)
        text = text_of(request.path)
    on, why = platform_meant(request, text)
    if not job and on.name != "local":
        raise BadUsage(
            f"--platform {on.name}: {on.title} takes job files: expected one before the `--`",
            hint=f"holdfast submit --platform {on.name} job.yaml",
        )
    _of_this_platform(request, on)
    if server and not on.judges_submissions:
        raise BadUsage(
            f"--dry-run=server: {on.title} cannot validate a script", hint=f"holdfast submit --dry-run {job}"
        )
    found = on.submission(request, settings, text)
    passed_over = parsed(request.path, text, here=False).notes if job else ()
    notes = (*(f"job file {request.path}: {each}" for each in passed_over), *found.notes, why)
    for note in dict.fromkeys(filter(None, notes)):
        say(note)
    return on, found


def _of_this_platform(request: SubmitRequest, on: PlatformAccess) -> None:
    """Raise `BadUsage` if the user typed an option that only another platform has."""
    platforms = submit_platforms()
    own = {platform.name: {option.key for option in platform.submit_options()} for platform in (*platforms, on)}
    takes_further = next(p.name for p in platforms if any(option.further for option in p.submit_options()))
    for key, each in request.options.items():
        takers = [name for name, keys in own.items() if key in keys] or [takes_further]
        if on.name not in takers:
            raise BadUsage(
                f"{each.option}: it is an option for {takers[0]}, and this job goes to {on.name}; "
                f"other options of {on.name} belong in the {on.beyond_options}",
                hint=f"holdfast submit --platform {takers[0]} …",
            )


def _would_submit(platform: str, text: str, as_json: bool) -> None:
    """Print the script (Slurm) or the objects (Kubernetes) that would be submitted."""
    if as_json:
        from holdfast.report.report_json import pretty

        print_line(pretty({"schema": "holdfast.would_submit/1", "platform": platform, "text": text}))
    else:
        print_line(text, nl=False)


def _options(own: dict[str, str | bool | tuple[str, ...] | None]) -> dict[str, Any]:
    from holdfast.platforms.submission import TypedValue

    found = {}
    # A `further` option overrides any other option with the same key.
    for param, value in sorted(own.items(), key=lambda each: isinstance(each[1], tuple)):
        key = param.removeprefix("own_").replace("_", "-")
        if isinstance(value, tuple):
            for word in value:
                name, equals, said = word.partition("=")
                if not name.strip("-"):
                    raise BadUsage(
                        f"--{key} {word}: expected NAME or NAME=VALUE", hint=f"holdfast submit --{key} nice=100 …"
                    )
                found[name] = TypedValue(value=said if equals else True, option=f"--{key} {word}")
        elif value is not None:
            off = "no-" if value is False else ""
            found[key] = TypedValue(value=value, option=f"--{off}{key}")
    return found


def _of_script(words: list[str]) -> RunOptions:
    """Parse the words behind `--` as `holdfast run` does: a script with its options. Raises `BadUsage`."""
    from holdfast.cli.run import command
    from holdfast.settings.run_options import RunOptions

    if not words:
        raise BadUsage(
            "expected a job file, or `--` and what would stand behind `holdfast run`",
            hint="holdfast submit --devices 1 -- train.py",
        )
    try:
        context = command.make_context("holdfast run", list(words))
    except click.UsageError as error:
        raise BadUsage(f"behind `--`: {error.format_message()}", hint="holdfast run --help-all") from None
    if context.params["job"]:
        raise BadUsage(
            f"behind `--`: --job {context.params['job']}: expected the job file before the `--`",
            hint=f"holdfast submit {context.params['job']}",
        )
    return RunOptions(**context.params)


_JOB = "JOB.yaml"
#: Maps options of `run` that must agree with the request to Slurm (nodes, an array) to the option of `submit` to use
#: instead.
_INSTEAD = {"nnodes": "--nodes", "spares": "--spares", "report": "--report"}


def _of_run(words: list[str]) -> RunOptions:
    """Parse the words as `holdfast run` does, so that a mistake is reported before the job is submitted."""
    from holdfast.cli.run import command
    from holdfast.settings.run_options import RunOptions

    try:
        context = command.make_context("holdfast run", ["--job", _JOB, *words])
    except click.UsageError as error:
        raise BadUsage(f"behind `--`: {error.format_message()}", hint="holdfast run --help-all") from None
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


def _tell(found: Submitted, as_json: bool) -> None:
    if as_json:
        from holdfast.report.report_json import pretty

        own_id = {"id": found.job.id} if found.job.platform == "local" else {}
        print_line(pretty({"schema": "holdfast.submitted/1", "platform": found.job, "name": found.name} | own_id))
        return
    print_line(found.words)


class _Submit(GroupedCommand):
    """Accepts both `--dry-run=server` and `--dry-run` without a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if "--dry-run=server" in own:
            at = own.index("--dry-run=server")
            args = [*args[:at], "--dry-run", "--server", *args[at + 1 :]]
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["words"] = (*ctx.params["words"], *args[at + 1 :])
        return rest


command = _Submit(
    "submit",
    params=_params(),
    callback=_main,
    help=_main.__doc__,
    groups=_groups(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
