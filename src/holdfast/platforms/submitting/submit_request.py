"""`holdfast submit`: a job file, handed to a platform. What can be found wrong is found before that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file_mistakes import malformed
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects.object_names import PLATFORM as KUBERNETES
from holdfast.platforms.slurm.job_identity import NAME as SLURM
from holdfast.settings.yaml_sections import has_section
from holdfast.untrusted import Malformed

if TYPE_CHECKING:
    from holdfast.launch.jobfile.job_file import JobFile

PLATFORMS = (SLURM, KUBERNETES)


class TypedValue(Noun, frozen=True, kw_only=True):
    """A value of a platform's section that was given as an option."""

    value: Any
    option: str


class SubmitRequest(Noun, frozen=True, kw_only=True):
    """What was typed."""

    path: Path
    platform: str | None
    options: Mapping[str, TypedValue]
    """Names of the section that were given as options."""
    run_words: tuple[str, ...]
    """Further options of `holdfast run`, judged already."""
    home: Path


def must_be_a_job_file(path: Path) -> None:
    """A script in its place, and a name that is nearly right, are told so."""
    if path.suffix == ".py":
        raise BadUsage(
            f"{path} is a script: expected a job file that says what runs, such as `name: x`, "
            f"`roles: {{worker: {{count: 8, command: [python, {path.name}]}}}}` and `slurm: {{gpus: 8}}`",
            hint="holdfast submit job.yaml",
        )
    if path.exists():
        return
    import difflib  # for a mistake only

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
    """What `holdfast run` would say there of `$PAI_…` and `<% … %>` in commands. Raises `BadUsage`.

    `secrets`: their names. `environment`: what the job's owner will have.
    """
    from holdfast.launch.name_validation import check_names
    from holdfast.runtime.name_expansion import secret_variable

    check_names(job.spec, {**environment, **{secret_variable(name): "" for name in secrets}}, f"job file {path}")


def platform_of(request: SubmitRequest, text: bytes) -> str:
    """Which platform is meant. Raises `BadUsage`."""
    asked = request.platform
    if asked is None:
        try:
            found = [name for name in PLATFORMS if has_section(text, name)]
        except Malformed as error:
            raise malformed(request.path, error) from None
        if len(found) == 1:
            return found[0]
        if found:
            raise BadUsage(
                f"{request.path} has sections of {' and '.join(found)}: expected --platform to choose one",
                hint=f"holdfast submit --platform {found[0]} {request.path}",
            )
        raise BadUsage(
            f"{request.path} has no section of a platform: expected `slurm:` or `kubernetes:` in it, or --platform",
            hint=f"holdfast submit --platform slurm {request.path}",
        )
    if asked not in PLATFORMS:
        import difflib  # for a mistake only

        near = difflib.get_close_matches(asked.lower(), PLATFORMS, n=1)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        raise BadUsage(
            f"--platform {asked}: there is no such platform; expected one of: {', '.join(PLATFORMS)}{meant}",
            hint=f"holdfast submit --platform {(near or PLATFORMS)[0]} {request.path}",
        )
    return asked
