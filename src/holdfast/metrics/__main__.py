"""The program `python -m holdfast.metrics HOME FILE [UNSAVED]` writes a state directory's metrics to a file.

The file is written completely or not at all. UNSAVED: bytes of the journal that a run keeps in memory because it cannot
write them to the disk. A run starts this program (`--metrics-file`). Exit status 1: the file was not written, and
standard output has one line with the reason.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.clock import Clock
from holdfast.metrics.prometheus_text import metrics_text
from holdfast.safe_files import not_a_file, replace_file

#: Mode of the file. node exporter, which reads it, runs as another user.
MODE = 0o644


def main(words: list[str]) -> int:
    home, path = Path(words[0]), Path(words[1])
    os.nice(10)  # leave the CPUs to the job's workers
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
