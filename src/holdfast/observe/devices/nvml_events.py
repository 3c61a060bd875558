"""Reads Xids through NVML, on machines whose kernel log is unreadable. Codes and devices are the same.

NVML has no descriptor to wait on, so `watch` blocks in the library, in a separate process. It needs the `nvidia` extra
(nvidia-ml-py) and a driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast.catalogue.nvidia import xid
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices.nvidia_library import open_library

SOURCE = "nvml"
#: The Xid to report for a GPU that has left the PCI bus. NVML only raises an error then.
LOST = 79
#: The longest wait in the library, in milliseconds.
_WAIT_MS = 60_000


def watch(tell: Callable[[FaultEvent], None], *, node: str = "", library: Any = None) -> str:
    """Call `tell` for every critical Xid of every GPU. Return when no more can come, with the reason as a clause."""
    try:
        nvml = library if library is not None else _library()
        nvml.nvmlInit()
        events = nvml.nvmlEventSetCreate()
        handles = {}
        for index in range(int(nvml.nvmlDeviceGetCount())):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            handles[_number(nvml, handle, index)] = handle
    except Exception as error:  # the library raises its own exceptions, or ImportError if it is missing
        return f"NVML gives no events ({_words(error)})"
    if not handles:
        return "NVML shows no GPU"
    names = {str(nvml.nvmlDeviceGetUUID(handle)): number for number, handle in handles.items()}
    while True:
        try:
            found = nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            tell(_event(names.get(str(nvml.nvmlDeviceGetUUID(found.device)), 0), int(found.eventData), node))
        except Exception as error:  # a time-out raises too, and does not end the watch; any other exception does
            if "imeout" in str(error):
                continue
            for number, handle in handles.items():
                if _is_lost(nvml, handle):
                    tell(_event(number, LOST, node))
            return f"NVML gives no more events ({_words(error)})"


def _event(number: int, code: int, node: str) -> FaultEvent:
    known = xid(code)
    return FaultEvent(
        device=f"gpu{number}",
        code=str(code),
        assertion=known.assertion if known is not None else Assertion.ONCE,
        at=time.time(),
        node=node,
        severity=known.severity if known is not None else Severity.MINOR,
        text=f"NVML: critical Xid {code} on gpu{number}",
        source=SOURCE,
    )


def _number(nvml: Any, handle: Any, index: int) -> int:
    """Return the number in the GPU's name (`gpu3`).

    It is the number of the device node, which may differ from NVML's index.
    """
    try:
        return int(nvml.nvmlDeviceGetMinorNumber(handle))
    except Exception:  # if the driver reports no number, the library raises its own exception: use NVML's index
        return index


def _is_lost(nvml: Any, handle: Any) -> bool:
    try:
        nvml.nvmlDeviceGetUUID(handle)
        nvml.nvmlDeviceGetPciInfo(handle)
    except Exception as error:  # catch everything, because the library raises its own exceptions
        return "lost" in str(error).lower()
    return False


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _library() -> Any:
    import pynvml

    try:
        open_library()  # open the library first, because pynvml opens it by name and then finds this one
    except OSError:
        pass  # ignore the error, because pynvml will raise its own
    return pynvml
