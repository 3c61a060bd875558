"""Decides whether a worker's command can start warm. It must run a script or a module with the Python that holdfast
chose.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence

import msgspec

#: Variables with different values in each worker or attempt. A fork gets them when it becomes a worker.
PER_WORKER = frozenset({
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE",
})  # fmt: skip
#: Variables with these prefixes may differ between workers too. Imports do not depend on them.
OURS = ("HOLDFAST_", "PAI_", "FC_")
_PLAIN = frozenset("uOBbdqvsPR")
_WITH_VALUE = frozenset("WX")


class Blueprint(msgspec.Struct, frozen=True):
    """The command that starts a prewarmed process. Either `script` or `module` is set."""

    command: tuple[str, ...]
    script: str | None
    module: str | None


def blueprint(
    command: Sequence[str], env: Mapping[str, str], cwd: os.PathLike[str], python: str = sys.executable
) -> Blueprint | str:
    """Return the `Blueprint` of a command, or the reason why its workers start cold. `python`: an interpreter that is
    allowed besides holdfast's own."""
    found = shutil.which(command[0], path=env.get("PATH"))
    known = dict.fromkeys((python, sys.executable))
    if found is None or not any(_same(os.path.join(cwd, found), each) for each in known):
        whose = "the workers" if len(known) > 1 else "holdfast"
        return f"{command[0]} is not the interpreter that runs {whose} ({python})"
    for name in ("PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
        if env.get(name):
            return f"{name} is set"
    words = list(command[1:])
    while words:
        word = words.pop(0)
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            module = word[2:] or (words[0] if words else "")
            return Blueprint(tuple(command), None, module) if module else "-m has no module"
        if word == "-" or not word.startswith("-"):
            if word == "-":
                return "the program comes from stdin"
            script = os.path.join(cwd, word)
            return Blueprint(tuple(command), script, None)
        letters = word[1:]
        while letters and letters[0] in _PLAIN:
            letters = letters[1:]
        if letters and letters[0] in _WITH_VALUE:
            value = letters[1:] or (words.pop(0) if words else "")
            if letters[0] == "X" and value.startswith("importtime"):
                return "-X importtime measures what the nursery takes away"
        elif letters:
            return f"python's option -{letters} keeps the nursery out"
    return "there is no script"


def _same(path: str, python: str) -> bool:
    """Return whether both are the same file in the same directory. The directory counts, because it decides which
    virtual environment is used.
    """
    mine = os.path.abspath(python)
    same_place = os.path.realpath(os.path.dirname(path)) == os.path.realpath(os.path.dirname(mine))
    return same_place and os.path.realpath(path) == os.path.realpath(mine)


def shared(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with equal values in all workers and attempts; imports may read them."""
    return {name: value for name, value in env.items() if name not in PER_WORKER and not name.startswith(OURS)}


def difference(mine: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Return the names of up to three variables that differ, as text."""
    names = sorted(name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name))
    return ", ".join(names[:3])
