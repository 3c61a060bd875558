"""Gives the programs that holdfast starts the variables back that the launcher hid from its own loader and C library.

Each Python of the tree does this first: `entry` does, and the tree's sitecustomize, for a Python that holdfast starts.
"""

from __future__ import annotations

import os

#: As in launcher.c.
HIDDEN = "__HOLDFAST_HIDDEN_"


def give_back(process_name: str) -> None:
    """The environment as the image has set it; `process_name`: what `ps` shows instead of the loader's name."""
    environment = os.environ
    environment.pop("LC_ALL", None)  # the launcher's; the user's own is among the hidden
    for name in [name for name in environment if name.startswith(HIDDEN)]:
        environment[name[len(HIDDEN) :]] = environment.pop(name)
    try:
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # no /proc: there is no such name then
    try:
        os.write(fd, process_name.encode())
    finally:
        os.close(fd)
