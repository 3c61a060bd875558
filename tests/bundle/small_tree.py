"""A tree of a few files, for what is done to trees: laying them down, replacing them, refusing broken ones."""

from __future__ import annotations

import platform
from pathlib import Path

from holdfast.bundle.tree_manifest import Tree, write_tree


def small_tree(place: Path, version: str = "1.0", text: str = "") -> Tree:
    """`run` prints its version and `text`; it is a script, so that what is at `run` can be started."""
    for folder in ("bin", "lib/python3.11"):
        (place / folder).mkdir(parents=True)
    (place / "run").write_text(f"#!/bin/sh\necho run of {version}{text}\n")
    (place / "run").chmod(0o755)
    (place / "bin/busybox").write_text("busybox")
    (place / "bin/busybox").chmod(0o755)
    (place / "bin/sh").symlink_to("busybox")
    (place / "lib/python3.11/module.pyc").write_bytes(b"\0" * 5000)
    return write_tree(place, version, "3.11.7", platform.machine())
