"""Warm starts under a Python of the user's own, which is older or newer than holdfast's: real interpreters."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import Holdfast

pytestmark = pytest.mark.real

TELLS_WARMTH = """
import os, sys, warnings
warm = "decimal" in sys.modules
warnings.filterwarnings("ignore")
os.environ.setdefault("A_DEFAULT", "1")
import json, decimal, concurrent.futures
try:
    import not_there
except ImportError:
    pass
with warnings.catch_warnings():
    import colorsys
import holdfast
holdfast.progress(1)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    sys.exit(3)
print(sys.version_info[1], "warm" if warm else "cold", os.environ["A_DEFAULT"], os.environ["RANK"])
"""


def python_of(minor: int) -> str:
    """An interpreter of 3.`minor` of this machine."""
    found = shutil.which(f"python3.{minor}")
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", "/nowhere"), "versions").glob(f"3.{minor}.*/bin/python3.{minor}"))
    if pyenv:
        return str(pyenv[-1])
    if found is None:
        pytest.skip(f"there is no python3.{minor} here")
    return found


@pytest.mark.parametrize("minor", [9, 10, 12, 13])
def test_workers_start_warm_under_the_user_s_python(holdfast: Holdfast, minor: int) -> None:
    python = python_of(minor)
    script = holdfast.script(TELLS_WARMTH)
    ran = holdfast.run(
        "--warm", "--standby", "--nproc-per-node", "2", "--max-restarts", "1", "--python", python, script
    )
    assert ran.status == 0, ran.err
    assert sorted(ran.out.split("\n")[-3:-1]) == [f"[worker-0] {minor} warm 1 0", f"[worker-1] {minor} warm 1 1"]
    assert "cold" not in ran.err
    assert holdfast.survivors() == []


def test_an_older_python_starts_cold_with_a_note(holdfast: Holdfast) -> None:
    ran = holdfast.run("--warm", "--python", python_of(8), holdfast.script("print('ran')"))
    assert ran.out == "[worker-0] ran\n", ran.err
    assert "is cpython 3.8, and a warm start needs CPython 3.9 or newer" in ran.err
