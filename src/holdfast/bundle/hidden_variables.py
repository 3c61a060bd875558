"""Restores environment variables that the launcher has hidden from its own loader and C library.

Programs that holdfast starts need these variables. Every Python of the runtime tree restores them first: in `entry` for
holdfast, in the tree's sitecustomize for a Python that holdfast starts.
"""

from __future__ import annotations

import os

#: Prefix of hidden variables. launcher.c uses the same prefix.
HIDDEN = "__HOLDFAST_HIDDEN_"


def give_back(process_name: str) -> None:
    """Restore the environment that the image has set.

    `process_name`: the name for `ps` to show instead of the loader's.
    """
    environment = os.environ
    environment.pop("LC_ALL", None)  # the launcher sets LC_ALL; the user's own value is among the hidden variables
    for name in [name for name in environment if name.startswith(HIDDEN)]:
        environment[name[len(HIDDEN) :]] = environment.pop(name)
    try:
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # without /proc the process name cannot be set
    try:
        os.write(fd, process_name.encode())
    finally:
        os.close(fd)
