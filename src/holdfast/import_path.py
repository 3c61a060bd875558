"""Keeps a user's PYTHONPATH from replacing the modules of holdfast's processes; workers get the variable unchanged.

The PYTHONPATH of conda or a module system may contain a `msgspec` for another Python, and a user's folder may contain a
`types.py`. So holdfast searches these folders last, where a plugin still finds its modules. This file may only import
`sys`, `os` and modules that every Python has already loaded.
"""

from __future__ import annotations

import os
import sys


def search_users_last() -> None:
    """Move the folders of PYTHONPATH to the end of `sys.path`, and unload modules that were already imported from them.

    Three kinds of folders keep their place: the folder that contains holdfast, the folder where holdfast and its
    libraries are installed, and the folders of this Python.
    """
    value = os.environ.get("PYTHONPATH")
    if not value or sys.flags.ignore_environment:
        return
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    standard = os.path.dirname(os.path.abspath(os.__file__))
    installed = os.path.join(sys.prefix, "lib", os.path.basename(standard), "site-packages")
    of_python = (own, standard, os.path.join(standard, "lib-dynload"), installed)
    folders = {os.path.abspath(folder or ".") for folder in value.split(os.pathsep)}.difference(of_python)
    folders = {folder for folder in folders if not _has_our_libraries(folder)}
    first = [entry for entry in sys.path if os.path.abspath(entry or ".") not in folders]
    sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name not in ("__main__", "sitecustomize", "usercustomize") and _folder(name, file) in folders:
            del sys.modules[name]


def _has_our_libraries(folder: str) -> bool:
    try:
        return any(name.startswith("holdfast_run-") for name in os.listdir(folder))
    except OSError:
        return False


def _folder(name: str, file: str) -> str:
    """Return the folder that contains the module's outermost package, or its file."""
    up = name.count(".") + (os.path.basename(file).startswith("__init__."))
    for _ in range(up + 1):
        file = os.path.dirname(file)
    return os.path.abspath(file)


def module_command(module: str, *words: str) -> tuple[str, ...]:
    """Return the command that runs a module of holdfast in a new process, with the same modules as this process.

    The option -P keeps modules in the user's working directory from replacing holdfast's. PYTHONPATH stays in the
    environment, for programs that the module starts.
    """
    if not os.environ.get("PYTHONPATH"):
        return (sys.executable, "-P", "-m", module, *words)
    start = f"import sys; sys.path[:] = {sys.path!r}; del sys.argv[0]; import runpy; "
    start += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    return (sys.executable, "-P", "-c", start, module, *words)
