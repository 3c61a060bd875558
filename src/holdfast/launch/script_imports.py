"""Finds the Python on PATH that has the modules a script imports. This is needed if holdfast is installed apart from
the user's packages (uv tool, pipx) and no environment is active."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.lazy_pattern import Lazy

#: Limit on the bytes of a script that are read.
MOST_BYTES = 262_144
_IMPORT = Lazy(r"(?m)^(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([\w., \t]+))")


def missing_imports(script: Path) -> list[str]:
    """Return the modules that the script imports at its top level and that are neither beside the script nor in
    holdfast's Python."""
    try:
        with script.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return []
    found = (match.groups() for match in _IMPORT.finditer(text))
    names = [name for one, several in found for name in _names(one, several)]
    return [name for name in dict.fromkeys(names) if not _beside(script, name) and not _here(name)]


def pythons(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the Pythons on PATH, except those of holdfast's own environment."""
    seen = {os.path.realpath(sys.executable)} if sys.prefix == sys.base_prefix else set()
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        for name in ("python", "python3"):
            path = f"{directory}/{name}"
            if directory and os.access(path, os.X_OK) and not _same(path) and path not in seen:
                seen.add(path)
                yield path


def _same(path: str) -> bool:
    return Path(path).parent == Path(sys.executable).parent


def _names(one: str | None, several: str | None) -> list[str]:
    if one:
        return [one]
    words = [part.split() for part in (several or "").split(",")]
    return [word[0].partition(".")[0] for word in words if word]


def _beside(script: Path, name: str) -> bool:
    return (script.parent / f"{name}.py").exists() or (script.parent / name).is_dir()


def _here(name: str) -> bool:
    import importlib.util  # imported here, because few starts search for a Python

    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True
