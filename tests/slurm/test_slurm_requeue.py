"""A job that Slurm starts again: it goes on where it was, without the bad node, and is never left RUNNING alone."""

from __future__ import annotations

from real_slurm import Slurm, SlurmOf
from slurm_drilling import Job

from drilling import phrases

#: KillWait in seconds. Of two, a busy slurmctld needs more than the third in which it is asked about a SIGTERM.
PATIENT = 30
QUICK = ("--replace-wait", "1")
APPEND = "--open-mode=append"


def test_without_a_spare_the_job_asks_for_another_run_without_the_lost_node(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(5)
    job = Job(slurm, "-N3", APPEND, "--exclude=n1").submit(*QUICK)
    job.common_step(1)
    slurm.off("n3")
    job.wait(lambda: "requeued: attempt 2 continues" in job.printed, "the job is requeued")
    slurm.boot("n3")
    job.common_step(2)
    assert set(job.hosts(2).values()) == {"n2", "n4", "n5"}, "the user's own list is kept"
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "1")
    assert phrases(job.report) == ["NodeFailed", "Succeeded"]
    first = job.report["attempts"][0]
    assert not first["decision"]["charged"]
    said = [each["text"] for each in first["report"]["evidence"] if each["kind"] == "platform"]
    assert any(text.startswith("n3: ") for text in said), said


def test_the_node_of_the_batch_script_is_lost_and_an_agent_has_the_job_started_again(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(4)
    job = Job(slurm, "-N3", APPEND).submit("--owner-wait", "2", "--max-restarts", "0")
    job.common_step(1)
    slurm.off("n1")
    job.common_step(2)
    assert "n1" not in job.hosts(2).values()
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "1")
    assert phrases(job.report) == ["NodeFailed", "Succeeded"]
    assert "n1 is DOWN" in job.report["attempts"][0]["report"]["reason"]


def test_a_job_that_may_not_be_started_again_is_ended_by_an_agent(slurm: Slurm) -> None:
    job = Job(slurm, "-N3", "--no-requeue").submit("--owner-wait", "2")
    job.common_step(1)
    slurm.off("n1")
    assert job.ended()["JobState"] == "CANCELLED"


def test_where_slurm_may_not_start_it_again_the_lost_node_ends_the_job(slurm: Slurm) -> None:
    job = Job(slurm, "-N3", "--no-requeue").submit(*QUICK)
    job.common_step(1)
    slurm.off("n3")
    assert job.ended()["JobState"] == "FAILED"
    assert phrases(job.report) == ["NodeFailed"]
    assert "not queued again: Slurm's Requeue=0" in job.printed


def test_runs_of_one_node_go_on_with_numbers_and_history(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=PATIENT)
    job = Job(slurm, "-N1", APPEND).submit("--nproc-per-node", "2", "--max-restarts", "0")
    for attempt in (1, 2):
        job.common_step(attempt, ranks=2)
        slurm("scontrol", "requeue", str(job.id))
    job.common_step(3, ranks=2)
    job.finish()
    record = job.ended()
    assert (record["JobState"], record["Restarts"]) == ("COMPLETED", "2")
    assert phrases(job.report) == ["StoppedByOperator", "StoppedByOperator", "Succeeded"]


#: The guard looks up 0.8 s after it got SIGTERM, and the supervisor has none of its own: as on a machine without a free
#: core.
LATE = """
import signal, sys, time
def late(numbers, heard=signal.sigwaitinfo):
    found = heard(numbers)
    if found.si_signo == signal.SIGTERM:
        time.sleep(0.8)
    return found
def deaf(how, numbers, mask=signal.pthread_sigmask):
    return mask(how, {*numbers} - {signal.SIGTERM} if how == signal.SIG_UNBLOCK else numbers)
if sys.argv[0].endswith("/holdfast"):
    signal.sigwaitinfo, signal.pthread_sigmask = late, deaf
"""


def test_workers_that_slurms_signal_ends_before_holdfast_has_it_are_not_to_blame(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=PATIENT)
    (slurm.home / "late").mkdir()
    (slurm.home / "late" / "sitecustomize.py").write_text(LATE)
    job = Job(slurm, "-N1", APPEND)
    job.submit("--nproc-per-node", "2", "--max-restarts", "0", before=f"export PYTHONPATH={slurm.home}/late")
    job.common_step(1, ranks=2)
    slurm("scontrol", "requeue", str(job.id))
    job.common_step(2, ranks=2)
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"
    assert phrases(job.report) == ["StoppedByOperator", "Succeeded"]


def test_a_state_directory_that_is_not_shared_is_told_of(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=PATIENT)
    job = Job(slurm, "-N1", APPEND).submit(before="export HOLDFAST_HOME=/var/tmp/holdfast")
    job.common_step(1)
    first = job.hosts(1)[0]
    slurm("scontrol", "requeue", str(job.id))
    job.wait(lambda: slurm.job(job.id)["JobState"] == "PENDING", "it waits")
    slurm("scontrol", "update", f"jobid={job.id}", f"excnodelist={first}")
    job.wait(lambda: "knows no run of it before" in job.printed, "the job says so")
    assert "set HOLDFAST_HOME to a directory that all nodes share" in job.printed
    slurm("scancel", str(job.id))
    job.ended()


def test_a_finished_job_is_not_taken_over(slurm: Slurm) -> None:
    job = Job(slurm, "-N1", APPEND).submit()
    job.common_step(1)
    job.finish()
    job.ended()
    slurm("scontrol", "requeue", str(job.id))
    job.wait(lambda: job.printed.count("SUCCEEDED") == 2, "it has run once more")
    job.ended()
    assert phrases(job.report) == ["Succeeded"]
    assert "goes on after" not in job.printed


def test_a_requeue_that_is_wanted_while_slurmctld_is_away_comes_later(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(4)
    job = Job(slurm, "-N3", APPEND).submit(*QUICK)
    job.common_step(1)
    slurm.ctld_kill()
    job.common_step(1)
    slurm.off("n3")
    job.wait(lambda: "decision: restart 1 of 20" in job.printed, "the node is lost")
    slurm.ctld_start()
    job.common_step(2)
    assert "n3" not in job.hosts(2).values()
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"


def test_a_job_that_needs_all_nodes_of_its_partition_gets_the_lost_one_again(slurm: Slurm) -> None:
    job = Job(slurm, "-N3", APPEND).submit(*QUICK)
    job.common_step(1)
    slurm.off("n3")
    job.wait(lambda: "Slurm may give the job n3 again" in job.printed, "it says so")
    slurm.boot("n3")
    job.common_step(2)
    assert set(job.hosts(2).values()) == {"n1", "n2", "n3"}
    job.finish()
    assert job.ended()["JobState"] == "COMPLETED"


def test_jobs_and_show_have_it_as_queued_and_stop_takes_it_out_of_the_queue(slurm: Slurm) -> None:
    job = Job(slurm, "-N3", APPEND).submit(*QUICK)
    job.common_step(1)
    slurm.off("n3")
    job.wait(lambda: slurm.job(job.id)["JobState"] == "PENDING", "there is no third node")

    def told(*words: str) -> str:
        asked = slurm.holdfast(*words)
        assert asked.wait() == 0, asked.err
        return asked.out

    assert "queued" in told("jobs")
    assert "attempt 2, when its platform starts it again" in told("show", str(job.id))
    assert "taken out of the queue" in told("stop", str(job.id), "--reason", "enough")
    assert job.ended()["JobState"] == "CANCELLED"
    assert "stopped" in told("jobs")
