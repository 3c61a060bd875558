"""The file in which a worker may say why it failed (TORCHELASTIC_ERROR_FILE)."""

from __future__ import annotations

from pathlib import Path

from holdfast.files import read_file

MOST_BYTES = 64 * 1024


def read_error_file(path: Path) -> str:
    """Its beginning; empty where the worker wrote none."""
    try:
        return read_file(path, MOST_BYTES, cut=True).decode(errors="replace")
    except OSError:
        return ""
