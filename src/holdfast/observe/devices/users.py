"""Which processes have a device open, as far as this user may see."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_NODES = {"gpu": "/dev/nvidia", "npu": "/dev/davinci"}


def users_of(devices: Iterable[str], root: Path = Path("/proc")) -> dict[int, str]:
    """Pid → command of every process that has one of these devices (`gpu0`, `npu3`) open. Other users' are not seen."""
    wanted = {
        node + name.removeprefix(prefix)
        for name in devices
        for prefix, node in _NODES.items()
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit()
    }
    found: dict[int, str] = {}
    for entry in root.iterdir() if wanted else ():
        if entry.name.isdigit() and _opens(entry / "fd", wanted):
            try:
                found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue  # it has just ended
    return found


def _opens(folder: Path, wanted: set[str]) -> bool:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - hundreds of small folders: names are all that is wanted
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in wanted:  # noqa: PTH115 - the same
                return True
        except OSError:
            continue  # closed meanwhile
    return False
