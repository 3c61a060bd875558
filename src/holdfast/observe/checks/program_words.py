"""Finds the interpreter and the script or module in a role's command, from its words alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.bundle_detection import in_tree
from holdfast.model.noun_base import Noun

_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


class Program(Noun, frozen=True, kw_only=True):
    """A Python program of the job."""

    interpreter: str
    script: str = ""
    module: str = ""

    @property
    def ours(self) -> bool:
        """Whether it runs with the same interpreter as holdfast."""
        if self.interpreter == sys.executable:
            return True
        import shutil  # imported late: it loads compression modules, 10 ms

        found = shutil.which(self.interpreter)
        # Do not resolve links: a virtual environment's python is a link to another Python, but a different interpreter.
        return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)  # noqa: PTH100 - Path.resolve would follow the link


def users_python() -> str:
    """Return the interpreter for a command that names none: holdfast's own Python, or `python3` if holdfast runs from a
    bundled runtime."""
    return "python3" if in_tree(sys.prefix) else sys.executable


def program_of(command: Sequence[str]) -> Program | None:
    """Return the Python program that a command runs; None if it runs another kind of program."""
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
