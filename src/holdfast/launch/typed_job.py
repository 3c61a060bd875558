"""Builds the job that a command line describes: a job file or a script, with the typed options and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile, RunPlace
from holdfast.launch.torchrun_options import workers
from holdfast.launch.worker_program import command_of, is_job_name, job_name, plain_name
from holdfast.model.job_spec import NAME, JobSpec, RestartPolicy, Role, Timers
from holdfast.settings.resolved_settings import SettingSource

if TYPE_CHECKING:
    from holdfast.settings.resolved_settings import Settings
    from holdfast.settings.run_options import RunOptions


def typed_job(options: RunOptions, settings: Settings, python: str, over_many: bool, place: RunPlace) -> JobFile:
    """Return the job of a job file, a variable or a script; typed options and settings override it. Raises `BadUsage`.

    `python`: the workers' interpreter. `over_many`: the job may run on several machines. `place`: the platform's
    properties.
    """
    words = options.words
    name = settings.text("name")
    if name is not None and not is_job_name(name):
        raise BadUsage(
            f"--name {name!r}: expected letters, digits, `.`, `_` or `-`, at most 63",
            hint="holdfast run --name my-job …",
        )
    if options.job or options.command_from:
        from holdfast.launch.described_job import described_job  # imported late, because most commands name a script

        job = described_job(options, settings, over_many, place)
    else:
        own = not options.run_path  # `run_path` overrides `module` and `no_python`, as in torchrun
        command = command_of(words, python, module=own and options.module, plain=own and options.no_python)
        role = options.role or "worker"
        # A role may have any name, but a directory may not. If the name is changed, ROLE_NAME keeps the user's name.
        env = {} if role.isalnum() or NAME.fullmatch(role) else {"ROLE_NAME": role}
        name_of_role = plain_name(role, "worker") if env else role
        count = workers(options)
        roles = (Role(name=name_of_role, count=count, command=command, env=env),)
        script = Path(words[0]).absolute()
        folder = job_name(script.parent.name, "job")  # use the folder's name if the script's name contains no letter
        of_script = job_name(script.name.removesuffix(".py"), folder)
        spec = JobSpec(name=job_name(place.job_name, of_script), roles=roles)
        job = JobFile(spec, None, ())
    spec = job.spec

    def chosen(setting: str, current: Any) -> Any:
        """Return the value of `setting` if the user has set it, else the job's value (`current`)."""
        return settings.value(setting) if settings.source(setting) is not SettingSource.DEFAULT else current

    restarts: RestartPolicy = spec.restarts
    timers: Timers = spec.timers
    spec = replace(
        spec,
        name=job_name(name, spec.name) if name else spec.name,
        restarts=replace(
            restarts,
            max_restarts=chosen("max-restarts", restarts.max_restarts),
            same_failure=chosen("same-failure", restarts.same_failure),
        ),
        timers=replace(
            timers,
            grace_s=chosen("grace", timers.grace_s),
            leftover_s=chosen("leftover-wait", timers.leftover_s),
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
