"""What a batch script lacks: `exec`, `--no-kill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.platforms.slurm.owner.batch_script_warning import (
    asks_for_no_kill,
    dies_of_sigterm,
    has_no_kill,
    line_of_run,
)

TERM, NOTHING = "0000000000004000", "0000000000000000"


def process(proc: Path, pid: int, name: str, parent: int, caught: str = NOTHING, ignored: str = NOTHING) -> None:
    (proc / str(pid)).mkdir()
    status = f"Name:\t{name}\nPPid:\t{parent}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n"
    (proc / str(pid) / "status").write_text(status)


@pytest.mark.parametrize(
    ("chain", "dies"),
    [
        ([("slurmstepd", NOTHING), ("slurm_script", NOTHING)], True),
        ([("slurmstepd", NOTHING), ("slurm_script", TERM)], False),
        ([("slurmstepd", NOTHING)], False),
        ([("slurmstepd", NOTHING), ("slurm_script", NOTHING), ("conda", NOTHING)], False),
        ([("sshd", NOTHING), ("bash", NOTHING)], False),
    ],
)
def test_a_shell_that_slurm_ends_first_is_seen(tmp_path: Path, chain: list[tuple[str, str]], dies: bool) -> None:
    process(tmp_path, 1, "systemd", 0)
    for pid, (name, caught) in enumerate([*chain, ("holdfast-guard", NOTHING)], 2):
        process(tmp_path, pid, name, pid - 1, caught)
    assert dies_of_sigterm(len(chain) + 2, tmp_path) is dies


def test_a_process_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    assert not dies_of_sigterm(42, tmp_path)


@pytest.mark.parametrize(
    ("script", "asks"),
    [
        ("#!/bin/bash\n#SBATCH -N3 --no-kill\nexec holdfast run t.py\n", True),
        ("#!/bin/bash\n#SBATCH -k\n", True),
        ("#!/bin/bash\n# a comment\n\n#SBATCH --nodes=3 # three\n#SBATCH --no-kill=off\n", False),
        ("#!/bin/bash\nmodule load cuda\n#SBATCH --no-kill\n", False),
        ("#!/bin/bash\n#SBATCH --comment='it has --no-kill in it'\n", False),
        ("", False),
    ],
)
def test_only_the_lines_that_sbatch_reads_count(script: str, asks: bool) -> None:
    assert asks_for_no_kill(script, {}) is asks


def test_a_variable_says_it_too() -> None:
    assert asks_for_no_kill("", {"SBATCH_NO_KILL": "1"})
    assert not asks_for_no_kill("", {"SBATCH_NO_KILL": "off"})
    assert has_no_kill("sbatch -N2 --no-kill 'my job.sh'")
    assert not has_no_kill("sbatch 'unfinished")


def test_the_line_that_starts_holdfast_is_named() -> None:
    assert line_of_run("#!/bin/sh\n# holdfast run\n  holdfast run t.py\n") == (3, "holdfast run t.py")
    assert line_of_run("holdfast run a.py\nholdfast run b.py\n") is None
