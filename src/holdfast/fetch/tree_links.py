"""Determines whether the symbolic links of a directory tree lead out of the tree.

A link's text does not show its target, because the path may go through another link: `a/up/x` is not below `a` if `up`
is a link to `../..`. So this module follows a link one path component at a time, as the kernel does.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Maximum number of links that are followed in one path. Linux has the same limit.
MOST_LINKS = 40


def stays_inside(top: Path, relative: str) -> bool:
    """Return whether the symbolic link at `relative` below `top` leads to a path below `top`. The path need not exist.

    A path that leaves the tree and returns counts as outside, so the result does not depend on the location of `top`. A
    cycle of links counts as inside, because it leads to no file.
    """
    parts = relative.split("/")
    reached: list[str] = []
    followed = 0
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            if not reached:
                return False
            reached.pop()
            continue
        try:
            target = str(top.joinpath(*reached, part).readlink())
        except OSError:
            reached.append(part)  # this path component is no link, or does not exist
            continue
        if target.startswith("/"):
            return False
        followed += 1
        if followed > MOST_LINKS:
            return True
        parts = [*target.split("/"), *parts]
    return True


def link_outside(top: Path) -> str | None:
    """Return the relative path of a link below `top` that leads out of `top`. Return None if no link does."""
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink() and not stays_inside(top, path.relative_to(top).as_posix()):
                return path.relative_to(top).as_posix()
    return None
