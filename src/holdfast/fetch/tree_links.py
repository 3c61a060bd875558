"""Symbolic links of a tree: where they lead when the kernel follows them, link after link.

Each link of a tree may stay inside by its text, and two of them together may lead out: after `up -> ../..` a path
through `up` is higher than it reads. So a link is followed one part of its path at a time.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Linux follows at most as many links in one path.
MOST_LINKS = 40


def stays_inside(top: Path, relative: str) -> bool:
    """Return whether the link at `relative` under `top` leads to a place under `top`, or to nothing there.

    The answer does not depend on where `top` is: a path that leaves the tree counts as outside, even where it comes
    back. A circle of links leads nowhere.
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
            reached.append(part)  # no link, or nothing
            continue
        if target.startswith("/"):
            return False
        followed += 1
        if followed > MOST_LINKS:
            return True
        parts = [*target.split("/"), *parts]
    return True


def link_outside(top: Path) -> str | None:
    """Return the relative path of a link under `top` that leads out of it; None: every link stays inside."""
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink() and not stays_inside(top, path.relative_to(top).as_posix()):
                return path.relative_to(top).as_posix()
    return None
