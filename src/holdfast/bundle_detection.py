"""Detects whether the running Python belongs to holdfast's tree in a user's container. Every start calls this."""

from __future__ import annotations

import os


def in_tree(prefix: str) -> bool:
    """Return whether the interpreter belongs to a tree. `prefix`: `sys.prefix`."""
    return os.access(f"{prefix}/TREE.json", os.F_OK)  # `tree_manifest.NAME`, without a slow import
