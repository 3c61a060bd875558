"""Checks whether the job's files are in order: its program, its imports, its inputs and its output directories."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.bundle_detection import in_tree
from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Note, StopJob, Verdict
from holdfast.model.human_format import counted
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.noun_base import Noun
from holdfast.observe.checks.check_base import BuiltIn, Bytes, Context, Params, good, size, size_of
from holdfast.observe.checks.disk import existing
from holdfast.observe.checks.quota import quota_left
from holdfast.untrusted import json_leniently

_FORGIVEN = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_ASK = """
import importlib.util, json, sys
sys.path[0:0] = json.loads(sys.argv[1])
missing = []
for name in json.loads(sys.argv[2]):
    try:
        if importlib.util.find_spec(name) is None: missing.append(name)
    except ValueError: pass
print(json.dumps(missing))
"""


_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


class FilesParams(Params, frozen=True, kw_only=True):
    program: Annotated[
        Literal["fail", "warn", "off"], Meta(description="what a script that is missing or broken means for the job")
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
        self._actions: list[DiagnosisAction] = []
        # A path may be missing only on this node, but the program is the same on all nodes.
        if program and params.program == "fail":
            self._actions.append(StopJob())
        elif program and not paths:
            self._actions.append(Note())
        if paths:
            self._actions.append(AvoidNode())
        return self.bad(
            context,
            [*program, *paths],
            "Correct the program, its environment or the path; nothing has been started yet."
            if not program or params.program == "fail"
            else "The workers will tell for certain.",
            blame="storage" if paths and not program else "workload",
            code=2 if paths else 1,
        )

    def failed_actions(self, *args: object, **kwargs: object) -> Sequence[DiagnosisAction]:
        return self._actions

    def _programs(self, context: Context) -> list[str]:
        problems: list[str] = []
        seen: set[tuple[str, ...]] = set()
        roles = list(context.job.roles) if context.job and not _many_images(context.job) else []
        if self.params.script:
            roles.append(Role(name="script", count=1, command=(users_python(), self.params.script)))
        for role in roles:
            program = program_of(role.command)
            if program is not None and role.command not in seen:
                seen.add(role.command)
                problems += program_problems(program, role, context.site.cwd)
        return problems

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


def _many_images(job: JobSpec) -> bool:
    """Return whether the job has several images. A node has only one of them, so the programs of the other roles cannot
    be checked on it."""
    return len({role.image or job.image for role in job.roles}) > 1


def unreadable(path: str) -> list[str]:
    """Return why an input cannot be read. A directory must be listable."""
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


def program_problems(program: Program, role: Role, cwd: str) -> list[str]:
    """Return the problems of a Python program, without running it."""
    own_path = role.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    search = [part for part in own_path.split(os.pathsep) if part]
    if program.module:
        top = program.module.partition(".")[0]
        missing = unresolved([top], [cwd, *search], program)
        return [f"no module named `{top}` for `-m {program.module}`"] if missing else []
    script = Path(cwd, program.script)
    if script.is_dir() or script.suffix in (".zip", ".pyz"):
        return []
    try:
        source = script.read_bytes()
    except OSError as error:
        return [f"{program.script} cannot be read: {error.strerror}"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hide the program's warnings, because it shows them itself when it runs
        try:
            tree = ast.parse(source, str(script))
        except (SyntaxError, ValueError) as error:
            if not program.ours:
                return []  # report nothing: the file may be valid in the grammar of another Python version
            line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            words = error.msg if isinstance(error, SyntaxError) else str(error)
            return [f"{program.script}{line} does not parse: {words}"]
    if changes_path(tree):
        return []
    lines = imports(tree)
    missing = unresolved(lines, [str(script.resolve().parent), *search], program)
    return [f"{program.script} line {lines[name]} imports `{name}`, which is not installed" for name in missing]


def changes_path(tree: ast.Module) -> bool:
    """Return whether the program uses sys.path or the import system. Then its imports can be resolved only when it
    runs."""
    return any(
        (
            isinstance(node, ast.Attribute)
            and node.attr in ("path", "meta_path", "path_hooks")
            and _is(node.value, "sys")
        )
        or (isinstance(node, ast.Attribute) and node.attr == "addsitedir")
        for node in ast.walk(tree)
    )


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def imports(tree: ast.Module) -> dict[str, int]:
    """Return the top-level packages that the program always imports, with their lines.

    An import in a function, in a branch, or in a `try` that catches the failure is left out.
    """
    found: dict[str, int] = {}
    pending: list[ast.stmt] = list(tree.body)
    for node in pending:
        match node:
            case ast.Import():
                for alias in node.names:
                    found.setdefault(alias.name.partition(".")[0], node.lineno)
            case ast.ImportFrom(level=0, module=str(module)):
                found.setdefault(module.partition(".")[0], node.lineno)
            case ast.Try() if not any(_forgives(handler) for handler in node.handlers):
                pending += node.body
            case ast.With():
                pending += node.body
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                pending += node.body
            case _:
                pass
    return found


def _forgives(handler: ast.ExceptHandler) -> bool:
    kinds: Iterable[ast.expr | None] = handler.type.elts if isinstance(handler.type, ast.Tuple) else (handler.type,)
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _FORGIVEN) for kind in kinds)


def unresolved(names: Iterable[str], search: Sequence[str], program: Program) -> list[str]:
    """Return the packages that the program's interpreter cannot find. Nothing is imported."""
    wanted = [name for name in names if name not in sys.stdlib_module_names and name != "__future__"]
    if not wanted:
        return []
    if not program.ours:
        return _ask(program.interpreter, search, wanted)
    here = list(search)
    missing = []
    for name in wanted:
        if importlib.machinery.PathFinder.find_spec(name, here) is not None:
            continue
        try:
            if importlib.util.find_spec(name) is None:
                missing.append(name)
        except ValueError:
            pass  # ignore the error: a loaded module, such as `__main__`, may have no spec
    return missing


def _ask(interpreter: str, search: Sequence[str], names: Sequence[str]) -> list[str]:
    """Run the program's interpreter to find out which of these packages it cannot find. Return them."""
    import subprocess

    command = [interpreter, "-c", _ASK, json.dumps(list(search)), json.dumps(list(names))]
    try:
        done = subprocess.run(command, capture_output=True, timeout=8, check=False)
        answer = json_leniently(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return []  # report nothing: an interpreter that cannot run fails with its own message when the worker starts
    return [name for name in answer if isinstance(name, str)] if isinstance(answer, list) else []


class Program(Noun, frozen=True, kw_only=True):
    """A Python program of the job."""

    interpreter: str
    script: str = ""
    module: str = ""

    @property
    def ours(self) -> bool:
        """Return whether the program runs with the same interpreter as holdfast."""
        if self.interpreter == sys.executable:
            return True
        import shutil  # imported late, because it loads compression modules (10 ms)

        found = shutil.which(self.interpreter)
        # Do not resolve links: a virtual environment's python is a link to another Python, but a different interpreter.
        return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)  # noqa: PTH100 - Path.resolve would follow the link


def users_python() -> str:
    """Return the interpreter for a command that names none: holdfast's own Python, or `python3` if holdfast runs from a
    bundled runtime."""
    return "python3" if in_tree(sys.prefix) else sys.executable


def program_of(command: Sequence[str]) -> Program | None:
    """Return the Python program that a command runs, or None if the command runs another kind of program."""
    if not command:
        return None
    first = command[0]
    if first.endswith(".py"):
        return Program(interpreter=users_python(), script=first)
    if not Path(first).name.startswith("python") and first != sys.executable:
        return None
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return Program(interpreter=first, module=next(words, ""))
        if word == "-c" or word == "-":
            return None
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return Program(interpreter=first, script=word)
    return None
