"""Xids through NVML, where the kernel log cannot be read: same codes, same devices.

NVML has no descriptor to wait on: `watch` waits inside the library, in a process of its own. Needs the `nvidia` extra
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
#: The driver's message for a GPU that has fallen off the bus; NVML itself then only fails.
LOST = 79
#: Seconds that one wait in the library takes at most.
_WAIT_MS = 60_000


def watch(tell: Callable[[FaultEvent], None], *, node: str = "", library: Any = None) -> str:
    """Report every critical Xid of every GPU. Returns only when no more will come: the reason, as half a sentence."""
    try:
        nvml = library if library is not None else _library()
        nvml.nvmlInit()
        events = nvml.nvmlEventSetCreate()
        handles = {}
        for index in range(int(nvml.nvmlDeviceGetCount())):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            handles[_number(nvml, handle, index)] = handle
    except Exception as error:  # the library raises its own kinds, and ImportError where it is missing
        return f"NVML gives no events ({_words(error)})"
    if not handles:
        return "NVML shows no GPU"
    names = {str(nvml.nvmlDeviceGetUUID(handle)): number for number, handle in handles.items()}
    while True:
        try:
            found = nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            tell(_event(names.get(str(nvml.nvmlDeviceGetUUID(found.device)), 0), int(found.eventData), node))
        except Exception as error:  # a time-out is an exception of the library's own; anything else ends the watch
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
    """The number in the GPU's name: that of its device node, which is not always NVML's own."""
    try:
        return int(nvml.nvmlDeviceGetMinorNumber(handle))
    except Exception:  # some drivers do not tell (the library's own kinds of errors); NVML's order is the next best
        return index


def _is_lost(nvml: Any, handle: Any) -> bool:
    try:
        nvml.nvmlDeviceGetUUID(handle)
        nvml.nvmlDeviceGetPciInfo(handle)
    except Exception as error:  # the library's own kinds
        return "lost" in str(error).lower()
    return False


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _library() -> Any:
    import pynvml

    try:
        open_library()  # pynvml asks for it by name alone, and then has this one
    except OSError:
        pass  # pynvml says so in its own words
    return pynvml
