"""The program `python -m holdfast.bundle OUT` builds a runtime tree from this Python into the new directory OUT."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.bundle.tree_build import build
from holdfast.errors import HoldfastError


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        os.write(2, b"usage: python -m holdfast.bundle OUT\nBuilds the runtime's tree into the new directory OUT.\n")
        return 0 if words in (["-h"], ["--help"]) else 2
    try:
        tree = build(Path(words[0]).absolute())
    except (HoldfastError, OSError) as error:
        os.write(2, f"holdfast: {error}\n".encode())
        return getattr(error, "exit_status", 1)
    told = f"{words[0]}: holdfast {tree.version}, Python {tree.python}, {tree.machine}, {len(tree.files)} files, "
    os.write(1, f"{told}{tree.size_bytes / 1e6:.1f} MB\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
