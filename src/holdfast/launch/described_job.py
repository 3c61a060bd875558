"""Reads a job that is described in a job file or in a variable (`USER_CMD`) instead of on the command line.

The variable contains the user's command: one or more lines for a shell, or a script with a `#!` line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile, RunPlace
from holdfast.launch.jobfile.job_file_reader import load
from holdfast.launch.torchrun_options import workers
from holdfast.launch.worker_program import job_name, plain_name
from holdfast.model.job_spec import JobSpec, Role
from holdfast.runtime.name_expansion import NameValues, parameters_in
from holdfast.settings.run_options import RunOptions

if TYPE_CHECKING:
    from holdfast.settings.resolved_settings import Settings

PLACES = ("/bin", "/usr/bin", "/usr/local/bin")
SHELLS = ("bash", "sh")
#: The paths of shells in images that have no /bin/sh (distroless, `:debug`).
OTHER_SHELLS = ("/busybox/sh",)
#: Limit on the length of a `#!` line, in bytes. The kernel reads no more (BINPRM_BUF_SIZE - 1).
LONGEST_FIRST_LINE = 255


def described_job(options: RunOptions, settings: Settings, over_many: bool, place: RunPlace) -> JobFile:
    """Return the job of the job file or of the variable that the options name. Raises `BadUsage`.

    `over_many`: the job may run on several machines. `place`: the platform's properties.
    """
    if not options.job:
        return JobFile(
            job_of_variable(options, os.environ, place.job_name), None, (), NameValues.of(os.environ).secrets
        )
    if options.words:
        raise BadUsage(
            f"--job {options.job} and {options.words[0]!r}: expected a job file or a script, not both",
            hint=f"holdfast run --job {options.job}",
        )
    if options.nproc_per_node and not over_many:
        raise BadUsage(
            "--nproc-per-node with --job: the job file's `count` says how many workers there are",
            hint=f"holdfast run --job {options.job}",
        )
    job = load(Path(options.job), binds=bool(settings.flag("bind")), runs=not place.hosts_only)
    return replace(job, notes=(*job.notes, *_not_given(job.spec, place, settings.text("image-runtime") or "none")))


def _not_given(spec: JobSpec, place: RunPlace, runtime: str) -> Iterator[str]:
    """Yield a note for each key of a job file that only a container platform uses."""
    if place.images:
        return
    images = list(dict.fromkeys(image for role in spec.roles if (image := role.image or spec.image)))
    if images and runtime == "none":
        yield f"image {', '.join(images)}: no container is started here: workers run under this machine's software"
    if spec.virtual_cluster and not place.charged:
        yield f"virtualCluster {spec.virtual_cluster}: a run without a platform is charged to none"


def job_of_variable(options: RunOptions, environment: Mapping[str, str], platforms_name: str) -> JobSpec:
    """Return the job whose command is the value of `--command-from VARIABLE`. Raises `BadUsage`.

    `platforms_name`: the name of the platform's job, or "".
    """
    variable = options.command_from or ""
    if options.words:
        raise BadUsage(
            f"--command-from {variable} and {options.words[0]!r}: expected a variable or a script, not both",
            hint=f"holdfast run --command-from {variable}",
        )
    if options.module or options.no_python or options.run_path:
        raise BadUsage(
            f"--command-from {variable} with -m, --no-python or --run-path: the text says by itself what runs it",
            hint=f"holdfast run --command-from {variable}",
        )
    text = environment.get(variable, "")
    if not text.strip():
        state = "is empty" if variable in environment else "is not set"
        raise BadUsage(
            f"the variable {variable} {state}: expected the user's command, as in {variable}='python train.py' "
            "(HOLDFAST_COMMAND_FROM names another variable), or a job file, job.yaml beside `run`",
            hint=f"{variable}='echo hello' {sys.argv[0] or 'run'}",
        )
    command, script = command_of(text, variable, environment)
    role = plain_name(options.role or "task", "task")
    name = environment.get("PAI_JOB_NAME") or platforms_name
    return JobSpec(
        name=job_name(name, "task"),
        roles=(Role(name=role, count=workers(options), command=command, script=script),),
        parameters=parameters_in(environment),
        # If the platform has set OpenPAI's variables, do not set them, because the platform knows more about the task's
        # peers.
        pai="PAI_CURRENT_TASK_ROLE_NAME" not in environment,
    )


def command_of(text: str, where: str, environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return the command that runs a text, and the script that the command reads. If the command itself contains the
    text, the script is "". `where`: the source of the text, for messages."""
    if text.startswith("#!"):
        return _interpreter(text, where, environment), text
    return (shell(environment), "-c", text), ""


def shell(environment: Mapping[str, str]) -> str:
    """Return the image's bash, or else its sh, or else the shell next to holdfast's Python. Raises `BadUsage`."""
    paths = [*PLACES, *environment.get("PATH", "").split(os.pathsep)]
    for name in SHELLS:
        for place in paths:
            if place.startswith("/") and _runs(f"{place}/{name}"):
                return f"{place}/{name}"
    beside = Path(sys.executable).parent / "sh"
    for path in (*OTHER_SHELLS, str(beside)):
        if _runs(path):
            return path
    raise BadUsage(
        "there is no shell: neither bash nor sh in " + ", ".join(paths[:8]),
        hint="begin the command with the line `#!/path/to/an/interpreter`",
    )


def _interpreter(text: str, where: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that the kernel would run for the `#!` line: a path, and at most one argument. Raises
    `BadUsage`."""
    line = text.partition("\n")[0]
    place = f"{where}, line 1, `{line[:60]}`"
    if len(line.encode(errors="surrogateescape")) > LONGEST_FIRST_LINE:
        raise BadUsage(f"{place}: expected at most {LONGEST_FIRST_LINE} bytes", hint="#!/usr/bin/env python3")
    if line.endswith("\r"):
        raise BadUsage(
            f"{place}: the line ends with a carriage return, which belongs to the interpreter's name: expected lines "
            "that end with a line feed only",
            hint="sed -i 's/\\r$//' FILE",
        )
    path, _, rest = line[2:].strip(" \t").replace("\t", " ").partition(" ")
    words = tuple(word for word in (path, rest.strip(" ")) if word)
    if not words:
        raise BadUsage(f"{place}: expected the path of an interpreter", hint="#!/bin/sh")
    if not _runs(path):
        state = "may not be executed by this user" if Path(path).exists() else "is not there"
        raise BadUsage(f"{place}: the interpreter {path} {state}", hint=f"ls -l {path}  (in the task's image)")
    if Path(path).name == "env" and len(words) == 2:
        _found_by_env(words[1], place, environment)
    return words


def _found_by_env(rest: str, place: str, environment: Mapping[str, str]) -> None:
    """Raise BadUsage if `env` would not find the program `rest` on the user's PATH. The error message of `env` would
    not show the PATH. `place`: the source of the text, for messages.
    """
    if rest.startswith("-") or "=" in rest or "/" in rest or " " in rest:
        # Skip the check, because the line has options for `env`, or because the error message of `env` is clear.
        return
    path = environment.get("PATH") or os.defpath
    if not any(_runs(f"{directory or '.'}/{rest}") for directory in path.split(os.pathsep)):
        raise BadUsage(f"{place}: there is no program {rest} on the PATH ({path})", hint="echo $PATH")


def _runs(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)
