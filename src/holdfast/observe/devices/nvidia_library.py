"""Opens NVIDIA's management library, even if the C library does not find it by name.

holdfast's bundled runtime has its own C library. In an image with another one (musl), it cannot use the image's list of
libraries, so it must open the driver's library by its full path.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

NAME = "libnvidia-ml.so.1"
#: The directories where container toolkits mount the library.
PLACES = ("/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib", "/lib64")


def open_library() -> ctypes.CDLL:
    """Open the library and return it. Other code in this process can then open it by name. Raises OSError."""
    try:
        return ctypes.CDLL(NAME)
    except OSError:
        for place in PLACES:
            if (path := Path(place, NAME)).exists():
                return ctypes.CDLL(str(path))
        raise
