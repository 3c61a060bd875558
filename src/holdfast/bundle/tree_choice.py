"""Chooses the runtime tree that `holdfast prepare` copies: an existing tree, or one that is built once and kept."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.bundle.build_tools import NotBuilt
from holdfast.bundle.tree_build import build, fingerprint
from holdfast.bundle.tree_manifest import NAME
from holdfast.file_modes import distrust
from holdfast.version import __version__

VARIABLE = "HOLDFAST_TREE"
_KEPT = 3
_CACHE_HINT = "export XDG_CACHE_HOME=/a/directory/of/yours"
#: Path of the runtime tree in holdfast's own image.
IN_IMAGE = Path("/opt/holdfast/tree")


def find_tree(asked: Path | None, env: Mapping[str, str], say: Callable[[str], None]) -> Path:
    """Return the directory of the runtime tree. Raises `NotBuilt` if there is no tree and none can be built.

    `asked`: the user's choice. The first of these counts: `asked`, `HOLDFAST_TREE`, the tree to which this Python
        belongs, the tree in holdfast's image, and the user's cache. The first time, a tree is built in the cache.
    """
    if asked is not None:
        return asked
    if place := env.get(VARIABLE):
        return Path(place)
    own = Path(sys.executable).parent.parent
    for tree in (own, IN_IMAGE):
        if (tree / NAME).is_file():
            return tree
    return _built(env, say)


def _built(env: Mapping[str, str], say: Callable[[str], None]) -> Path:
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or "/nonexistent", ".cache")) / "holdfast"
    place = cache / f"tree-{__version__}-{fingerprint()}"
    if why := distrust(cache):
        raise NotBuilt(f"no runtime is taken from {cache}: {why.partition(': ')[0]}", hint=_CACHE_HINT)
    if not (place / NAME).is_file():
        say(f"the runtime is built once, into {place}")
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            build(place)
            # Remove trees of older releases and of earlier source versions.
            for old in sorted(cache.glob("tree-*"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            if (place / NAME).is_file():
                return place  # another `prepare` has built the runtime tree in the meantime
            raise NotBuilt(
                f"the runtime cannot be built into {place}: {error.strerror or error}",
                hint=_CACHE_HINT,
            ) from error
    return place
