"""Xids through NVML, where the kernel log cannot be read: same codes, same devices, no second count.

NVML has no descriptor to wait on, so one thread waits in the library and hands over through a socket. Needs the
`nvidia` extra (nvidia-ml-py) and a driver; without either `missing` says so.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

from holdfast.catalogue.nvidia import xid
from holdfast.model.faults import Assertion, FaultEvent, Severity

SOURCE = "nvml"
_WAIT_MS = 1000
"""How long the library waits at a time; it bounds how long `close` takes."""
_ITEM = struct.Struct("<iQd")


class NvmlXids:
    """Critical Xid events of all GPUs. `fileno()` is readable when `take` has something; `close()` it."""

    def __init__(self, *, node: str = "", library: Any = None) -> None:
        self.missing = ""
        self._node = node
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._nvml = library if library is not None else _library()
            self._nvml.nvmlInit()
            count = int(self._nvml.nvmlDeviceGetCount())
            events = self._nvml.nvmlEventSetCreate()
            self._numbers: dict[str, int] = {}
            for number in range(count):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
                self._numbers[str(self._nvml.nvmlDeviceGetUUID(handle))] = number
                self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except Exception as error:  # the library raises its own kinds, and ImportError where it is missing
            self.missing = f"NVML gives no events ({error}): Xids are seen only in the kernel log"
            return
        self._thread = threading.Thread(target=self._wait, args=(events,), name="nvml-events", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._near.fileno() if self._thread is not None else -1

    def take(self, now: float) -> list[FaultEvent]:
        """Events that have come."""
        del now
        out: list[FaultEvent] = []
        while True:
            try:
                data = self._near.recv(_ITEM.size)
            except OSError:
                return out
            if len(data) < _ITEM.size:
                return out
            number, code, at = _ITEM.unpack(data)
            known = xid(code)
            out.append(
                FaultEvent(
                    device=f"gpu{number}",
                    code=str(code),
                    assertion=known.assertion if known is not None else Assertion.ONCE,
                    at=at,
                    node=self._node,
                    severity=known.severity if known is not None else Severity.MINOR,
                    text=f"NVML: critical Xid {code} on gpu{number}",
                    source=SOURCE,
                )
            )

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5 * _WAIT_MS / 1000)
            self._thread = None
        self._near.close()
        self._far.close()

    def _wait(self, events: Any) -> None:
        while not self._stop.is_set():
            try:
                found = self._nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            except Exception as error:  # a time-out is an exception of the library's own; anything else ends the watch
                if "imeout" in str(error):
                    continue
                return
            uuid = str(self._nvml.nvmlDeviceGetUUID(found.device))
            try:
                self._far.send(_ITEM.pack(self._numbers.get(uuid, 0), int(found.eventData), time.time()))
            except OSError:
                pass  # nobody reads: a full socket must not stop the watch


def _library() -> Any:
    import pynvml

    return pynvml
