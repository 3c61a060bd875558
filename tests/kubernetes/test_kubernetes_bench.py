"""The benchmark on Kubernetes works. No time is asserted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from real_kubernetes import Shared

BENCH = Path(__file__).resolve().parent.parent.parent / "bench" / "kubernetes.py"


def test_the_benchmark_on_kubernetes_works(kubernetes: Shared, tmp_path: Path) -> None:
    words = [sys.executable, str(BENCH), "--smoke", "--shared", os.environ["HOLDFAST_TESTS_HOME"]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "holdfast, in place" in done.stdout and "all pods made anew" in done.stdout
