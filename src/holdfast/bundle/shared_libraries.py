"""Collects the shared libraries that a runtime tree's Python and its modules need, with loader and C library."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.bundle.build_tools import NotBuilt, tool_output

_LINE = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
#: Libraries that an image's library such as NVML needs when the tree's Python opens it. They must match the tree's C
#: library, not the image's.
LIBRARIES_FOR_IMAGES = (
    "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
    "libnss_dns.so.2", "libnss_files.so.2",
)  # fmt: skip
PRELOAD = b"/etc/ld.so.preload\0"
_NO_PRELOAD = b"/etc/ld.so.pre-off\0"


def closure(elves: Iterable[Path], shipped: Iterable[Path]) -> dict[str, Path]:
    """Return the shared libraries that the ELF files `elves` need, except those in a folder of `shipped`.

    The keys are the names for which the loader searches. Raises `NotBuilt` if a library is missing on this machine.
    """
    found: dict[str, Path] = {}
    own = [str(folder) + os.sep for folder in shipped]
    for elf in elves:
        said = tool_output("ldd", elf, ok=(0, 1))  # for a static executable ldd exits with 1
        if missing := _MISSING.search(said):
            raise NotBuilt(f"{elf} needs {missing[1]}, which is not here", hint=f"ldd {elf}")
        for match in _LINE.finditer(said):
            if not match[2].startswith(tuple(own)):
                found.setdefault(Path(match[1] or match[2]).name, Path(match[2]))
    [libc] = [path for name, path in found.items() if name == "libc.so.6"]
    for name in LIBRARIES_FOR_IMAGES:
        if (beside := libc.with_name(name)).exists():
            found.setdefault(name, beside)
    return found


def copy_libraries(libraries: Mapping[str, Path], loader: str, to: Path) -> None:
    """Copy the libraries into one folder. Patch the loader so that it ignores the image's `/etc/ld.so.preload`.

    That file lists libraries for the loader to load first. They need the image's C library, and no option of the loader
    ignores the file.
    """
    if loader not in libraries:
        raise NotBuilt(f"this Python does not use {loader}: its C library is not GNU's, version 2.33 or newer")
    to.mkdir(parents=True, exist_ok=True)
    for name, path in libraries.items():
        shutil.copyfile(path, to / name)
        (to / name).chmod(0o755 if name == loader else 0o644)
    data = (to / loader).read_bytes()
    if data.count(PRELOAD) != 1:
        raise NotBuilt(f"{libraries[loader]} does not name {PRELOAD[:-1].decode()} once, as other loaders do")
    (to / loader).write_bytes(data.replace(PRELOAD, _NO_PRELOAD))


def strip(elves: Iterable[Path]) -> None:
    """Remove symbols that no loader reads from ELF files, if the tool `strip` is installed."""
    if tool := shutil.which("strip"):
        for elf in elves:
            tool_output(tool, "--strip-unneeded", elf)
