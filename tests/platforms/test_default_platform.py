"""Where a job goes that names no platform: to a cluster that is configured here and answers, else to this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BadUsage
from holdfast.platforms.slurm.interface import slurm_access
from holdfast.platforms.submit_request import default_platform


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for stand-ins of Slurm's commands, on a machine without a configuration of Slurm."""
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_access, "CONFIGURATION", tmp_path / "slurm.conf")
    for name in ("SLURM_CONF", "SLURM_JOB_ID", "HOLDFAST_JOB"):
        monkeypatch.delenv(name, raising=False)
    return folder


def _scontrol(folder: Path, text: str, status: int = 0) -> None:
    (folder / "scontrol").write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
    (folder / "scontrol").chmod(0o755)


def test_without_a_cluster_it_is_this_machine(commands: Path) -> None:
    _scontrol(commands, "Slurmctld(primary) at ctl is UP")
    assert default_platform({}) == ("local", "no Slurm is configured here: the job goes to this machine's queue")


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_controller_that_answers_is_taken(commands: Path, tmp_path: Path, by_variable: bool) -> None:
    _scontrol(commands, "Slurmctld(primary) at ctl is UP")
    if not by_variable:
        (tmp_path / "slurm.conf").touch()
    name, why = default_platform({"SLURM_CONF": "/x"} if by_variable else {})
    assert name == "slurm" and "is configured here and answers" in why


@pytest.mark.parametrize(("text", "status"), [("Slurmctld(primary) at ctl is DOWN", 0), ("no", 1)])
def test_one_that_does_not_answer_needs_the_users_word(commands: Path, text: str, status: int) -> None:
    _scontrol(commands, text, status)
    with pytest.raises(BadUsage, match="does not answer") as refused:
        default_platform({"SLURM_CONF": "/x"})
    assert "--platform local" in (refused.value.hint or "")


@pytest.mark.parametrize("variable", ["HOLDFAST_JOB", "SLURM_JOB_ID"])
def test_inside_a_job_the_platform_has_to_be_typed(commands: Path, variable: str) -> None:
    with pytest.raises(BadUsage, match=f"runs inside a job \\({variable}=7\\)"):
        default_platform({variable: "7"})
