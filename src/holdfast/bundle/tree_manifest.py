"""The manifest of a runtime tree: its version, its processor type, and its files.

`TREE.json` at the top of the runtime tree is written last, so a directory without it is not a tree.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_file, write_file
from holdfast.untrusted import json_as

NAME = "TREE.json"
#: Maps the output of `uname -m` to the file name of the GNU C library's loader. launcher.c has the same names.
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_MOST_BYTES = 4 << 20
_BLOCK_BYTES = 1 << 20


class TreeFile(Noun, frozen=True, array_like=True):
    """One regular file of a runtime tree."""

    executable: bool
    size_bytes: int
    sha256: str

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


class Tree(Noun, frozen=True, kw_only=True):
    """A complete runtime tree. Paths are relative to the top of the tree."""

    #: Version of holdfast in the runtime tree.
    version: str
    python: str
    #: Processor type, as `uname -m` prints it.
    machine: str
    #: Digest of all other fields. Two trees with the same digest are equal.
    digest: str
    files: dict[str, TreeFile]
    #: Maps the path of each symbolic link to its target.
    links: dict[str, str] = {}

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


def read_tree(place: Path) -> Tree:
    """Read the tree's `TREE.json`. Raises OSError, and Malformed if the directory is not a runtime tree."""
    return json_as(read_file(place / NAME, _MOST_BYTES), Tree)


def write_tree(place: Path, version: str, python: str, machine: str) -> Tree:
    """Hash all files in `place`, and write its `TREE.json`. Raises OSError."""
    files: dict[str, TreeFile] = {}
    links: dict[str, str] = {}
    for folder, _, names in os.walk(place):
        for name in sorted(names):
            path = Path(folder, name)
            at = str(path.relative_to(place))
            if at == NAME:
                continue
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                links[at] = str(path.readlink())
            else:
                files[at] = TreeFile(bool(found.st_mode & stat.S_IXUSR), found.st_size, sha256(path))
    files, links = dict(sorted(files.items())), dict(sorted(links.items()))
    whole = msgspec.json.encode((version, python, machine, files, links))
    digest = hashlib.sha256(whole).hexdigest()
    tree = Tree(version=version, python=python, machine=machine, digest=digest, files=files, links=links)
    write_file(place / NAME, msgspec.json.encode(tree), 0o644)
    return tree


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal digits. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()


def differs(place: Path, tree: Tree) -> str:
    """Return the first file of the tree at `place` that is missing or has another size or mode.

    Return "" if there is none. The files' contents are not read.
    """
    for at, file in tree.files.items():
        try:
            found = (place / at).lstat()
        except OSError:
            return at
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.size_bytes:
            return at
        if stat.S_IMODE(found.st_mode) != file.mode:
            return at
    for at, target in tree.links.items():
        try:
            if str((place / at).readlink()) != target:
                return at
        except OSError:
            return at
    return ""
