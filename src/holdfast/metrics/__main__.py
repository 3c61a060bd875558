"""`python -m holdfast.metrics HOME FILE [UNSAVED]`: write a state directory's metrics to a file, whole or not at all.

UNSAVED: bytes of the journal that the run keeps in memory, since the disk takes none.

A run starts it (`--metrics-file`). Exit status 1: the file was not written, and standard output has one line that says
why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.clock import Clock
from holdfast.metrics.prometheus_text import metrics_text
from holdfast.safe_files import not_a_file, replace_file

#: node exporter is another user.
MODE = 0o644


def main(words: list[str]) -> int:
    home, path = Path(words[0]), Path(words[1])
    os.nice(10)  # workers come first
    try:
        if kind := not_a_file(path):
            raise OSError(0, f"it is {kind}, and a file was expected")
        unsaved_bytes = int(words[2]) if len(words) > 2 else None
        text = metrics_text([home], Clock().now(), keeping=True, unsaved_bytes=unsaved_bytes)
        replace_file(path, text.encode(), MODE)
    except OSError as error:
        os.write(1, f"{error.strerror or error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
