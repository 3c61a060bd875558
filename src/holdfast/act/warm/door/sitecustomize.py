"""How the nursery gets in: Python imports this module as the last thing before it runs the script.

The nursery is started with the workers' own command line. This module serves until it has to fork; in each forked
worker it returns, and the interpreter itself then runs the script, exactly as it would have without us: `__main__`,
`sys.path[0]`, `-m`, tracebacks, exit statuses and the end of the process are all its own.
"""

from __future__ import annotations

import os
import sys


def _step_aside() -> str:
    """Be found no more: this module's directory leaves the search path. The directory above it."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    del sys.modules["sitecustomize"]
    return os.path.dirname(here)


def _serve() -> bool:
    """Come back in a worker only; True if the user has a `sitecustomize` too, which then is the one imported."""
    inside = os.path.join(_step_aside(), "inside")
    name = "_holdfast_nursery"
    package = type(sys)(name)
    package.__path__ = [inside]
    sys.modules[name] = package
    own_one: bool = __import__(name + ".nursery_main", fromlist=["serve"]).serve()
    # By their names: a walk through all that is imported would give each name a page of memory of one's own.
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
    """In an interpreter that a worker makes inside itself: it has the nursery's search path, and nothing to serve."""
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
    except BaseException:  # of any kind: the script must never run in the nursery itself
        os._exit(70)


if not _enter():
    # What Python hears where there is no such module, and passes over in silence.
    raise ImportError("no sitecustomize", name="sitecustomize")
