"""The file in which a worker may say why it failed (TORCHELASTIC_ERROR_FILE)."""

from __future__ import annotations

from pathlib import Path

MOST_BYTES = 64 * 1024


def read_error_file(path: Path) -> str:
    """Its beginning; empty where the worker wrote none."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
