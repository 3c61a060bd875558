"""The entry point of the prewarmed process (nursery): Python imports this module just before it runs the script.

The prewarmed process is started with the workers' command line. This module then serves fork requests and never returns
in the prewarmed process. In each forked worker it does return, and the interpreter runs the script exactly as in a cold
start: `__main__`, `sys.path[0]`, `-m`, tracebacks, exit statuses and the interpreter's shutdown are unchanged.
"""

from __future__ import annotations

import os
import sys


def _step_aside() -> str:
    """Remove this module and its directory from the import system. Return the parent directory."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    del sys.modules["sitecustomize"]
    return os.path.dirname(here)


def _serve() -> bool:
    """Serve fork requests in the prewarmed process. Return only in a forked worker: True if the user has a
    `sitecustomize` too, which was then imported.
    """
    inside = os.path.join(_step_aside(), "inside")
    name = "_holdfast_nursery"
    package = type(sys)(name)
    package.__path__ = [inside]
    sys.modules[name] = package
    own_one: bool = __import__(name + ".nursery_main", fromlist=["serve"]).serve()
    # List the modules by name. A loop over `sys.modules` would write to, and so copy, many memory pages that workers
    # share.
    for part in (
        "",
        ".nursery_main",
        ".fork_to_worker",
        ".fork_safety",
        ".random_seeds",
        ".warning_filters",
        ".script_imports",
        ".fork_retreat",
    ):
        sys.modules.pop(name + part, None)
    sys.path_importer_cache.pop(inside, None)
    return own_one


def _users_own() -> bool:
    """Import the user's `sitecustomize`, if there is one. This runs in an interpreter that a worker has started: it
    inherits the module search path of the prewarmed process, but must not serve forks.
    """
    _step_aside()
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return False
    return True


def _enter() -> bool:
    if "HOLDFAST_NURSERY" not in os.environ:
        return _users_own()
    try:
        return _serve()
    except BaseException:  # catch every exception, because the script must never run in the prewarmed process
        os._exit(70)


if not _enter():
    # Python ignores this error silently. It would get the same error without this directory.
    raise ImportError("no sitecustomize", name="sitecustomize")
