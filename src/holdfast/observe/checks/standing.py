"""Checks whether a device of this node is out of service: held until a person releases it, isolated, or with hardware
errors.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.model.check_interface import AvoidNode, DiagnosisAction, Note, Verdict
from holdfast.observe.checks import proc_files
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.observe.checks.nvml_queries import Nvml, NvmlError

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_CONTROL = Path("/dev/nvidiactl")
#: Xids for which NVIDIA's catalogue advises a reset or a repair, and not an examination of the program.
_GRAVE = frozenset({48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 145, 155, 156, 158})


class StandingParams(Params, frozen=True, kw_only=True):
    xid_window_s: Annotated[float, Meta(ge=0, description="how far back the kernel log's hardware Xids count")] = 3600.0
    devices: Annotated[
        Literal["fail", "warn"], Meta(description="what single devices out of service mean; for the node it is fail")
    ] = "fail"
    kernel_log: Annotated[str, Meta(description="where the kernel log is read")] = "/dev/kmsg"
    sys: Annotated[str, Meta(description="where sysfs is mounted")] = "/sys"


class StandingCheck(BuiltIn):
    name = "standing"
    question = "Is a device of this node held, isolated, or telling of memory errors or hardware Xids?"
    cost = "3 ms; what the driver takes to answer where there are accelerators"
    Params = StandingParams
    wants_standings = True
    time_limit_s = 6.0

    def look(self, context: Context) -> Verdict:
        params: StandingParams = self.params
        problems: list[str] = []
        devices: list[str] = []
        for device, words in [
            *kept_out(context),
            *host_memory(Path(params.sys)),
            *gpu_memory(),
            *xids(params.kernel_log, params.xid_window_s),
        ]:
            problems.append(words)
            devices.append(device)
        self._only_devices = context.node not in devices
        if problems:
            return self.bad(
                context,
                problems,
                "Reset or replace the device. `holdfast release DEVICE --reason TEXT` ends HELD, and `holdfast faults "
                "report --device DEVICE --code CODE --recover` ends ISOLATED.",
                devices=list(dict.fromkeys(filter(None, devices))),
            )
        return good("nothing held, isolated or in error")

    def failed_actions(self, *args: object, **kwargs: object) -> Sequence[DiagnosisAction]:
        # The other devices work, so the node can still run the job.
        return [Note()] if self._only_devices and self.params.devices == "warn" else [AvoidNode()]


def kept_out(context: Context) -> list[tuple[str, str]]:
    """Return a sentence for each device of this node that holdfast has recorded as faulty."""
    return [
        (each.device, f"{each.device} is {each.standing}{f': {each.reason}' if each.reason else ''}")
        for each in context.site.kept_out or ()
    ]


def host_memory(root: Path) -> list[tuple[str, str]]:
    """Return the uncorrectable errors of the host's memory since boot (EDAC)."""
    found = []
    for file in sorted(root.glob("devices/system/edac/mc/mc*/ue_count")):
        count = proc_files.number(file)
        if count:
            found.append(("", f"{count} uncorrectable memory errors on controller {file.parent.name} since boot"))
    return found


def gpu_memory() -> list[tuple[str, str]]:
    """Return the uncorrectable memory errors and unfinished row remappings of NVIDIA devices."""
    if not _CONTROL.exists():
        return []
    try:
        library = Nvml()
    except (OSError, NvmlError):
        return []  # report nothing: the check `driver` reports a driver that does not work
    found = []
    try:
        for index in range(library.count()):
            name = f"gpu{index}"
            try:
                handle = library.handle(index)
            except NvmlError as error:
                found.append((name, f"{name} does not answer: {error}"))
                continue
            if errors := library.uncorrected(handle):
                found.append((name, f"{name} has {errors} uncorrectable memory errors since the driver was loaded"))
            pending, failed = library.remapping(handle) or (False, False)
            if failed:
                found.append((name, f"{name} could not remap a bad memory row"))
            elif pending:
                found.append((name, f"{name} has bad memory rows that wait for a reset to be remapped"))
    except NvmlError as error:
        found.append(("", f"the NVIDIA driver does not answer: {error}"))
    finally:
        library.close()
    return found


def xids(path: str, window_s: float) -> list[tuple[str, str]]:
    """Return the hardware Xids in the kernel log of the last `window_s` seconds: the newest of each device and code."""
    newest: dict[tuple[str, int], float] = {}
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    for at, line in kernel_lines(path):
        match = _XID.search(line)
        if match and int(match[2]) in _GRAVE and now - at <= window_s:
            newest[match[1], int(match[2])] = at
    return [
        (f"pci:{device}", f"Xid {code} of the GPU at {device}, {max(0.0, now - at) / 60:.0f} minutes ago")
        for (device, code), at in newest.items()
    ]


def kernel_lines(path: str) -> list[tuple[float, str]]:
    """Return the driver's records in the kernel log, with seconds since boot; empty if the log is not readable. This
    never blocks.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found: list[tuple[float, str]] = []
    try:
        while True:
            try:
                data = os.read(fd, 8192)
            except BrokenPipeError:
                continue  # read on, because only the oldest records were overwritten
            except OSError:
                break
            if not data:
                break
            if b"NVRM" not in data:
                continue  # skip this record without decoding it, because a full log has thousands
            for record in data.decode("utf-8", "replace").splitlines():
                head, _, words = record.partition(";")
                fields = head.split(",")
                if words and len(fields) > 2 and fields[2].isdigit():
                    found.append((int(fields[2]) / 1e6, words))
    finally:
        os.close(fd)
    return found
