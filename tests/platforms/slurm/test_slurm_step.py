"""What srun is given, and what its words mean."""

from __future__ import annotations

import pytest

from holdfast.platforms.slurm.text.srun_command import (
    SrunLine,
    environment_in_step,
    environment_of_srun,
    failure,
    is_noise,
    kept_back,
    meaning,
    step_command,
)

INSIDE_SBATCH = {
    "PATH": "/bin",
    "SLURM_JOB_ID": "7",
    "SLURM_CONF": "/etc/slurm.conf",
    "SLURM_NTASKS": "16",
    "SLURM_MEM_PER_CPU": "100",
    "SRUN_CPUS_PER_TASK": "4",
    "HOLDFAST_REPORT": "report.json",
    "HOLDFAST_GRACE": "5",
}


def test_what_a_user_asked_sbatch_for_changes_no_step_of_the_agents() -> None:
    found = environment_of_srun(INSIDE_SBATCH)
    assert found == {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf", "HOLDFAST_GRACE": "5"}


def test_a_worker_sees_the_options_of_the_batch_script_and_not_those_of_the_agents_step() -> None:
    there = {"PATH": "/bin", "SLURM_PROCID": "2", "SLURM_CPU_BIND": "none", "SLURM_NTASKS": "3"}
    assert environment_in_step(kept_back(INSIDE_SBATCH), there) == {
        "PATH": "/bin",
        "SLURM_PROCID": "2",
        "SLURM_NTASKS": "16",
        "SLURM_MEM_PER_CPU": "100",
        "SRUN_CPUS_PER_TASK": "4",
    }


def test_one_step_has_one_agent_a_node_and_all_of_the_job() -> None:
    words = step_command("7", 3, "/venv/bin/python")
    assert words[0] == "srun"
    assert words[-5:] == ("/venv/bin/python", "-P", "-m", "holdfast", "agent")
    assert {"--nodes=3", "--ntasks=3", "--overlap", "--mem=0", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"} <= {
        *words
    }
    assert not any(word.startswith("--nodelist") for word in words)
    assert "--nodelist=n2,n3" in step_command("7", 2, "/python", only=("n2", "n3"))
    assert not any(word.startswith("--gpus") for word in words)
    assert "--gpus-per-node=8" in step_command("7", 2, "/python", gpus=8)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun: error: n2: task 1: Killed", SrunLine(nodes=("n2",), killed=True, words="Killed")),
        (
            "srun: error: n[2-3]: tasks 1-2: Out Of Memory",
            SrunLine(nodes=("n2", "n3"), killed=True, words="Out Of Memory"),
        ),
        ("srun: error: n1: task 0: Exited with exit code 2", SrunLine(nodes=("n1",), words="Exited with exit code 2")),
        ("srun: error: Node failure on n3", SrunLine(nodes=("n3",), lost=True, words="Node failure")),
        ("srun: error: Node failure on n[3", None),
        ("srun: error: Unable to create step for job 7: Job has ended", None),
        ("[worker-1] srun: error: Node failure on n3", None),
    ],
)
def test_a_line_of_srun_tells_of_tasks_and_nodes(line: str, said: SrunLine | None) -> None:
    assert meaning(line) == said


def test_what_has_no_use_for_a_person_is_left_out() -> None:
    assert is_noise("srun: cluster configuration lacks support for cpu binding")
    assert not is_noise("srun: error: Unable to create step for job 7: Job has ended")


@pytest.mark.parametrize(
    ("line", "words", "final"),
    [
        (
            "srun: error: Unable to create step for job 7: Job/step already completing or completed",
            "the job has ended, or Slurm is ending it",
            True,
        ),
        ("srun: error: Slurm job 7 has expired", "the job has ended, or Slurm is ending it", True),
        (
            "srun: error: Unable to create step for job 7: Requested node configuration is not available",
            "Slurm has no such step for the nodes of this job",
            True,
        ),
        (
            'srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
            "Slurm's authentication does not work on this machine",
            False,
        ),
        (
            "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller (connect failure)",
            "Slurm's controller does not answer",
            False,
        ),
        (
            "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure",
            "slurmd on a node did not start the agent",
            False,
        ),
        (
            "srun: error: Unable to create step for job 7: Insufficient GRES available in allocation",
            "the nodes of this job have unequally many GPUs",
            True,
        ),
        ("srun: fatal: something new", "srun ended with status 1: fatal: something new", False),
        ("", "srun ended with status 1 and said nothing", False),
    ],
)
def test_a_step_that_cannot_start_is_one_sentence_with_what_to_type(line: str, words: str, final: bool) -> None:
    found = failure([line] if line else [], "7", 1)
    assert found.words.startswith(words)
    assert found.final is final
    assert found.hint
    assert found.retry_may_help is ("controller" in words)
