"""Choose the platform for `holdfast submit`, and find mistakes in a job file before anything is submitted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.foreign_files import refuse_foreign
from holdfast.launch.jobfile.job_file_mistakes import malformed
from holdfast.launch.name_validation import check_names
from holdfast.platforms.platform import PlatformAccess
from holdfast.platforms.platform_registry import access_to
from holdfast.platforms.submission import SubmitRequest
from holdfast.runtime.name_expansion import secret_variable
from holdfast.settings.settings_table import SECTIONS
from holdfast.settings.yaml_sections import has_section
from holdfast.untrusted import Malformed

if TYPE_CHECKING:
    from holdfast.launch.jobfile.job_file import JobFile

#: The built-in platforms that accept job files. Job files and settings files have a section for each of them.
PLATFORMS = tuple(SECTIONS)


def must_be_a_job_file(path: Path) -> None:
    """Raise `BadUsage` if the path is a script instead of a job file, or a misspelt file name."""
    if path.suffix == ".py":
        raise BadUsage(
            f"{path} is a script: expected `--` before it, or a job file that says what runs",
            hint=f"holdfast submit --devices 1 -- {path}",
        )
    if path.exists():
        return
    import difflib  # imported late: only a mistake needs it

    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        names = []
    if near := difflib.get_close_matches(path.name, names, n=1, cutoff=0.8):
        raise BadUsage(
            f"there is no job file {path}; did you mean {path.parent / near[0]}?",
            hint=f"holdfast submit {path.parent / near[0]}",
        )


def must_know_its_names(path: Path, job: JobFile, secrets: Iterable[str], environment: Mapping[str, str]) -> None:
    """Check the names in `$PAI_…` and `<% … %>` in commands, as `holdfast run` will do in the job. Raises `BadUsage`.

    `secrets`: names of the job's secrets. `environment`: variables that the job's owner will have.
    """
    check_names(job.spec, {**environment, **{secret_variable(name): "" for name in secrets}}, f"job file {path}")


def submit_platforms() -> tuple[PlatformAccess, ...]:
    """Return the built-in platforms that accept job files."""
    return tuple(found for name in PLATFORMS if (found := access_to(name)) is not None)


def platform_meant(request: SubmitRequest, text: bytes) -> tuple[PlatformAccess, str]:
    """Return the platform for the job, and a message if neither --platform nor a section of the file selects it.

    Raises `BadUsage` for a user's mistake.
    """
    refuse_foreign(request.path, text)
    name, why = _name_meant(request, text)
    found = access_to(name)
    assert found is not None, "its name was looked up"
    return found, why


def _name_meant(request: SubmitRequest, text: bytes) -> tuple[str, str]:
    """Return the platform's name and a message: from --platform, from the only platform section in the file, or from
    what is configured on this machine. Raises `BadUsage`.
    """
    asked = request.platform
    if asked is None:
        try:
            found = [name for name in PLATFORMS if has_section(text, name)]
        except Malformed as error:
            raise malformed(request.path, error) from None
        if len(found) == 1:
            return found[0], ""
        if found:
            raise BadUsage(
                f"{request.path} has sections of {' and '.join(found)}: expected --platform to choose one",
                hint=f"holdfast submit --platform {found[0]} {request.path}",
            )
        return default_platform(os.environ)
    if asked not in PLATFORMS and not _takes_jobs(asked):
        import difflib  # imported late: only a mistake needs it

        near = difflib.get_close_matches(asked.lower(), PLATFORMS, n=1)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        raise BadUsage(
            f"--platform {asked}: there is no such platform; expected one of: {', '.join(PLATFORMS)}{meant}",
            hint=f"holdfast submit --platform {(near or PLATFORMS)[0]} {request.path}",
        )
    return asked, ""


def default_platform(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the platform for a job that names none, and why: a cluster that is configured here and answers, else this
    machine.

    Raises `BadUsage` inside a job, and if the cluster does not answer.
    """
    around = next((name for name in ("HOLDFAST_JOB", "SLURM_JOB_ID") if environment.get(name)), None)
    if around is not None:
        raise BadUsage(
            f"this command runs inside a job ({around}={environment[around]}): expected --platform",
            hint="holdfast submit --platform local …",
        )
    for name in PLATFORMS:
        found = access_to(name)
        presence = found.presence(environment) if found is not None else None
        if found is None or presence is None:
            continue
        if presence:
            raise BadUsage(
                f"{found.title} is configured here and does not answer ({presence}): "
                "choose with --platform where the job goes",
                hint="holdfast submit --platform local …, for this machine's queue",
            )
        return name, f"{found.title} is configured here and answers: the job goes there (--platform local: it does not)"
    return "local", "no Slurm is configured here: the job goes to this machine's queue"


def _takes_jobs(name: str) -> bool:
    """Whether an installed package has a platform of this name that accepts job files."""
    found = access_to(name)
    return found is not None and bool(found.submit_options())
