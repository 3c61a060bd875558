"""The work of `run`, the start command of a task's container: it takes no arguments, its environment has the
command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from holdfast.cli import main as holdfast
from holdfast.runtime.container_command import words_of_run


def main(words: Sequence[str]) -> None:
    """Ends with the job's exit status; 2 where no command is given."""
    if words:
        from holdfast.cli._printing import say

        said = f"run takes no words, got {words[0]!r}: the task's command is in USER_CMD"
        say(f"{said}\n  try: USER_CMD='python train.py' …/run")
        sys.exit(2)
    _agree_with_outside()
    holdfast(words_of_run(os.environ, _exchange(), os.path.exists))


def _agree_with_outside() -> None:
    """The engine's file for a container's termination message, and the process that started this one, unless set."""
    log, above = "/dev/termination-log", os.getppid()
    if os.access(log, os.W_OK):
        os.environ.setdefault("HOLDFAST_TERMINATION_LOG", log)
    if above > 1:  # else it is the container's first process, or was left to it
        os.environ.setdefault("HOLDFAST_OUTER", str(above))


def _exchange() -> str:
    """The directory of `run`: the tree is below it, or is that directory."""
    tree = sys.executable.rpartition("/")[0].rpartition("/")[0]
    above, _, name = tree.rpartition("/")[0].rpartition("/")
    return above if name == "holdfast" else tree
