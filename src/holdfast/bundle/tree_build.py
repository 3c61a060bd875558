"""Builds a runtime tree: Python, the modules that it imports, shared libraries with their loader, a static launcher.

TREE/run, TREE/bin/holdfast, TREE/bin/python3   the launcher, three times
TREE/bin/busybox, TREE/bin/sh                   the shell for images without one
TREE/bin/py-spy                                 if it is installed on this machine
TREE/lib/                                       the loader, the C library, all other shared libraries
TREE/lib/pythonX.Y/                             the standard library and packages, as bytecode
TREE/libexec/python3                            the Python that the loader maps, or a link to it
TREE/LICENSES/, TREE/TREE.json
"""

from __future__ import annotations

import compileall
import hashlib
import os
import platform
import py_compile
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import version
from holdfast.bundle.build_tools import NotBuilt, compile_launcher, find_busybox, tool_output
from holdfast.bundle.licences import FOLDER, write_licences
from holdfast.bundle.python_files import SOURCES, copy_python, distributions, programs, standard_library
from holdfast.bundle.shared_libraries import closure, copy_libraries, strip
from holdfast.bundle.tree_manifest import LOADERS, Tree, sha256, write_tree

LAUNCHERS = ("run", "bin/holdfast", "bin/python3")
#: Modules that must be importable in a built runtime tree.
IMPORTED = (
    "_ctypes", "click", "ctypes", "holdfast.main.run_command", "holdfast.wire.peer_identity", "msgspec", "re2",
    "sqlite3", "ssl", "yaml", "zlib",
)  # fmt: skip
_DOOR = '"""Of the tree: a Python that holdfast starts has the image\'s environment."""\n'
_DOOR += "from holdfast.bundle.hidden_variables import give_back\n\ngive_back('python3')\n"


def build(out: Path) -> Tree:
    """Build a runtime tree from this Python into the new directory `out`. Raises `NotBuilt`, OSError.

    `out` appears only when the runtime tree is complete.
    """
    machine = platform.machine()
    if machine not in LOADERS:
        raise NotBuilt(f"a tree is built for {' or '.join(LOADERS)}, and this machine is a {machine}")
    if out.exists():
        raise NotBuilt(f"{out} exists; expected a name for a new directory", hint=f"rm -r {out}")
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        tree = _build(temporary, machine)
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return tree


def fingerprint() -> str:
    """Return a digest of the sources of a runtime tree. Trees with different digests differ."""
    found = hashlib.sha256(f"{sys.version} {Path(sys.executable).resolve()}".encode())
    for distribution in distributions():
        found.update(f"{distribution.metadata['Name']} {distribution.version}\n".encode())
    own = Path(version.__file__).parent
    for path in sorted(own.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path.relative_to(own)} {sha256(path)}\n".encode())
    return found.hexdigest()[:12]


def _build(top: Path, machine: str) -> Tree:
    for folder in ("bin", "lib", "libexec"):
        (top / folder).mkdir()
    compiler = compile_launcher(top / "run")
    for name in LAUNCHERS[1:]:
        shutil.copyfile(top / "run", top / name)
    busybox = find_busybox()
    shutil.copyfile(busybox, top / "bin/busybox")
    (top / "bin/sh").symlink_to("busybox")
    for name, path in programs().items():
        shutil.copyfile(path, top / "bin" / name)

    interpreter = Path(sys.executable).resolve()
    packages = top / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    native = copy_python(packages)
    site = Path(version.__file__).parent.parent
    shipped = {path.parent for path in native if path.is_relative_to(site)} | {standard_library() / "site-packages"}
    libraries = closure([interpreter, *native], shipped)
    copy_libraries(libraries, LOADERS[machine], top / "lib")
    program = _program(interpreter, libraries, top / "libexec")
    strip([program, *packages.rglob("*.so"), *(top / "lib").glob("libpython*")])
    strip(top / "bin" / name for name in programs())

    (packages / "sitecustomize.py").write_text(_DOOR)
    _to_bytecode(packages, top)
    write_licences(top / FOLDER, [*libraries.values(), busybox], compiler)
    executables = {*LAUNCHERS, "bin/busybox", "bin/py-spy", f"libexec/{program.name}", f"lib/{LOADERS[machine]}"}
    for path in top.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
        elif not path.is_symlink():
            path.chmod(0o755 if str(path.relative_to(top)) in executables else 0o644)
    top.chmod(0o755)
    tree = write_tree(top, version.__version__, platform.python_version(), machine)
    # If too much was left out or stripped, fail now instead of in a job.
    tool_output(top / "bin/python3", "-c", f"import {', '.join(IMPORTED)}")
    tool_output(top / "bin/python3", "-c", "from holdfast.wire.ed25519 import Ed25519; Ed25519(bytes(32)).sign(b'')")
    tool_output(top / "bin/holdfast", "--version")
    return tree


def _program(interpreter: Path, libraries: Mapping[str, Path], to: Path) -> Path:
    """Copy the Python executable into `to`, as `python3`, and return the path of the copied file.

    Tools such as py-spy examine a Python process from outside. They read `/proc/PID/exe`, which is the tree's loader,
    or search for a file with the name of Python's library. If this Python has no such library, the executable gets that
    name, and `python3` becomes a link to it.
    """
    if any(name.startswith("libpython") for name in libraries):
        shutil.copyfile(interpreter, to / "python3")
        return to / "python3"
    file = to / f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so"
    shutil.copyfile(interpreter, file)
    (to / "python3").symlink_to(file.name)
    return file


def _to_bytecode(packages: Path, top: Path) -> None:
    """Replace each source by bytecode that ignores file dates, because copying a runtime tree changes dates.

    Sources that workers run with their own Python stay, and get bytecode beside them.
    """
    kept = [path for path in packages.rglob("*.py") if str(path.relative_to(packages)).startswith(SOURCES)]
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for part in sorted(packages.iterdir()):
        # holdfast keeps its docstrings, which help texts use, and its assertions. Other packages lose their docstrings,
        # a tenth of the bytecode.
        optimize = 0 if part.name == "holdfast" else 2
        how: dict[str, Any] = {"force": True, "legacy": True, "invalidation_mode": unchecked, "optimize": optimize}
        compiles = partial(compileall.compile_dir, maxlevels=50) if part.is_dir() else compileall.compile_file
        if not compiles(part, quiet=2, stripdir=str(top), **how):
            raise NotBuilt(f"{part} cannot be compiled to bytecode", hint=f"{sys.executable} -m compileall {part}")
    for path in packages.rglob("*.py"):
        if path not in kept:
            path.unlink()
    for path in kept:
        path.with_suffix(".pyc").unlink()
        compileall.compile_file(path, quiet=2, force=True, invalidation_mode=unchecked, stripdir=str(top))
