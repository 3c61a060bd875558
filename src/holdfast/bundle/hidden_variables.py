"""Restores variables that the launcher hid from its own loader and C library, for the programs that holdfast starts.

Every Python of the tree does this first: `entry` for holdfast, the tree's sitecustomize for a Python started by it.
"""

from __future__ import annotations

import os

#: The prefix of hidden variables; launcher.c has the same.
HIDDEN = "__HOLDFAST_HIDDEN_"


def give_back(process_name: str) -> None:
    """Restore the environment as the image has set it.

    `process_name`: the name that `ps` shows, instead of the loader's.
    """
    environment = os.environ
    environment.pop("LC_ALL", None)  # set by the launcher; the user's own value is among the hidden variables
    for name in [name for name in environment if name.startswith(HIDDEN)]:
        environment[name[len(HIDDEN) :]] = environment.pop(name)
    try:
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # without /proc the name cannot be set
    try:
        os.write(fd, process_name.encode())
    finally:
        os.close(fd)
