"""NVIDIA's management library, where the C library does not find it by itself.

Under a C library of holdfast's own (the runtime in a container) the image's list of libraries counts only where the
image has the same kind: in an image with musl the driver's libraries lie where only their full path leads.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

NAME = "libnvidia-ml.so.1"
#: Where container toolkits mount it.
PLACES = ("/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib", "/lib64")


def open_library() -> ctypes.CDLL:
    """The open library; code that asks for it by name in this process has it from now on. Raises OSError."""
    try:
        return ctypes.CDLL(NAME)
    except OSError:
        for place in PLACES:
            if (path := Path(place, NAME)).exists():
                return ctypes.CDLL(str(path))
        raise
