"""Runs on a machine with NVIDIA GPUs: its driver and `nvidia-smi` are the truth."""

from __future__ import annotations

import subprocess

import pytest

from conftest import Holdfast

pytestmark = pytest.mark.gpu

PRINTS_ITS_PLACE = """
import os, pathlib
pathlib.Path(f"rank-{os.environ['RANK']}").write_text(os.environ["LOCAL_WORLD_SIZE"])
"""


def gpus_of_the_driver() -> list[str]:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith("GPU ")]


def test_there_is_a_worker_for_each_gpu_of_the_machine(holdfast: Holdfast) -> None:
    count = len(gpus_of_the_driver())
    ran = holdfast.run("--no-checks", "--nproc-per-node", "gpu", holdfast.script(PRINTS_ITS_PLACE))
    assert ran.status == 0, ran.err
    assert {path.read_text() for path in holdfast.dir.glob("rank-*")} == {str(count)}
    assert len(list(holdfast.dir.glob("rank-*"))) == count


def test_the_driver_of_a_healthy_gpu_passes_its_check(holdfast: Holdfast) -> None:
    ran = holdfast("check", "driver", "--json")
    assert ran.status == 0, ran.out + ran.err
