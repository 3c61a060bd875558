"""Keeps a user's PYTHONPATH from replacing the modules of holdfast's processes; workers get the variable unchanged.

A module system's or conda's PYTHONPATH may have a `msgspec` for another Python, or a user's folder a `types.py`. Their
folders are searched last here: a plugin still finds its modules there. Import nothing in this file but `sys`, `os` and
what every Python has loaded before.
"""

from __future__ import annotations

import os
import sys


def search_users_last() -> None:
    """Move the folders of PYTHONPATH to the end of `sys.path`, and forget the modules that were imported from them
    before holdfast began.

    The folder that has holdfast itself keeps its place, and so do the one in which it is installed with its libraries,
    and those of this Python.
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
    """Return the folder in which the module's outermost package or file lies."""
    up = name.count(".") + (os.path.basename(file).startswith("__init__."))
    for _ in range(up + 1):
        file = os.path.dirname(file)
    return os.path.abspath(file)


def module_command(module: str, *words: str) -> tuple[str, ...]:
    """Return the command that runs a module of holdfast in a process of its own, with the modules of this process.

    -P: the working directory is the user's, and its modules must not replace ours. PYTHONPATH stays in the environment,
    for the programs that the module starts.
    """
    if not os.environ.get("PYTHONPATH"):
        return (sys.executable, "-P", "-m", module, *words)
    start = f"import sys; sys.path[:] = {sys.path!r}; del sys.argv[0]; import runpy; "
    start += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    return (sys.executable, "-P", "-c", start, module, *words)
