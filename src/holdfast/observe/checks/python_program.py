"""Finds mistakes in a job's Python programs without running them: syntax errors, and modules that are not installed.

A mistake is certain if every worker must fail of it. The workers' interpreter must confirm it, with the workers'
variables, and no earlier statement may change where modules are found.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.bundle_detection import in_tree
from holdfast.model.job_spec import Role
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.python_environments import environments, has_module, python_of, same_place
from holdfast.untrusted import json_leniently

_FORGIVEN = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
#: This program runs in the workers' interpreter. Its argument is a JSON list: the script's directory, the script (or
#: ""), and modules. It prints the syntax error, and the modules that are not found.
_EXAMINE = """
import importlib.util, json, sys
directory, script, names = json.loads(sys.argv[1])
safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
sys.path[0:0 if safe else 1] = [] if safe else [directory]
answer = {"syntax": None, "missing": []}
if script:
    try:
        with open(script, "rb") as file:
            compile(file.read(), script, "exec", dont_inherit=True)
    except SyntaxError as error: answer["syntax"] = [error.lineno or 0, error.msg]
    except ValueError as error: answer["syntax"] = [0, str(error)]
for name in names:
    try:
        if importlib.util.find_spec(name) is None: answer["missing"].append(name)
    except (ImportError, ValueError): pass
print(json.dumps(answer))
"""
_EXAMINE_S = 8.0
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
#: A script may call functions of these modules alone before an import that is certain to fail.
_HARMLESS = frozenset({"logging", "os", "warnings"})


class ProgramMistake(Noun, frozen=True, kw_only=True):
    """A mistake in a program: `train.py line 3 imports apex, which is not installed`."""

    text: str
    solution: str = ""
    #: The class of the exit, if every worker is certain to fail of the mistake; else empty.
    phrase: str = ""


class Program(Noun, frozen=True, kw_only=True):
    """A Python program of the job."""

    interpreter: str
    #: The interpreter's options: `-u`, `-I`.
    flags: tuple[str, ...] = ()
    script: str = ""
    module: str = ""

    @property
    def ours(self) -> bool:
        """Return whether the program runs with holdfast's interpreter."""
        if self.interpreter == sys.executable:
            return True
        import shutil  # imported late, because it loads compression modules (10 ms)

        found = shutil.which(self.interpreter)
        # Do not resolve links, because the python of a virtual environment is a link to another Python, but a different
        # interpreter.
        return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)  # noqa: PTH100 - Path.resolve would follow the link


def users_python() -> str:
    """Return the interpreter for a command that names none: holdfast's Python, or `python3` if holdfast runs from a
    bundled runtime.
    """
    return "python3" if in_tree(sys.prefix) else sys.executable


def program_of(command: Sequence[str]) -> Program | None:
    """Return the Python program that a command runs; None if it runs another program."""
    if not command:
        return None
    first = command[0]
    if first.endswith(".py"):
        return Program(interpreter=users_python(), script=first)
    if not Path(first).name.startswith("python") and first != sys.executable:
        return None
    flags: list[str] = []
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return Program(interpreter=first, flags=tuple(flags), module=next(words, ""))
        if word == "-c" or word == "-":
            return None
        if not word.startswith("-"):
            return Program(interpreter=first, flags=tuple(flags), script=word)
        flags += [word, next(words, "")] if word in _WITH_VALUE else [word]
    return None


def program_mistakes(program: Program, role: Role, cwd: str) -> list[ProgramMistake]:
    """Return the mistakes of a Python program, without running it. `cwd`: the workers' working directory."""
    env = {**os.environ, **role.env}
    if program.module:
        return _module_mistakes(program, env, cwd)
    script = Path(cwd, program.script)
    if script.is_dir() or script.suffix in (".zip", ".pyz"):
        return []
    try:
        source = script.read_bytes()
    except OSError as error:
        return [ProgramMistake(text=f"{program.script} cannot be read: {error.strerror}")]
    tree = _parsed(source, str(script))
    directory = str(script.resolve().parent)
    lines = {} if tree is None or changes_path(tree) else imports(tree)
    suspects = _not_found(lines, [directory, *_folders(env)]) if program.ours else _of_others(lines)
    if program.ours and tree is not None and not suspects:
        return []
    answer = _examined(program, env, cwd, [directory, str(script), suspects])
    if answer is None:
        return []  # report nothing: such an interpreter fails with its own message when the worker starts
    match answer.get("syntax"):
        case [int(number), str(words)]:
            line = f" line {number}" if number else ""
            return [
                ProgramMistake(
                    text=f"{program.script}{line} does not parse: {words}",
                    solution=f"Correct {program.script}{line}. If the code is right, the workers' Python is too old "
                    f"for it: `{program.interpreter} --version`.",
                    phrase=Phrase.SYNTAX_ERROR,
                )
            ]
    missing = [name for name in suspects if name in answer.get("missing", ())]
    sure = _unconditional(tree, [directory, *_folders(env)]) if tree is not None and missing else frozenset()
    return [
        ProgramMistake(
            text=f"{program.script} line {lines[name]} imports `{name}`, which is not installed",
            solution=_how_to_install(name, program, [Path(cwd), script.parent]),
            phrase=Phrase.MODULE_NOT_FOUND if name in sure else "",
        )
        for name in missing
    ]


def _module_mistakes(program: Program, env: Mapping[str, str], cwd: str) -> list[ProgramMistake]:
    top = program.module.partition(".")[0]
    suspects = _not_found([top], [cwd, *_folders(env)]) if program.ours else _of_others([top])
    answer = _examined(program, env, cwd, [cwd, "", suspects]) if suspects else None
    if answer is None or top not in answer.get("missing", ()):
        return []
    return [
        ProgramMistake(
            text=f"no module named `{top}` for `-m {program.module}`",
            solution=_how_to_install(top, program, [Path(cwd)]),
            phrase=Phrase.MODULE_NOT_FOUND,
        )
    ]


def _parsed(source: bytes, path: str) -> ast.Module | None:
    """Return the program's tree; None if this Python does not accept the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hide the program's warnings, because it prints them itself when it runs
        try:
            compile(source, path, "exec", dont_inherit=True)
            return ast.parse(source, path)
        except (SyntaxError, ValueError):
            return None


def _how_to_install(name: str, program: Program, places: Sequence[Path]) -> str:
    """Return the remedy for a missing module. `places`: directories that may have an environment beside them."""
    import shutil

    python = shutil.which(program.interpreter) or program.interpreter
    for prefix in environments(os.environ, places):
        other = str(python_of(prefix))
        if has_module(prefix, name) and not same_place(other, python):
            return f"{other} has {name}: run with `holdfast run --python {other} …`, or install it for {python}."
    return (
        f"Install {name} for the Python that runs the workers (`{python} -m pip install {name}`; a package may have "
        "another name), or run with another one (`--python PATH`)."
    )


def changes_path(tree: ast.Module) -> bool:
    """Return whether the program uses sys.path or the import system. Its imports then resolve only when it runs."""
    return any(
        (
            isinstance(node, ast.Attribute)
            and node.attr in ("path", "meta_path", "path_hooks", "modules")
            and _is(node.value, "sys")
        )
        or (isinstance(node, ast.Attribute) and node.attr == "addsitedir")
        for node in ast.walk(tree)
    )


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def imports(tree: ast.Module) -> dict[str, int]:
    """Return the top-level packages that the program always imports, with their lines.

    Leave out an import in a function, in a branch, or in a `try` that catches the failure.
    """
    found: dict[str, int] = {}
    pending: list[ast.stmt] = list(tree.body)
    for node in pending:
        for name in _imported(node):
            found.setdefault(name, node.lineno)
        match node:
            case ast.Try() if not any(_forgives(handler) for handler in node.handlers):
                pending += node.body
            case ast.With():
                pending += node.body
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                pending += node.body
            case _:
                pass
    return found


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name.partition(".")[0] for alias in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            return [module.partition(".")[0]]
    return []


def _unconditional(tree: ast.Module, folders: Sequence[str]) -> frozenset[str]:
    """Return the packages that the program imports before any of the user's code has run.

    The user's code, even a module in one of `folders`, may install a package or change the path.
    """
    found: set[str] = set()
    for node in tree.body:
        names = _imported(node)
        if not names and not _harmless(node):
            break
        for name in names:
            if _users_own(name, folders):
                return frozenset(found)
            found.add(name)
    return frozenset(found)


def _users_own(name: str, folders: Sequence[str]) -> bool:
    """Return whether one of the folders has a file of this name: a module, or one for an import hook (`name.pyx`)."""
    return any(any(Path(folder).glob(f"{name}.*")) or Path(folder, name).exists() for folder in folders)


def _harmless(node: ast.stmt) -> bool:
    """Return whether a statement leaves the program running, and does not change where modules are found."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return not node.decorator_list
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.Expr(value=value):
            calls = [each.func for each in ast.walk(value) if isinstance(each, ast.Call)] if value is not None else []
            return all(isinstance(call, ast.Attribute) and _quiet(call) for call in calls)
    return False


def _quiet(call: ast.Attribute) -> bool:
    """Return whether the call is of a harmless function: `os.environ.get`, `warnings.filterwarnings`."""
    owner = call.value.value if isinstance(call.value, ast.Attribute) else call.value
    if not isinstance(owner, ast.Name) or owner.id not in _HARMLESS:
        return False
    return owner.id != "os" or (isinstance(call.value, ast.Attribute) and call.value.attr in ("environ", "path"))


def _forgives(handler: ast.ExceptHandler) -> bool:
    kinds: Iterable[ast.expr | None] = handler.type.elts if isinstance(handler.type, ast.Tuple) else (handler.type,)
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _FORGIVEN) for kind in kinds)


def _folders(env: Mapping[str, str]) -> list[str]:
    return [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]


def _of_others(names: Iterable[str]) -> list[str]:
    """Return the packages other than the standard library and holdfast, which all workers can import."""
    return [name for name in names if name not in sys.stdlib_module_names and name not in ("__future__", "holdfast")]


def _not_found(names: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Return the packages that this interpreter does not find. It imports none."""
    missing = []
    for name in _of_others(names):
        if importlib.machinery.PathFinder.find_spec(name, list(folders)) is not None:
            continue
        try:
            if importlib.util.find_spec(name) is None:
                missing.append(name)
        except ValueError:
            pass  # ignore the error: a loaded module, such as `__main__`, may have no spec
    return missing


def _examined(program: Program, env: Mapping[str, str], cwd: str, what: list[Any]) -> dict[str, Any] | None:
    """Run the program's interpreter on `what` (see `_EXAMINE`). Return its answer, or None."""
    import subprocess

    command = [program.interpreter, *program.flags, "-c", _EXAMINE, json.dumps(what)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_EXAMINE_S,
            check=False,
            env=dict(env),
            cwd=cwd or None,
        )
        answer = json_leniently(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
