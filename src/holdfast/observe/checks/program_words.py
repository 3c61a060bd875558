"""The program of a role's command: which interpreter, which script or module. Read from the words alone."""

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
        """It runs under the interpreter that holdfast itself runs under."""
        if self.interpreter == sys.executable:
            return True
        import shutil  # here and not above: loads the compression modules, 10 ms

        found = shutil.which(self.interpreter)
        # Not resolved: a virtual environment's python is a link to another one, and still its own.
        return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)  # noqa: PTH100 - Path.resolve would follow the link


def users_python() -> str:
    """The interpreter of a script where the command names none: holdfast's own Python, unless that is a runtime's
    beside an image."""
    return "python3" if in_tree(sys.prefix) else sys.executable


def program_of(command: Sequence[str]) -> Program | None:
    """The Python program that a command runs; None where it runs another kind of program."""
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
