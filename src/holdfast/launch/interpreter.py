"""Chooses the workers' Python: the user's choice, or else the active environment's, or else holdfast's own.

holdfast is often installed in its own environment (pipx, uv tool); torch is then in the environment that the user has
activated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.bundle_detection import in_tree
from holdfast.errors import BadUsage
from holdfast.launch import script_imports
from holdfast.launch.launch_spec import Interpreter
from holdfast.python_environments import has_module, same_place
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.run_options import RunOptions

#: The value of --python that chooses a Python which has the modules that the script imports.
AUTO = "auto"
OLDEST_WARM = (3, 9)
_ASK = "import sys; print(*sys.version_info[:2], sys.implementation.name, sys.executable)"
_ASK_S = 30.0
_FIND = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))"


def workers_python(options: RunOptions, settings: Settings, *, warm: bool) -> Interpreter:
    """Return the workers' Python. It is holdfast's own if the commands name their interpreter themselves. Raises
    `BadUsage`.

    `warm`: workers may be started warm.
    """
    asked = settings.text("python")
    if asked == AUTO and (options.job or options.no_python or options.command_from or in_tree(sys.prefix)):
        asked = None
    if in_tree(sys.prefix):
        return _of_image(options, settings, asked, warm=warm)
    if not (options.job or options.no_python or options.command_from):
        places = [os.environ.get(name) for name in ("PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX")]
        if asked == AUTO or (not asked and all(place in (None, "", sys.prefix) for place in places)):
            return _by_imports(options, chosen=asked == AUTO)
        return choose(asked, settings.origin("python"), os.environ, Path.cwd())
    if asked and settings.source("python") is SettingSource.OPTION:
        other = "--job" if options.job else "--command-from" if options.command_from else "--no-python"
        raise BadUsage(
            f"--python {asked} with {other}: the command there says by itself what runs it",
            hint=f"holdfast run --python {asked} train.py",
        )
    return Interpreter(sys.executable)


def _by_imports(options: RunOptions, *, chosen: bool) -> Interpreter:
    """Choose the workers' Python by the modules that the script imports.

    Return holdfast's own Python if it has these modules. Otherwise `chosen` (--python auto) selects the first Python on
    PATH that has them. Without `chosen`, only a note names that Python.
    """
    if options.module or not options.words or (not chosen and sys.prefix == sys.base_prefix):
        return Interpreter(sys.executable)
    missing = script_imports.missing_imports(Path(options.words[0]))
    found = next((path for path in script_imports.pythons(os.environ) if imports(path, missing)), "") if missing else ""
    if not found:
        return Interpreter(sys.executable)
    if chosen:
        return choose(found, "--python auto:", os.environ, Path.cwd())
    lacks = f"{options.words[0]} imports {', '.join(missing)}, which holdfast's own Python lacks and {found} has"
    return Interpreter(sys.executable, note=f"{lacks}: holdfast run --python {found} … (or --python auto)")


def _of_image(options: RunOptions, settings: Settings, asked: str | None, *, warm: bool) -> Interpreter:
    """Choose the image's Python for the workers, because holdfast runs from its bundled runtime in the user's
    container.

    If the commands name their interpreter themselves, only a `warm` start needs this Python. `asked`: the value of
    `--python`, or None.
    """
    whole = bool(options.job or options.no_python or options.command_from)
    found = asked or (None if whole and not warm else on_path(os.environ, must=not whole))
    if found is None:
        return Interpreter(sys.executable)
    try:
        return choose(found, settings.origin("python") if asked else "PATH", os.environ, Path.cwd())
    except BadUsage as error:
        if asked or not whole:
            raise
        # ignore the error, because the command may not run Python at all
        return Interpreter(sys.executable, cold=str(error))


def choose(asked: str | None, origin: str, env: Mapping[str, str], cwd: Path) -> Interpreter:
    """Return the workers' Python. `asked`: the value of `--python`. `origin`: the option, variable or file that set the
    value. Raises `BadUsage`."""
    for text, where in ((asked, origin), (env.get("PYTHON_EXEC"), "PYTHON_EXEC")):
        if text:
            return _asked_for(text, where, env, cwd)
    found = active(env)
    if found is None:
        return Interpreter(sys.executable)
    variable, prefix = found
    path = str(prefix / "bin" / "python")
    if not os.access(path, os.X_OK):
        return Interpreter(
            sys.executable,
            note=f"{variable}={prefix} has no bin/python: workers run with {sys.executable}, as holdfast does",
        )
    note = f"workers run with {path}: {variable} is active, and holdfast is in {sys.prefix} (--python PATH chooses)"
    return _other(path, variable, note)


def _asked_for(text: str, where: str, env: Mapping[str, str], cwd: Path) -> Interpreter:
    import shutil  # imported late, because it imports three compression modules

    if (cwd / text).is_dir():
        raise BadUsage(
            f"{where} {text}: it is a directory; expected an interpreter",
            hint=f"holdfast run --python {text}/bin/python …",
        )
    found = shutil.which(text, path=env.get("PATH")) if "/" not in text else str(cwd / text)
    if found is not None and Path(found).is_file() and not os.access(found, os.X_OK):
        raise BadUsage(f"{where} {text}: this user may not execute it", hint=f"chmod u+x {text}")
    if found is None or not os.access(found, os.X_OK):
        raise BadUsage(f"{where} {text}: there is no such program", hint='holdfast run --python "$(which python)" …')
    if same_place(found, sys.executable):
        return Interpreter(sys.executable)
    return _other(found, f"{where} {text}", "")


def on_path(env: Mapping[str, str], *, must: bool) -> str | None:
    """Return the user's Python: PYTHON_EXEC, the active environment's, or the first on PATH. If there is none, return
    None, or raise `BadUsage` if `must` is true."""
    import shutil

    path = env.get("PATH", os.defpath)
    active = [f"{env[name]}/bin/python" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    places = [*active, *(shutil.which(name, path=path) or "" for name in ("python3", "python"))]
    found = env.get("PYTHON_EXEC") or next((place for place in places if os.access(place, os.X_OK)), None)
    if found is None and must:
        raise BadUsage(
            f"there is no Python on the PATH ({path}), and holdfast's own is not for the user's script",
            hint="holdfast run --python /path/to/python train.py, or holdfast run --no-python COMMAND",
        )
    return found


def imports(path: str, modules: Sequence[str]) -> bool:
    """Return whether the Python at this path has all these modules. None of them is imported."""
    import subprocess

    try:
        asked = subprocess.run(
            [path, "-c", _FIND, *modules], capture_output=True, timeout=_ASK_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _other(path: str, where: str, note: str) -> Interpreter:
    """Return an interpreter that is not holdfast's own. Its version and path are found by running it. `where`: the
    source of the path, for messages. `note`: a note for the user about the choice.
    """
    import subprocess

    hint = f"{path} -c 'import sys; print(sys.version)'"
    try:
        said = (
            subprocess.run(
                [path, "-I", "-S", "-c", _ASK],
                capture_output=True,
                timeout=_ASK_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            .stdout.decode(errors="replace")
            .split(maxsplit=3)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadUsage(f"{where}: {path} does not answer as a Python does: {error}", hint=hint) from error
    if len(said) != 4 or not (said[0].isdigit() and said[1].isdigit()):
        raise BadUsage(f"{where}: {path} does not answer as a Python does", hint=hint)
    version, kind = (int(said[0]), int(said[1])), said[2]
    cold = ""
    if kind != "cpython" or version < OLDEST_WARM:
        cold = f"{path} is {kind} {said[0]}.{said[1]}, and a warm start needs CPython 3.9 or newer"
    elif _is_script(path):
        cold = f"{path} is a script, and what it sets reaches cold workers only (try --python {said[3].strip()})"
    return Interpreter(path, own=False, note=note, cold=cold)


def _is_script(path: str) -> bool:
    """Return whether the interpreter is a wrapper script. Workers forked from a prewarmed process would lack the
    variables that the script sets.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False  # no script: the file may be executed, but not read


def active(env: Mapping[str, str]) -> tuple[str, Path] | None:
    """Return the variable and the path of the active environment; None if that is holdfast's own or there is none.

    If a virtual and a conda environment are active, the one that comes first on PATH counts. In many shells conda's
    base is active although the user did not activate it; the same may be true of the Python from which holdfast's
    environment was made. Skip such an environment if torch is in holdfast's environment and not in it.
    """
    places = env.get("PATH", "").split(os.pathsep)

    def rank(prefix: Path) -> int:
        place = str(prefix / "bin")
        return places.index(place) if place in places else len(places)

    found = [(name, Path(env[name])) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    for name, prefix in sorted(found, key=lambda entry: rank(entry[1])):
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            return None
        base = os.path.realpath(prefix) == os.path.realpath(sys.base_prefix)
        weak = base or (name == "CONDA_PREFIX" and env.get("CONDA_DEFAULT_ENV") == "base")
        if weak and has_module(Path(sys.prefix), "torch") and not has_module(prefix, "torch"):
            continue
        return name, prefix
    return None
