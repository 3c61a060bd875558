"""The runtime of a container on Slurm: `prepare` lays it down, `srun DIR/run` is the task. The same bytes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import Container, exchange
from real_slurm import Slurm

USER_CMD = """\
of="$PAI_TASK_INDEX of $PAI_CURRENT_TASK_ROLE_TASK_COUNT"
echo "$PAI_TASK_ROLE_NAME $of on $SLURMD_NODENAME, <% $parameters.lr %>"
exit ${WANTED:-0}
"""


@pytest.fixture
def pai(slurm: Slurm, image_of: Callable[..., Container]) -> Path:
    """An exchange directory on the nodes, as `holdfast prepare` leaves it."""
    image_of("busybox")  # or skip
    place = slurm.home / "pai"
    shutil.copytree(exchange(), place, symlinks=True)
    return place


def said(printed: str) -> list[str]:
    return sorted(line.partition("] ")[2] for line in printed.splitlines() if line.startswith("[task-"))


def test_a_task_of_an_allocation_runs_the_user_s_command(slurm: Slurm, pai: Path) -> None:
    given = f"export USER_CMD='{USER_CMD}' HOLDFAST_PARAMETER_lr=0.1"
    job = slurm.sbatch(f"{given}\nsrun -N1 -n1 {pai}/run\necho status $?\nWANTED=7 srun -N1 -n1 {pai}/run", "-N1")
    ended = slurm.ended(job)
    printed = slurm.output(job)
    assert said(printed) == ["task 0 of 1 on n1, 0.1"] * 2, printed
    assert "status 0" in printed
    assert ended["ExitCode"] == "255:0", "holdfast's own code"
    assert digest(pai) == digest(exchange()), "the bytes are those of a container"
    slurm.nothing_left()


def test_one_task_a_node_makes_one_gang(slurm: Slurm, pai: Path) -> None:
    given = f"export USER_CMD='{USER_CMD}' HOLDFAST_PARAMETER_lr=0.1"
    job = slurm.sbatch(f"{given}\nsrun --ntasks-per-node=1 {pai}/run", "-N2")
    ended = slurm.ended(job)
    assert said(slurm.output(job)) == ["task 0 of 2 on n1, 0.1", "task 1 of 2 on n2, 0.1"], slurm.output(job)
    assert ended["ExitCode"] == "0:0"


def test_a_cancelled_step_reaches_the_user_s_command(slurm: Slurm, pai: Path) -> None:
    given = "export USER_CMD='trap \"echo told > told; exit\" TERM; touch up; while :; do sleep 0.1; done'"
    job = slurm.sbatch(f"{given}\nsrun -N1 -n1 {pai}/run", "-N1")
    slurm.wait(lambda: (slurm.home / "up").exists(), "the user's command runs")
    slurm("scancel", str(job))
    slurm.ended(job)
    assert (slurm.home / "told").read_text() == "told\n"
    slurm.nothing_left()


def digest(place: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink()):
        found.update(str(path.relative_to(place)).encode() + path.read_bytes())
    return found.hexdigest()
