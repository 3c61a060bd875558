"""Finds the processes that have a device open. It counts the processes that this user may not inspect."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.observe.devices.device_discovery import gpu_addresses

_NODES = {"gpu": "/dev/nvidia", "npu": "/dev/davinci"}


def users_of(devices: Iterable[str], root: Path = Path("/proc")) -> dict[int, str]:
    """Return pid → command of each process that has one of these devices (`gpu0`, `npu3`) open. Other users' processes
    are left out."""
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
                continue  # ignore a process that has just exited
    return found


def unseen(root: Path = Path("/proc")) -> int:
    """Count the processes, other than kernel threads, whose open files this user may not see.

    Return -1 if the system hides other users' processes completely.
    """
    if not (root / "1").exists():
        return -1
    count = 0
    for entry in root.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            os.listdir(entry / "fd")  # noqa: PTH208 - a test whether the folder can be listed
        except PermissionError:
            count += _has_memory(entry)
        except OSError:
            continue  # ignore a process that has just exited
    return count


def question(devices: Sequence[str], root: Path = Path("/")) -> list[str]:
    """Return a command that prints the pids of all users' processes on these devices, one per line; empty if there is
    none.

    NVIDIA's tool lists all of them without special rights.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None or not all(name.startswith("gpu") and name[3:].isdigit() for name in devices):
        return []
    addresses = {name: address for address, name in gpu_addresses(root).items()}
    which = ",".join(f"{addresses[name]}.0" if name in addresses else name[3:] for name in devices)
    return [tool, "-i", which, "--query-compute-apps=pid,process_name", "--format=csv,noheader"]


def answered(text: str) -> dict[int, str]:
    """Parse the output of the `question` command to pid → command."""
    rows = (line.partition(",") for line in text.splitlines())
    return {int(pid): name.strip() for pid, _, name in rows if pid.strip().isdecimal() and int(pid) > 0}


def _has_memory(entry: Path) -> bool:
    try:
        return bool((entry / "cmdline").read_bytes())
    except OSError:
        return False


def _opens(folder: Path, wanted: set[str]) -> bool:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - faster: there are hundreds of folders
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") in wanted:  # noqa: PTH115 - faster: there are hundreds of links
                return True
        except OSError:
            continue  # skip a file that was closed meanwhile
    return False
