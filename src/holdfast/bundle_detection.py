"""Detects whether the running Python belongs to a bundled tree of holdfast in a user's container.

Every start calls this.
"""

from __future__ import annotations

import os


def in_tree(prefix: str) -> bool:
    """Return whether the interpreter belongs to a bundled tree. `prefix`: `sys.prefix`."""
    # the file's name is `tree_manifest.NAME`, written out to avoid a slow import
    return os.access(f"{prefix}/TREE.json", os.F_OK)
