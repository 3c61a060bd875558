"""Checks the job's files: its program, its imports, its inputs and its output directories."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Note, StopJob, Verdict
from holdfast.model.human_format import counted
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.runtime_plan import HookMoment
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size, size_of
from holdfast.observe.checks.disk import existing
from holdfast.observe.checks.python_program import ProgramMistake, program_mistakes, program_of, users_python
from holdfast.observe.checks.quota import quota_left


class FilesParams(Params, frozen=True, kw_only=True):
    program: Annotated[
        Literal["fail", "certain", "warn", "off"],
        Meta(
            description="when a script that is missing or broken ends the job. fail: always. certain: only if every "
            "worker must fail, else a warning. warn: never, only a warning. off: it is not checked"
        ),
    ] = "fail"
    script: Annotated[str, Meta(description="a Python script to look at, besides the job's own programs")] = ""
    inputs: Annotated[tuple[str, ...], Meta(description="files and directories that must be readable")] = ()
    outputs: Annotated[tuple[str, ...], Meta(description="directories that must be writable, or creatable")] = ()
    min_free: Annotated[Bytes, Meta(description="room that must be left in each output directory")] = Bytes(100_000_000)
    min_inodes: Annotated[int, Meta(ge=0, description="files that can still be created in each")] = 100


class Files(BuiltIn):
    name = "files"
    question = "Does the job's program parse, do its imports resolve, can it read its inputs and write its outputs?"
    cost = "5 ms"
    blame = "workload"
    Params = FilesParams
    lane = "outside"

    def look(self, context: Context) -> Verdict:
        params: FilesParams = self.params
        program = self._programs(context) if params.program != "off" else []
        paths = [
            *(problem for path in params.inputs for problem in unreadable(path)),
            *(problem for path in params.outputs for problem in self._unwritable(path)),
        ]
        if not program and not paths:
            found = [(len(params.inputs), "input"), (len(params.outputs), "output")]
            return good(", ".join(counted(*each) for each in found if each[0]) or "no inputs, no outputs")
        # Only a mistake in the program stops the job, because the program is the same on all nodes. A missing path may
        # be missing only here.
        sure = [mistake for mistake in program if mistake.phrase and params.program == "certain"]
        stops = bool(program) and (params.program == "fail" or bool(sure))
        self._actions: list[DiagnosisAction] = [StopJob()] if stops else [Note()] if program and not paths else []
        if paths:
            self._actions.append(AvoidNode())
        if sure:
            solution = sure[0].solution
        elif stops or not program:
            solution = "Correct the program, its environment or the path; nothing has been started yet."
        else:
            solution = "The workers will tell for certain."
        return self.bad(
            context,
            [*(mistake.text for mistake in program), *paths],
            solution,
            blame="storage" if paths and not program else "workload",
            code=2 if paths else 1,
            phrase=sure[0].phrase if sure else "",
        )

    def failed_actions(self, *args: object, **kwargs: object) -> Sequence[DiagnosisAction]:
        return self._actions

    def _programs(self, context: Context) -> list[ProgramMistake]:
        mistakes: list[ProgramMistake] = []
        seen: set[tuple[str, ...]] = set()
        job = context.job
        roles = list(job.roles) if job and not _many_images(job) else []
        if self.params.script:
            roles.append(Role(name="script", count=1, command=(users_python(), self.params.script)))
        for role in roles:
            program = program_of(role.command)
            if program is not None and role.command not in seen:
                seen.add(role.command)
                found = program_mistakes(program, role, context.site.cwd)
                may_differ = job is not None and _may_differ(job, role)
                mistakes += [replace(each, phrase="") for each in found] if may_differ else found
        return mistakes

    def _unwritable(self, path: str) -> list[str]:
        params: FilesParams = self.params
        place = existing(path)
        if not place.is_dir():
            return [f"{place} is a file, expected a directory to write to"]
        if not os.access(place, os.W_OK | os.X_OK):
            return [f"{path} is not writable for user {os.geteuid()}"]
        facts = os.statvfs(place)
        free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
        left = quota_left(place)
        problems = []
        if min(free, left if left is not None else free) < params.min_free:
            of_quota = " within your quota" if left is not None and left < free else ""
            shown = size_of(min(free, left if left is not None else free), whole)
            problems.append(f"{shown} free on {path}{of_quota}, {size(params.min_free)} asked")
        if facts.f_files and facts.f_favail < params.min_inodes:
            problems.append(f"{facts.f_favail} of {facts.f_files} inodes free on {path}, {params.min_inodes} asked")
        return problems


def _may_differ(job: JobSpec, role: Role) -> bool:
    """Return whether the role's workers may see other files than the check, or may fail without ending the job.

    Prerequisites and hooks, which may install modules, come after the checks.
    """
    prepared = bool(job.runtime.prerequisites) or any(hook.when is HookMoment.BEFORE for hook in job.runtime.hooks)
    return prepared or role.completion.min_failed is None


def _many_images(job: JobSpec) -> bool:
    """Return whether the job has several images. A node has only one of them, so the other roles' programs cannot be
    checked on it.
    """
    return len({role.image or job.image for role in job.roles}) > 1


def unreadable(path: str) -> list[str]:
    """Return why an input cannot be read. Of a directory the check needs the listing."""
    place = Path(path)
    try:
        if place.is_dir():
            next(place.iterdir(), None)
        else:
            with place.open("rb") as file:
                file.read(1)
    except OSError as error:
        return [f"{path} cannot be read: {error.strerror}"]
    return []
