"""Implements `run`, the start command of a task's container.

It takes no arguments, because a variable contains the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from holdfast.cli import main as holdfast
from holdfast.runtime.container_command import words_of_run


def main(words: Sequence[str]) -> None:
    """Run the task and exit with the job's status; exit with 2 if there is no command."""
    if words:
        from holdfast.cli.output.printing import say

        said = f"run takes no words, got {words[0]!r}: the task's command is in USER_CMD"
        say(f"{said}\n  try: USER_CMD='python train.py' …/run")
        sys.exit(2)
    _agree_with_outside()
    holdfast(words_of_run(os.environ, _exchange(), os.path.exists))


def _agree_with_outside() -> None:
    """Set the variables for the container's termination message (its path) and for the parent (its pid), unless they
    are set.
    """
    log, above = "/dev/termination-log", os.getppid()
    if os.access(log, os.W_OK):
        os.environ.setdefault("HOLDFAST_TERMINATION_LOG", log)
    if above > 1:  # a pid of 1 or less means that this process is the container's first, or that its parent has exited
        os.environ.setdefault("HOLDFAST_OUTER", str(above))


def _exchange() -> str:
    """Return the directory that contains the start command `run`.

    The bundled tree is below this directory, or is this directory.
    """
    tree = sys.executable.rpartition("/")[0].rpartition("/")[0]
    above, _, name = tree.rpartition("/")[0].rpartition("/")
    return above if name == "holdfast" else tree
