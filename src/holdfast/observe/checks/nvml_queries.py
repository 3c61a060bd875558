"""Queries NVIDIA's management library (NVML) for a few facts, without a command line tool.

Names and numbers are those of NVML's public C interface (nvml.h).
"""

from __future__ import annotations

import ctypes
from typing import Any

from holdfast.observe.devices.nvidia_library import open_library

_STRING = 96
_UNCORRECTED, _VOLATILE = 1, 0
_VERSION_MISMATCH = 18


class NvmlError(Exception):
    """An error that the NVML library reports, with the library's message."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.mismatch = code == _VERSION_MISMATCH


class Nvml:
    """An open NVML library. Raises OSError if it is missing, NvmlError if it cannot be initialized."""

    def __init__(self) -> None:
        self._library = open_library()
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")

    def _call(self, name: str, *args: Any) -> None:
        code = int(getattr(self._library, name)(*args))
        if code:
            words = self._library.nvmlErrorString(code)
            raise NvmlError(code, words.decode("utf-8", "replace") if words else f"error {code}")

    def close(self) -> None:
        self._call("nvmlShutdown")

    def driver(self) -> str:
        """Return the driver's version, such as `535.129.03`."""
        found = ctypes.create_string_buffer(_STRING)
        self._call("nvmlSystemGetDriverVersion", found, _STRING)
        return found.value.decode()

    def cuda(self) -> tuple[int, int]:
        """Return the newest CUDA version (major, minor) that the driver supports."""
        found = ctypes.c_int()
        self._call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(found))
        return found.value // 1000, found.value % 1000 // 10

    def count(self) -> int:
        """Return the number of devices."""
        found = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(found))
        return found.value

    def handle(self, index: int) -> Any:
        """Return the device's handle. Raises NvmlError if the device is no longer on the PCI bus."""
        found = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(found))
        return found

    def uncorrected(self, handle: Any) -> int | None:
        """Return the number of uncorrectable memory errors since the driver was loaded; None: the device has no ECC."""
        found = ctypes.c_ulonglong()
        try:
            self._call("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE, ctypes.byref(found))
        except NvmlError:
            return None
        return found.value

    def remapping(self, handle: Any) -> tuple[bool, bool] | None:
        """Return whether memory rows wait for a reset to be remapped, and whether a remapping has failed; None:
        unknown.
        """
        corrected, uncorrected, pending, failed = (ctypes.c_uint() for _ in range(4))
        try:
            self._call(
                "nvmlDeviceGetRemappedRows",
                handle,
                *(ctypes.byref(value) for value in (corrected, uncorrected, pending, failed)),
            )
        except NvmlError:
            return None
        return bool(pending.value), bool(failed.value)
