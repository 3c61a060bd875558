"""The benchmark on Kubernetes works. No time is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent.parent / "bench" / "kubernetes.py"


@pytest.mark.real
@pytest.mark.kubernetes
def test_the_benchmark_on_kubernetes_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCH, "--smoke"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "holdfast, in place" in done.stdout and "all pods made anew" in done.stdout
