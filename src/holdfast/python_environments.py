"""Finds Python environments on this machine, and the modules installed in them, without running any of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def same_place(path: str, other: str) -> bool:
    """Return whether both paths name the same file in the same directory. The directory matters, because it identifies
    a virtual environment.
    """
    here, there = Path(path).absolute(), Path(other).absolute()
    return here.parent.resolve() == there.parent.resolve() and here.resolve() == there.resolve()


def has_module(prefix: Path, module: str) -> bool:
    """Return whether an environment's files show that a module (`torch`, `apex.amp`) is installed."""
    for packages in (*prefix.glob("lib*/python3*/site-packages"), *prefix.glob("lib/python3*/dist-packages")):
        place = packages.joinpath(*module.split("."))
        if place.is_dir() or place.with_suffix(".py").is_file() or any(place.parent.glob(f"{place.name}.*.so")):
            return True
    return False


def environments(env: Mapping[str, str], places: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the environments that the user may have meant: the active ones, holdfast's own, those in `places`, and the
    system's.

    `places`: the job's working directory and its script's directory.
    """
    seen: set[str] = set()
    beside = [str(place / name) for place in places for name in (".venv", "venv", "env")]
    for text in (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"), sys.prefix, *beside, "/usr/local", "/usr"):
        if text and os.path.realpath(text) not in seen and _python_of(Path(text)) is not None:
            seen.add(os.path.realpath(text))
            yield Path(text)


def _python_of(prefix: Path) -> Path | None:
    return next((prefix / "bin" / name for name in ("python", "python3") if (prefix / "bin" / name).exists()), None)


def python_of(prefix: Path) -> Path:
    """Return the path of an environment's interpreter: `python`, or `python3` as on Debian."""
    return _python_of(prefix) or prefix / "bin" / "python"
