"""Tells whether the running Python belongs to a bundle: holdfast's tree in a user's container. Each start asks."""

from __future__ import annotations

import os


def in_tree(prefix: str) -> bool:
    """`prefix`: the interpreter's (`sys.prefix`)."""
    return os.access(f"{prefix}/TREE.json", os.F_OK)  # `tree_manifest.NAME`, whose module no start imports
