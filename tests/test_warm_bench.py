"""The comparison of launchers works: holdfast warm alone, without torch, and what it prints is told apart and drawn."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.real
def test_the_comparison_of_launchers_runs(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "launchers.py", "--smoke", "--plot", plot],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "**kill, 2 ranks**, 1 rounds" in done.stdout and "**none, 2 ranks**" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| holdfast warm") and "1 of 1" in line]
    assert [cell.strip() for cell in row.split("|")][-2] == "1 of 1", "rank 1 was named"
    png = plot.read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND" + zlib.crc32(b"IEND").to_bytes(4))
