"""The comparison of launchers works: holdfast warm alone, without torch, and what it prints is parsed and drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT


@pytest.mark.real
def test_the_comparison_of_launchers_runs(tmp_path: Path) -> None:
    plot, keep = tmp_path / "plot.png", tmp_path / "runs.jsonl"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "launchers.py", "--smoke", "--plot", plot, "--keep", keep],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "**kill, 2 ranks**, 1 rounds" in done.stdout and "**none, 2 ranks**" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| holdfast warm") and "1 of 1" in line]
    assert [cell.strip() for cell in row.split("|")][-2] == "1 of 1", "rank 1 was named"
    assert plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    again = subprocess.run(
        [sys.executable, ROOT / "bench" / "launchers.py", "--smoke", "--keep", keep],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert again.stderr == "", "what was kept is not run again"
    assert row in again.stdout
