"""Builds the job that a command line describes: a job file or a script, with the typed options and settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.torchrun_options import workers
from holdfast.launch.worker_program import command_of, plain_name
from holdfast.model.job_spec import NAME, JobSpec, RestartPolicy, Role, Timers
from holdfast.model.noun_base import Noun
from holdfast.settings.resolved_settings import SettingSource

if TYPE_CHECKING:
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions


class RunPlace(Noun, frozen=True, kw_only=True):
    """The properties of a run's platform that change how a job file is read."""

    #: Whether the platform runs the container images of a job.
    images: bool = False
    #: Whether this process only hosts the owner, and the workers run on other machines.
    hosts_only: bool = False
    #: Whether a platform charges the job to a virtual cluster.
    charged: bool = False


def typed_job(options: RunOptions, settings: Settings, python: str, over_many: bool, place: RunPlace) -> JobFile:
    """Return the job of a job file, a variable or a script; typed options and settings override it. Raises `BadUsage`.

    `python`: the workers' interpreter. `over_many`: the job may run on several machines.
    """
    from msgspec.structs import replace

    words = options.words
    name = settings.text("name")
    if name is not None and not NAME.fullmatch(name):
        raise BadUsage(
            f"--name {name!r}: expected letters, digits, `.`, `_` or `-`, at most 63",
            hint="holdfast run --name my-job …",
        )
    if options.job:
        if words:
            raise BadUsage(
                f"--job {options.job} and {words[0]!r}: expected a job file or a script, not both",
                hint=f"holdfast run --job {options.job}",
            )
        if options.nproc_per_node and not over_many:
            raise BadUsage(
                "--nproc-per-node with --job: the job file's `count` says how many workers there are",
                hint=f"holdfast run --job {options.job}",
            )
        from holdfast.launch.jobfile.job_file_reader import load

        job = load(Path(options.job), binds=bool(settings.flag("bind")), runs=not place.hosts_only)
        job = replace(job, notes=(*job.notes, *_not_given(job.spec, place)))
    elif options.command_from:
        from holdfast.launch.user_command import job_of_variable, secrets_in  # imported late: rarely used

        job = JobFile(job_of_variable(options, os.environ), None, (), secrets_in(os.environ))
    else:
        own = not options.run_path  # as in torchrun, `run_path` overrides the other two
        command = command_of(words, python, module=own and options.module, plain=own and options.no_python)
        role = options.role or "worker"
        # A role may have any name, but a directory's name may not: ROLE_NAME keeps the original.
        env = {} if role.isalnum() or NAME.fullmatch(role) else {"ROLE_NAME": role}  # compiling NAME takes 1 ms
        name_of_role = plain_name(role, "worker") if env else role
        count = workers(options)
        roles = (Role(name=name_of_role, count=count, command=command, env=env),)
        spec = JobSpec(name=plain_name(Path(words[0]).name.removesuffix(".py"), "job"), roles=roles)
        job = JobFile(spec, None, ())
    spec = job.spec

    def chosen(setting: str, current: Any) -> Any:
        """Return the setting's value if the user has set it, else the job's value."""
        return settings.value(setting) if settings.source(setting) is not SettingSource.DEFAULT else current

    restarts: RestartPolicy = spec.restarts
    timers: Timers = spec.timers
    spec = replace(
        spec,
        name=name or spec.name,
        restarts=replace(
            restarts,
            max_restarts=chosen("max-restarts", restarts.max_restarts),
            same_failure=chosen("same-failure", restarts.same_failure),
        ),
        timers=replace(
            timers,
            grace_s=chosen("grace", timers.grace_s),
            fetch_s=chosen("fetch-timeout", timers.fetch_s),
            prepare_s=chosen("prepare-timeout", timers.prepare_s),
            owner_wait_s=chosen("owner-wait", timers.owner_wait_s),
        ),
        hang_timeout_s=chosen("hang-timeout", spec.hang_timeout_s),
        hang_warning_s=chosen("hang-warning", spec.hang_warning_s),
        time_limit_s=chosen("time-limit", spec.time_limit_s),
        job_comment=bool(settings.flag("job-comment")),
        pai=chosen("pai", spec.pai),
    )
    return replace(job, spec=spec)


def _not_given(spec: JobSpec, place: RunPlace) -> Iterator[str]:
    """Yield a note for each key of a job file that needs a container platform."""
    if place.images:
        return
    images = list(dict.fromkeys(image for role in spec.roles if (image := role.image or spec.image)))
    if images:
        yield f"image {', '.join(images)}: no container is started here: workers run under this machine's software"
    if spec.virtual_cluster and not place.charged:
        yield f"virtualCluster {spec.virtual_cluster}: a run without a platform is charged to none"
