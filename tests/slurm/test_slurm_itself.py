"""The cluster of the tests does what a cluster does, and leaves nothing."""

from __future__ import annotations

from real_slurm import USER, Slurm, SlurmOf, fields
from slurm_drilling import ACCOUNTING

from leftovers import living


def test_a_job_runs_on_all_nodes_each_of_which_has_files_of_its_own(slurm: Slurm) -> None:
    job = slurm.sbatch("srun sh -c 'hostname > /var/tmp/mine; cat /var/tmp/mine'", "-N3")
    record = slurm.ended(job)
    assert (record["JobState"], record["ExitCode"]) == ("COMPLETED", "0:0")
    assert sorted(slurm.output(job).split()) == ["n1", "n2", "n3"]


def test_power_links_and_slurmd_go_and_come_back(slurm: Slurm) -> None:
    job = slurm.sbatch("sleep 600", "-w", "n2", "--no-requeue")
    slurm.wait_state(job, "RUNNING")
    slurm.killd("n1")
    slurm.off("n2")
    slurm.cut("n3")
    assert slurm.ended(job)["JobState"] == "NODE_FAIL"
    slurm.wait(lambda: not slurm.idle(), "no node answers")
    slurm.startd("n1")
    slurm.boot("n2")
    slurm.join("n3")
    slurm.wait(lambda: slurm.idle() == {"n1", "n2", "n3"}, "all are back")


def test_a_job_lives_on_while_slurmctld_is_dead(slurm: Slurm) -> None:
    job = slurm.sbatch("while [ ! -e go ]; do sleep 0.1; done")
    slurm.wait_state(job, "RUNNING")
    slurm.ctld_kill()
    slurm.ctld_start()
    (slurm.home / "go").touch()
    assert slurm.ended(job)["JobState"] == "COMPLETED"


def test_an_ordinary_user_has_a_cluster_of_his_own(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(flat=True)
    job = slurm.sbatch("srun python -c 'import holdfast, os; print(os.getuid())'", "-N3")
    assert slurm.ended(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert slurm.output(job).split() == [str(USER)] * 3


def test_an_ordinary_user_submits_to_the_cluster_of_root(slurm: Slurm) -> None:
    job = slurm.sbatch("id -u", user=USER)
    assert slurm.ended(job)["UserId"] == f"ada({USER})"
    assert slurm.output(job) == f"{USER}\n"


def test_a_process_that_no_job_owns_any_more_is_found(slurm: Slurm) -> None:
    job = slurm.sbatch("echo")
    slurm.ended(job)
    stray = slurm.start("sleep", "600", on="n2")
    slurm.wait(lambda: [line for line in slurm.left() if line.startswith("n2:") and "sleep 600" in line], "it is seen")
    stray.send(9)


def test_a_cluster_that_ends_leaves_neither_process_nor_file(slurm_of: SlurmOf) -> None:
    with Slurm(2, token="HF_TEST_ENDS") as slurm:
        job = slurm.sbatch("sleep 600")
        slurm.wait_state(job, "RUNNING")
    assert not living("HF_TEST_ENDS") and not slurm.place.exists()


def test_a_memory_limit_is_kept_by_a_cgroup(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(nodes=1, cgroup=True)
    eats = "python3 -c 'x = bytearray(500 << 20)'"
    job = slurm.sbatch(f"srun {eats}", "--mem=100")
    assert slurm.ended(job)["JobState"] in ("OUT_OF_MEMORY", "FAILED")
    assert "Out Of Memory" in slurm.output(job)


def test_sacct_has_each_run_of_a_job(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(**ACCOUNTING)
    job = slurm.sbatch("exit 3")
    slurm.ended(job)
    slurm.wait(lambda: any(row["ExitCode"] == "3:0" for row in slurm.sacct(job)), "sacct has the status")


def test_a_record_of_scontrol_is_read_field_by_field() -> None:
    record = fields("JobId=7 JobName=a b UserId=ada(1500) Comment= Reason=Not responding [root@2026] TRES=cpu=4,mem=1G")
    assert record["JobName"] == "a b" and record["Comment"] == "" and record["TRES"] == "cpu=4,mem=1G"
