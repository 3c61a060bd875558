"""Opens NVIDIA's management library, even if the C library does not find it by name.

The bundled runtime of holdfast contains its own C library. In an image with another C library (musl), it cannot use the
image's list of libraries, so the driver's library must be opened by its full path.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

NAME = "libnvidia-ml.so.1"
#: The directories in which container toolkits mount the library.
PLACES = ("/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib", "/lib64")


def open_library() -> ctypes.CDLL:
    """Open the library and return it. Afterwards, other code in this process can open the library by name. Raises
    OSError."""
    try:
        return ctypes.CDLL(NAME)
    except OSError:
        for place in PLACES:
            if (path := Path(place, NAME)).exists():
                return ctypes.CDLL(str(path))
        raise
