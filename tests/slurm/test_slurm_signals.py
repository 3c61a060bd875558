"""A real Slurm ends a job, or wants to: holdfast says which it was, and workers that listen save before that."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from real_slurm import Slurm, SlurmOf
from slurm_drilling import ACCOUNTING, PREEMPTION, WITHOUT_GRACE, Job

TRAINER = """
import json, os, pathlib, sys, threading, time
import holdfast
rank, attempt = os.environ["RANK"], os.environ["HOLDFAST_ATTEMPT"]
if attempt != "1":
    sys.exit(0)
told = threading.Event()
def save(notice):
    pathlib.Path(f"told-{rank}.new").write_text(json.dumps(notice))
    os.rename(f"told-{rank}.new", f"told-{rank}")
    time.sleep(SAVE_S)
    pathlib.Path(f"saved-{rank}").write_text(attempt)
    told.set()
holdfast.on_drain(save)
pathlib.Path(f"up-{rank}").touch()
told.wait()
sys.exit(0)
"""
DEAF = "import os, pathlib, time\npathlib.Path('up-' + os.environ['RANK']).touch()\ntime.sleep(600)\n"


@pytest.fixture
def patient(slurm_of: SlurmOf) -> Slurm:
    """A cluster that preempts, and that waits 10 s before it kills."""
    return slurm_of(lines=PREEMPTION, kill_wait_s=10)


class Listening:
    """A job whose ranks save when they get their notice."""

    def __init__(
        self, slurm: Slurm, nodes: int, *sbatch: str, trainer: str = "", save_s: float = 0.2, run: str = ""
    ) -> None:
        self.slurm, self.ranks = slurm, range(nodes)
        self.dir = slurm.home / f"listening-{len(slurm.jobs)}"
        self.dir.mkdir()
        (self.dir / "train.py").write_text(trainer or TRAINER.replace("SAVE_S", str(save_s)))
        self.said = self.dir / "report.json"
        words = run or f"exec holdfast run --no-checks --report {self.said} --nproc-per-node 1 train.py"
        output = ("--open-mode=append", f"--output={slurm.home}/slurm-%j.out", f"--chdir={self.dir}")
        self.id = slurm.sbatch(words.replace("REPORT", str(self.said)), "--no-kill", *output, f"-N{nodes}", *sbatch)

    def begun(self) -> None:
        """Until the owner has its journal."""
        self.slurm.wait(lambda: "logs in" in self.slurm.output(self.id), "it has begun")

    def up(self) -> Listening:
        """Until all ranks are up."""
        self.slurm.wait(lambda: all(self.file("up", rank).exists() for rank in self.ranks), "all ranks are up")
        return self

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.said.read_text())
        return found

    def told(self) -> list[dict[str, Any]]:
        """What each rank was told, once all have saved."""
        self.slurm.wait(lambda: all(self.file("saved", rank).exists() for rank in self.ranks), "all ranks have saved")
        return [json.loads(self.file("told", rank).read_text()) for rank in self.ranks]

    def file(self, name: str, rank: int) -> Path:
        return self.dir / f"{name}-{rank}"

    def ended(self) -> str:
        """The state of Slurm's record."""
        state: str = self.slurm.ended(self.id)["JobState"]
        self.slurm.nothing_left()
        return state


def preempt(slurm: Slurm) -> None:
    """Another job gets all nodes."""
    slurm.jobs.append(int(slurm("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true")))


def on_one_and_two_nodes(slurm: Slurm, *sbatch: str, trainer: str = "") -> list[Listening]:
    """Two jobs at once: one of one node has no step for its agents."""
    jobs = [Listening(slurm, nodes, *sbatch, trainer=trainer) for nodes in (1, 2)]
    return [job.up() for job in jobs]


def test_scancel(patient: Slurm) -> None:
    jobs = on_one_and_two_nodes(patient)
    patient("scancel", *(str(job.id) for job in jobs))
    for job in jobs:
        assert {notice["reason"] for notice in job.told()} == {f"scancel of job {job.id}"}
        assert all(0 < notice["seconds"] < 10 for notice in job.told())
    for job in jobs:
        assert job.ended() == "CANCELLED"
        assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
        assert job.report["collateral"] == []


def test_scancel_before_the_first_worker_is_up_is_the_operators(patient: Slurm) -> None:
    """The agents of the job over two nodes get no step any more."""
    jobs = [Listening(patient, nodes) for nodes in (1, 2)]
    for job in jobs:
        job.begun()
        patient("scancel", str(job.id))
    for job in jobs:
        assert job.ended() == "CANCELLED"
        assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")


def test_under_cgroups_only_holdfast_gets_the_signal_and_the_workers_still_save(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=10, cgroup=True)
    job = Listening(slurm, 2, "--mem=1500").up()
    slurm("scancel", str(job.id))
    job.told()
    assert job.ended() == "CANCELLED"
    assert job.report["reason"] == f"scancel of job {job.id}"


def test_ranks_that_die_of_slurms_own_sigterm_are_not_to_blame(patient: Slurm) -> None:
    """Without cgroups it reaches them before holdfast can say anything."""
    jobs = on_one_and_two_nodes(patient, trainer=DEAF)
    patient("scancel", *(str(job.id) for job in jobs))
    for job in jobs:
        assert job.ended() == "CANCELLED"
        assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
        assert job.report["collateral"] == list(job.ranks)
        assert job.report["original"]["signal"] == "SIGTERM"


def test_the_report_is_there_before_slurm_kills_what_does_not_leave(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(kill_wait_s=5)
    job = Listening(slurm, 2, save_s=600).up()
    slurm("scancel", str(job.id))
    assert job.ended() == "CANCELLED"
    assert (job.report["phrase"], job.report["reason"]) == ("StoppedByOperator", f"scancel of job {job.id}")
    assert not any(job.file("saved", rank).exists() for rank in job.ranks)


def test_scancel_with_a_signal_leaves_the_job_to_itself(slurm: Slurm) -> None:
    job = Listening(slurm, 2).up()
    slurm("scancel", "--signal=TERM", str(job.id))
    assert job.ended() == "FAILED"
    assert job.report["phrase"] == "StoppedByOperator"
    assert job.report["reason"].startswith(f"scancel --signal=TERM of job {job.id}")


def test_a_signal_for_the_workers_goes_to_those_that_handle_it(slurm: Slurm) -> None:
    handles = """
import os, pathlib, signal, time
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("got-0").write_text("1"))
else:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
pathlib.Path("up-" + os.environ["RANK"]).touch()
while not pathlib.Path("got-0").exists():
    time.sleep(0.05)
"""
    job = Listening(slurm, 2, trainer=handles).up()
    slurm("scancel", "--signal=USR1", str(job.id))
    assert job.ended() == "COMPLETED"


def test_a_preemption_with_a_grace(patient: Slurm) -> None:
    """Each hears of it by a step that only listens."""
    jobs = on_one_and_two_nodes(patient, "-p", "low", "--no-requeue")
    listens = ("squeue", "-h", "-s", "-o", "%j")
    patient.wait(lambda: patient(*listens).count("holdfast-listens") == 2, "a step of each listens")
    preempt(patient)
    for job in jobs:
        for notice in job.told():
            assert notice["reason"].startswith(f"Slurm preempts job {job.id}: another job gets the nodes at ")
            assert 0 < notice["seconds"] < 15
    for job in jobs:
        job.ended()
        assert job.report["phrase"] == "Preempted"


def test_a_preemption_of_a_job_without_a_time_limit_gives_the_partitions_grace(slurm_of: SlurmOf) -> None:
    """Its record has no EndTime: Slurm moves that of a job with a limit only."""
    lines = [line.replace("GraceTime=15 MaxTime=1-0", "GraceTime=90 MaxTime=INFINITE") for line in PREEMPTION]
    slurm = slurm_of(lines=lines, kill_wait_s=10)
    job = Listening(slurm, 1, "-p", "low", "--no-requeue", "--time=UNLIMITED").up()
    slurm.wait(lambda: "holdfast-listens" in slurm("squeue", "-h", "-s", "-o", "%j"), "a step listens")
    assert "TimeLimit=UNLIMITED" in slurm("scontrol", "show", "job", str(job.id))
    preempt(slurm)
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm preempts job {job.id}: another job gets the nodes at ")
        assert 10 < notice["seconds"] < 90, "more than KillWait alone would give"
    job.ended()
    assert job.report["phrase"] == "Preempted"


def test_a_checkpoint_in_the_last_seconds_before_a_time_limit(patient: Slurm) -> None:
    jobs = on_one_and_two_nodes(patient, "--time=1")
    for job in jobs:
        for notice in job.told():
            assert notice["reason"].startswith(f"Slurm's time limit of 0:01:00 (job {job.id}) is over at ")
            assert 0 < notice["seconds"] < 30
    for job in jobs:
        job.ended()
        assert (job.report["phrase"], job.report["attempt"]) == ("TimeLimitReached", 1)


@pytest.mark.parametrize("typed", [False, True])
def test_the_signal_that_was_ordered_is_the_notice_of_the_time_limit(slurm_of: SlurmOf, typed: bool) -> None:
    """In the script, or on sbatch's command line, which accounting has."""
    slurm = slurm_of(**ACCOUNTING) if typed else slurm_of(lines=PREEMPTION, kill_wait_s=10)
    word = "--signal=B:USR1@200"
    line = "" if typed else f"#SBATCH {word}\n"
    run = f"#!/bin/bash\n{line}exec holdfast run --no-checks --report report.json train.py\n"
    job = Listening(slurm, 1, "--time=4", *([word] if typed else []), run=run).up()
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm's time limit of 0:04:00 (job {job.id}) is over at ")
        assert notice["seconds"] > 60
    job.ended()
    assert job.report["phrase"] == "TimeLimitReached"


LATE = """#!/bin/sh
until [ -e {folder}/answers ]; do sleep 0.1; done
exec /usr/bin/sacct "$@"
"""


def test_the_signal_that_was_ordered_is_the_notice_also_where_accounting_answers_later(slurm_of: SlurmOf) -> None:
    slurm = slurm_of(**ACCOUNTING)
    late = slurm.home / "late"
    late.mkdir()
    (late / "sacct").write_text(LATE.format(folder=late))
    (late / "sacct").chmod(0o755)
    run = f"export PATH={late}:$PATH\nexec holdfast run --no-checks --report REPORT train.py"
    job = Listening(slurm, 1, "--time=4", "--signal=B:USR1@200", run=run).up()
    slurm.wait(lambda: "SIGUSR1 is passed on to" in slurm.output(job.id), "the signal has come")
    (late / "answers").touch()
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm's time limit of 0:04:00 (job {job.id}) is over at ")
        assert notice["seconds"] > 60
    job.ended()
    assert job.report["phrase"] == "TimeLimitReached"


def test_a_signal_while_slurmctld_is_away_stops_the_job_and_says_what_is_not_known(slurm: Slurm) -> None:
    job = Listening(slurm, 2).up()
    slurm.ctld_kill()
    slurm("sh", "-c", "kill -TERM $(pgrep -o holdfast-guard)", on="n1")
    job.told()
    slurm.ctld_start()
    job.ended()
    assert job.report["phrase"] == "StoppedByOperator"
    assert f"job {job.id} got SIGTERM, and why is not known: slurmctld" in job.report["reason"]


def test_srun_holdfast_run_hears_of_scancel_on_each_node(patient: Slurm) -> None:
    run = "srun holdfast run --no-checks --report REPORT --nproc-per-node 1 train.py"
    job = Listening(patient, 2, run=run).up()
    patient("scancel", str(job.id))
    job.told()
    assert job.ended() == "CANCELLED"
    assert job.report["reason"] == f"scancel of job {job.id}"


def test_a_job_that_slurm_suspends_goes_on_and_says_what_stopped_it(slurm: Slurm) -> None:
    drill = Job(slurm, "-N2").submit()
    drill.common_step(1)
    slurm("scontrol", "suspend", str(drill.id))
    time.sleep(10)  # longer than a lease: no process of the job runs
    slurm("scontrol", "resume", str(drill.id))
    drill.common_step(2)
    drill.finish()
    assert drill.ended()["JobState"] == "COMPLETED"
    assert f"job {drill.id}: Slurm had suspended it until " in drill.printed
    said = [each["text"] for each in drill.report["attempts"][0]["report"]["evidence"] if each["kind"] == "platform"]
    assert any("Slurm had suspended it until" in text for text in said), said


# ---------------------------------------------------------------------------------------------- started again


def phrases(job: Listening) -> list[str]:
    return [attempt["report"]["phrase"] for attempt in job.report["attempts"]]


def saves_and_goes_on(slurm: Slurm, *sbatch: str) -> None:
    jobs = on_one_and_two_nodes(slurm, "-p", "low", "--requeue", *sbatch)
    preempt(slurm)
    for job in jobs:
        job.told()
    for job in jobs:
        assert job.ended() == "COMPLETED"
        assert phrases(job) == ["Preempted", "Succeeded"]
        assert not job.report["attempts"][0]["decision"]["charged"]


def test_a_preempted_job_saves_and_goes_on_when_it_has_nodes_again(patient: Slurm) -> None:
    saves_and_goes_on(patient)


def test_under_cgroups_a_preempted_job_saves_and_goes_on(slurm_of: SlurmOf) -> None:
    saves_and_goes_on(slurm_of(lines=PREEMPTION, kill_wait_s=10, cgroup=True), "--mem=1500")


def test_scontrol_requeue_is_an_operators_and_the_job_goes_on(patient: Slurm) -> None:
    job = Listening(patient, 2, "--requeue").up()
    patient("scontrol", "requeue", str(job.id))
    assert {notice["reason"] for notice in job.told()} == {f"scontrol requeue of job {job.id}"}
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["StoppedByOperator", "Succeeded"]


def test_at_a_time_limit_the_job_requeues_itself_where_its_user_allows_it(patient: Slurm) -> None:
    run = "exec holdfast run --no-checks --requeue-at-limit --report REPORT train.py"
    job = Listening(patient, 2, "--time=1", "--requeue", run=run).up()
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["TimeLimitReached", "Succeeded"]
    assert "in its queue again" not in patient.output(job.id), "the job has asked for it: the signals are no news"


def test_at_a_time_limit_the_job_says_why_slurm_does_not_start_it_again(patient: Slurm) -> None:
    run = "exec holdfast run --no-checks --requeue-at-limit --report REPORT train.py"
    job = Listening(patient, 1, "--time=1", "--no-requeue", run=run).up()
    patient.wait(lambda: "warning: --requeue-at-limit" in patient.output(job.id), "it says so at its start")
    job.told()
    job.ended()
    assert phrases(job) == ["TimeLimitReached"]
    assert "; not queued again: Slurm's Requeue=0 for this job" in job.report["reason"]


SLOW = """#!/bin/sh
[ "$*" = "{words}" ] && sleep 4
exec /usr/bin/scontrol "$@"
"""


@pytest.mark.parametrize("words", ["show config", "show job $SLURM_JOB_ID", "show partition low"])
def test_a_preemption_is_told_as_one_in_whatever_order_slurm_answers(patient: Slurm, words: str) -> None:
    slurm = patient
    slow = slurm.home / "slow"
    slow.mkdir()
    (slow / "scontrol").write_text(SLOW.format(words=words))
    (slow / "scontrol").chmod(0o755)
    run = f"export PATH={slow}:$PATH\nexec holdfast run --no-checks --report REPORT train.py"
    job = Listening(slurm, 1, "-p", "low", "--requeue", run=run).up()
    preempt(slurm)
    for notice in job.told():
        assert notice["reason"].startswith(f"Slurm preempts job {job.id}: another job gets the nodes at ")
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]


@pytest.mark.parametrize("db", [False, True])
def test_a_preemption_without_a_grace_is_told_from_a_requeue_by_hand(slurm_of: SlurmOf, db: bool) -> None:
    """By slurmstepd's line in the output of the batch script, or by accounting."""
    slurm = slurm_of(**ACCOUNTING) if db else slurm_of(lines=WITHOUT_GRACE, kill_wait_s=10)
    job = Listening(slurm, 2, "-p", "low", "--requeue").up()
    slurm("scontrol", "requeue", str(job.id))
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["StoppedByOperator", "Succeeded"]
    job = Listening(slurm, 2, "-p", "low", "--requeue").up()
    preempt(slurm)
    job.told()
    assert job.ended() == "COMPLETED"
    assert phrases(job) == ["Preempted", "Succeeded"]
    assert "no accounting" not in job.report["attempts"][0]["report"]["reason"]
