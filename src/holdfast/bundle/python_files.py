"""Chooses the Python files of a runtime tree: most of the standard library, holdfast, and packages it imports."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from holdfast import version
from holdfast.bundle.build_tools import NotBuilt

#: Packages in the runtime tree besides holdfast. The OpenSSL library replaces `cryptography` (wire/ed25519.py).
SHIPPED = ("click", "msgspec", "PyYAML", "google-re2")
#: Packages of holdfast's extras that workers' nodes use. The runtime tree contains them if they are installed.
OPTIONAL_PACKAGES = ("nvidia-ml-py", "py-spy")

_NOT_WANTED = frozenset({
    # Tests of other projects, and tools for building programs.
    "test", "tests", "idlelib", "tkinter", "turtledemo", "turtle.py", "ensurepip", "lib2to3", "distutils", "venv",
    "pydoc.py", "pydoc_data", "doctest.py", "unittest", "_pyrepl", "pdb.py", "bdb.py", "__phello__",
    "__phello__.foo.py", "site-packages", "dist-packages", "sitecustomize.py", "msilib",
    # Modules that no job needs, for old databases, terminals and protocols.
    "dbm", "curses", "wsgiref", "xmlrpc", "imaplib.py", "nntplib.py", "smtpd.py", "telnetlib.py", "poplib.py",
    "ftplib.py", "mailbox.py", "cgi.py", "cgitb.py", "antigravity.py", "this.py", "pickletools.py", "_pydecimal.py",
    "_pyio.py", "_aix_support.py", "_osx_support.py", "LICENSE.txt", "crypt.py", "aifc.py", "chunk.py", "sunau.py",
    "wave.py", "sndhdr.py", "imghdr.py", "smtplib.py", "plistlib.py", "webbrowser.py", "trace.py", "pstats.py",
    "profile.py", "cProfile.py", "modulefinder.py", "optparse.py", "pyclbr.py", "tabnanny.py", "xdrlib.py", "uu.py",
    "pipes.py", "nturl2path.py", "colorsys.py", "zipapp.py", "xml",
})  # fmt: skip
_NO_MODULE = re.compile(
    r"^(_crypt|_lsprof|_elementtree|pyexpat|_test|_xxtestfuzz|_xxsubinterpreters|_xxinterpchannels|xxlimited|xxsubtype|_tkinter|_curses|_dbm|_gdbm|readline"
    r"|nis|ossaudiodev|audioop|_ctypes_test|spwd|_codecs_(cn|hk|iso2022|jp|kr|tw)|_multibytecodec|_interp)"
)
_NO_PART = re.compile(
    r"(^|/)(tests?|__pycache__)(/|$)|\.(pyc|pyx|pxd|c|h|pyi|md|typed|a|whl|exe)$"
    r"|\.dist-info/|^[^/]*__editable__"
)
#: Python files whose source is shipped beside the bytecode, because workers run them with any Python version.
SOURCES = (
    "holdfast/__init__.py", "holdfast/version.py", "holdfast/worker.py", "holdfast/act/alongside/",
    "holdfast/act/warm/entry_point/", "holdfast/act/warm/inside/", "holdfast/act/store/store_server.py",
)  # fmt: skip


def standard_library() -> Path:
    return Path(os.__file__).parent


def copy_python(to: Path) -> list[Path]:
    """Copy all Python files into `to`, the tree's `lib/pythonX.Y`. Return the paths of the copied extension modules.

    Packages are copied beside the standard library. Without a directory `site-packages`, the tree's Python does not
    need the module `site`. Raises `NotBuilt`.
    """
    source = standard_library()

    def passed_over(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == source
        unwanted = [
            name for name in names if top and (name in _NOT_WANTED or name.startswith(("config-", "lib-dynload")))
        ]
        return unwanted + [name for name in names if _NO_PART.search(name) or name in ("tests", "test", "idle_test")]

    shutil.copytree(source, to, ignore=passed_over, symlinks=False)
    native = []
    (to / "lib-dynload").mkdir()
    for module in sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")):
        if not _NO_MODULE.match(module.name):
            shutil.copyfile(module, to / "lib-dynload" / module.name)
            native.append(module)
    for path, at in _packages():
        (to / at).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to / at)
        if path.suffix == ".so" or ".so." in path.name:
            native.append(path)
    return native


def programs() -> dict[str, Path]:
    """Return executables that come with a package and need no Python, by name."""
    found = {}
    for distribution in distributions():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file))).resolve()
            if file.name == "py-spy" and path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                found[file.name] = path
    return found


def distributions() -> list[importlib.metadata.Distribution]:
    """Return the distributions in the runtime tree other than holdfast.

    Raises `NotBuilt` if one of `SHIPPED` is not installed.
    """
    found = []
    for name in (*SHIPPED, *OPTIONAL_PACKAGES):
        try:
            found.append(importlib.metadata.distribution(name))
        except importlib.metadata.PackageNotFoundError:
            if name in SHIPPED:
                raise NotBuilt(f"the package {name} is not installed", hint="pip install holdfast-run") from None
    return found


def _packages() -> Iterator[tuple[Path, str]]:
    """Yield each file of holdfast and of the packages that it imports, with the file's path below `lib/pythonX.Y`."""
    own = Path(version.__file__).parent
    for path in sorted(own.rglob("*")):
        at = f"holdfast/{path.relative_to(own)}"
        if path.is_file() and not _NO_PART.search(at):
            yield path, at
    for distribution in distributions():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if not str(file).startswith("..") and path.is_file() and not _NO_PART.search(str(file)):
                yield path, str(file)
