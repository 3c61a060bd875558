"""Checks whether a process of an earlier job still holds an accelerator."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import AvoidNode, Retry, Verdict
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.safe_files import small_text

_NODES = ("/dev/nvidia[0-9]*", "/dev/davinci[0-9]*", "/dev/kfd", "/dev/accel/accel[0-9]*", "/dev/habanalabs/hl[0-9]*")
#: Names of services that may use a device, cut to 15 characters as in the kernel.
_SERVICES = (
    "nvidia-persiste", "nv-hostengine", "nvidia-smi", "dcgm-exporter", "nv-fabricmanage", "nvidia-imex",
    "nvidia-device-p", "nvidia-powerd", "nvsm_core", "npu-smi", "npu-exporter", "ascend-device-p", "slogd", "rocm-smi",
    "Xorg",
)  # fmt: skip


class LeftoversParams(Params, frozen=True, kw_only=True):
    devices: Annotated[tuple[str, ...], Meta(description="patterns of device files; none: all accelerators")] = ()
    ignore: Annotated[tuple[str, ...], Meta(description="names of processes that may hold one")] = ()


class Leftovers(BuiltIn):
    name = "leftovers"
    question = "Does a process of an earlier job still hold an accelerator?"
    cost = "1 ms; 20 ms where there are accelerators"
    Params = LeftoversParams
    # Retry, because the previous attempt's processes need some time to exit.
    retries = 5
    interval_s = 2.0
    time_limit_s = 15.0

    def look(self, context: Context) -> Verdict:
        params: LeftoversParams = self.params
        paths = {path for pattern in params.devices or _NODES for path in glob.glob(pattern)}  # noqa: PTH207 - absolute
        if not paths:
            return good("no accelerators here")
        holders = {
            pid: held
            for pid, held in open_in(paths, skip=proc_files.ancestors()).items()
            if small_text(f"/proc/{pid}/comm") not in (*_SERVICES, *params.ignore)
        }
        if not holders:
            return good(f"{len(paths)} accelerators, and no process holds them")
        shown = [
            f"pid {pid} ({proc_files.command(pid)}) holds {', '.join(held)}"
            for pid, held in sorted(holders.items())[:4]
        ]
        more = f", and {len(holders) - 4} more processes" if len(holders) > 4 else ""
        return self.bad(
            context,
            "; ".join(shown) + more,
            "If no job of yours runs there, end these processes; one that does not die needs a device reset.",
            devices=sorted({Path(path).name for held in holders.values() for path in held}),
        )

    def failed_actions(self, *args: object, **kwargs: object) -> list[Retry | AvoidNode]:
        return [Retry(), AvoidNode()]


def open_in(paths: set[str], skip: set[int]) -> dict[int, list[str]]:
    """Return pid → open files, for the processes that have one of these files open. Without root only this user's
    processes are found. `skip`: pids to leave out.
    """
    found: dict[int, list[str]] = {}
    for pid in proc_files.pids():
        if pid in skip:
            continue
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                links = {str(Path(entry.path).readlink()) for entry in entries}
        except OSError:
            continue  # ignore a process that has exited or that another user owns
        if held := sorted(links & paths):
            found[pid] = held
    return found
