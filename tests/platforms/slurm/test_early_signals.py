"""Signals that come before Slurm has answered the questions of a job's start."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import children
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest
from holdfast.platforms.slurm.owner import cluster_facts, slurm_signals
from holdfast.platforms.slurm.owner.slurm_signals import SlurmSignals
from holdfast.platforms.slurm.slurm_commands import SlurmCommands
from holdfast.platforms.slurm.text.allocation import SlurmJobIds
from holdfast.reactor import Reactor
from processes import reactor

__all__ = ["reactor"]  # fixtures

#: Slurm's commands, which print what the folder has. Each waits until the file with its answer is there.
ANSWERS = """#!/bin/sh
case "$*" in
  "show config") answer=config ;;
  "show job 42") answer=job ;;
  "show partition main") answer=partition ;;
  "write batch_script 42 -") answer=script ;;
  *SubmitLine*) answer=accounting ;;
  "-n -P show qos where name=low format=Name,GraceTime,PreemptMode") answer=qos ;;
esac
until [ -e {folder}/$answer ]; do sleep 0.02; done
cat {folder}/$answer
"""
JOB = """JobId=42 JobName=train
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1
   StartTime={start} EndTime={end} Deadline=N/A
   Partition=main AllocNode:Sid=ctl:1
   TimeLimit=00:04:00
"""


class SlowSlurm:
    """The folder with the answers of a Slurm that answers when the test says so."""

    def __init__(self, folder: Path, reactor: Reactor) -> None:
        self.folder, self.reactor = folder, reactor
        for name in ("scontrol", "sacct", "sacctmgr"):
            (folder / name).write_text(ANSWERS.format(folder=folder))
            (folder / name).chmod(0o755)
        self.asking = SlurmCommands(reactor, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        self.lines: list[str] = []
        ids = SlurmJobIds(job=42, shown="42", node="n1", restarts=0, in_step=True)
        self.signals = SlurmSignals(self.asking, ids, 30.0, self.lines.append, lambda: False)
        self.began = time.time()
        self.signals.begin(self.began)

    def answer(self, name: str, text: str) -> None:
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / name)

    def answer_job(self, state: str = "RUNNING") -> None:
        self.answer("job", JOB.format(state=state, start=int(self.began), end=int(self.began) + 240))

    def stop(self) -> StopRequest:
        """Wait for the request to stop, which the owner gets."""
        found: list[ev.Event] = []
        until = time.monotonic() + 60
        while time.monotonic() < until and not found:
            self.reactor.wait(lambda news: found.extend(news or ()), longest_s=1.0)
        assert found, f"no request to stop: {self.lines}"
        assert isinstance(found[0], ev.StopRequested)
        return found[0].request

    def learn(self) -> None:
        """Wait until the configuration and the partition are known."""
        until = time.monotonic() + 60
        while not self.signals._known.preemptable:
            assert time.monotonic() < until
            self.reactor.wait(longest_s=0.2)

    def close(self) -> None:
        self.signals.close()
        self.asking.close()
        while children.helpers():
            self.reactor.wait()  # the commands that still ran are reaped when they have died


@pytest.fixture
def slow(tmp_path: Path, reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowSlurm]:
    monkeypatch.setattr(cluster_facts, "ACCOUNTED_S", 0.1)
    monkeypatch.setattr(cluster_facts, "MOST_SACCT", 1000)
    monkeypatch.setattr(slurm_signals, "OPTIONS_S", 600.0)
    found = SlowSlurm(tmp_path, reactor)
    yield found
    found.close()


CONFIG = "AccountingStorageType   = {}\nKillWait                = 30 sec\nPreemptMode             = OFF\n"
WITH_ACCOUNTING = CONFIG.format("accounting_storage/slurmdbd")
WITHOUT = CONFIG.format("(null)")
ORDERED = "sbatch --signal=B:{}@200 --time=4 train.sh\n"
PARTITION = "PartitionName=main\n   GraceTime=0 PreemptMode=OFF\n"
SCRIPT = "#!/bin/bash\nexec holdfast run train.py\n"


@pytest.mark.real
@pytest.mark.parametrize("name", ["USR1", "USR2", "TERM"])
def test_a_signal_before_accounting_knows_the_command_line_is_still_the_warning(slow: SlowSlurm, name: str) -> None:
    for answer, text in (("config", WITH_ACCOUNTING), ("script", SCRIPT), ("partition", PARTITION)):
        slow.answer(answer, text)
    slow.answer_job()
    number = signal.Signals[f"SIG{name}"]
    assert not slow.signals.signalled(number, "n1", time.time())
    slow.answer("accounting", "")  # accounting does not know the job yet
    slow.reactor.at(time.time() + 1, lambda now: slow.answer("accounting", ORDERED.format(name)))
    request = slow.stop()
    assert request.reason.startswith("Slurm's time limit of 0:04:00 (job 42) is over at "), request.reason
    assert request.phrase == "TimeLimitReached"
    assert not slow.signals.asking


@pytest.mark.real
@pytest.mark.parametrize("name", ["USR1", "TERM"])
@pytest.mark.parametrize("late", ["config", "script", "job", "partition"])
def test_a_signal_before_an_answer_to_the_first_queries_is_still_the_warning(
    slow: SlowSlurm, name: str, late: str
) -> None:
    script = f"#!/bin/bash\n#SBATCH --signal=B:{name}@200\nexec holdfast run train.py\n"
    number = signal.Signals[f"SIG{name}"]
    answers = {"config": WITHOUT, "script": script, "partition": PARTITION}
    if late != "job":
        slow.answer_job()
    for answer, text in answers.items():
        if answer != late:
            slow.answer(answer, text)
    assert not slow.signals.signalled(number, "n1", time.time())
    due = time.time() + 1
    slow.reactor.at(due, lambda now: slow.answer_job() if late == "job" else slow.answer(late, answers[late]))
    assert slow.stop().reason.startswith("Slurm's time limit of 0:04:00 (job 42) is over at ")


@pytest.mark.real
def test_a_sigterm_that_nobody_ordered_stops_the_job_as_soon_as_that_is_known(slow: SlowSlurm) -> None:
    for answer, text in (("config", WITHOUT), ("partition", PARTITION)):
        slow.answer(answer, text)
    slow.answer_job()
    slow.signals.signalled(signal.SIGTERM, "n1", time.time())
    slow.reactor.at(time.time() + 1, lambda now: slow.answer("script", SCRIPT))
    assert slow.stop().reason.startswith("scancel --signal=TERM of job 42")


@pytest.mark.real
def test_a_sigterm_waits_no_longer_than_its_limit(slow: SlowSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_signals, "OPTIONS_S", 1.0)
    slow.answer_job()
    slow.signals.signalled(signal.SIGTERM, "n1", time.time())
    assert slow.stop().reason.startswith("scancel --signal=TERM of job 42")


@pytest.mark.real
def test_a_scancel_does_not_wait_for_what_the_user_ordered(slow: SlowSlurm) -> None:
    slow.answer_job()
    slow.signals.signalled(signal.SIGTERM, "n1", time.time())
    slow.reactor.at(time.time() + 1, lambda now: slow.answer_job("COMPLETING"))
    slow.reactor.at(time.time() + 1.2, lambda now: slow.signals.signalled(signal.SIGTERM, "n1", now))
    assert slow.stop().reason == "scancel of job 42"


@pytest.mark.real
def test_a_signal_for_the_workers_is_not_kept(slow: SlowSlurm) -> None:
    """It was sent by hand. Once all is known, the job's real end is judged by itself."""
    for answer, text in (("config", WITHOUT), ("partition", PARTITION)):
        slow.answer(answer, text)
    slow.answer_job()
    slow.signals.signalled(signal.SIGUSR2, "n1", time.time())
    slow.answer("script", f"#!/bin/bash\n#SBATCH --signal=B:USR1@200\n{SCRIPT}")
    slow.reactor.at(time.time() + 1, lambda now: slow.answer_job("COMPLETING"))
    slow.reactor.at(time.time() + 1.2, lambda now: slow.signals.signalled(signal.SIGTERM, "n1", now))
    assert slow.stop().reason == "scancel of job 42"


@pytest.mark.real
def test_a_job_that_slurm_ends_already_at_the_first_look_was_cancelled(slow: SlowSlurm) -> None:
    """The signal came before any process of holdfast's could receive it."""
    slow.answer_job("COMPLETING")
    request = slow.stop()
    assert (request.reason, request.phrase) == ("scancel of job 42", "StoppedByOperator")


BY_QOS = "KillWait = 30 sec\nPreemptMode = REQUEUE\nPreemptType = preempt/qos\n"


@pytest.mark.real
@pytest.mark.parametrize(
    ("preempt_type", "qos", "grace_s"),
    [
        ("preempt/qos", "low|00:01:30|cluster\n", 90),
        ("preempt/qos", "low|00:01:30|requeue\n", 90),
        ("preempt/qos", "low|00:01:30\n", 90),
        ("preempt/qos", "low|00:01:30|OFF\n", 0),
        ("preempt/qos", "low||cluster\n", 0),
        ("preempt/qos", "", 0),
        ("preempt/partition_prio", "low|00:01:30|cluster\n", 20),
    ],
)
def test_the_qos_gives_the_grace_time_where_slurm_preempts_by_qos(
    slow: SlowSlurm, preempt_type: str, qos: str, grace_s: float
) -> None:
    slow.answer("config", BY_QOS.replace("preempt/qos", preempt_type))
    slow.answer("partition", "PartitionName=main\n   GraceTime=20 PreemptMode=REQUEUE\n")
    slow.answer("script", SCRIPT)
    slow.answer("qos", qos)
    unlimited = JOB.replace("TimeLimit=00:04:00", "TimeLimit=UNLIMITED QOS=low")
    begun = int(slow.began)
    slow.answer("job", unlimited.format(state="RUNNING", start=begun, end="Unknown"))
    until = time.monotonic() + 3
    while time.monotonic() < until:
        slow.reactor.wait(lambda news: None, longest_s=0.2)
    at = int(time.time())
    preempted = f"{unlimited}   PreemptEligibleTime={begun} PreemptTime={at}\n"
    slow.answer("job", preempted.format(state="RUNNING", start=begun, end="Unknown"))
    slow.signals.signalled(signal.SIGTERM, "n1", time.time())
    request = slow.stop()
    assert request.reason.startswith("Slurm preempts job 42: another job gets the nodes")
    if grace_s:
        assert request.within_s is not None and 0.6 * grace_s < request.within_s <= grace_s
    else:
        assert "soon" in request.reason


@pytest.mark.real
@pytest.mark.parametrize(
    ("why", "phrase"), [("JOB REQUEUE", "StoppedByOperator"), ("PREEMPTION", "Preempted"), ("", "Preempted")]
)
def test_slurmstepds_line_about_the_script_is_waited_for(
    slow: SlowSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, phrase: str
) -> None:
    """A busy node writes it after the signal. Without accounting nothing else tells a preemption from a requeue."""
    if not why:
        monkeypatch.setattr(slurm_signals, "LINE_WAIT_S", 0.5)
    log = tmp_path / "slurm-42.out"

    def write(text: str) -> None:
        log.write_text(text)

    write("step 1\n")
    config = WITHOUT.replace("= OFF", "= REQUEUE") + "PreemptType             = preempt/partition_prio\n"
    for answer, text in (("config", config), ("partition", PARTITION.replace("OFF", "REQUEUE")), ("script", SCRIPT)):
        slow.answer(answer, text)
    slow.answer_job()
    slow.learn()
    again = (
        JOB.replace("Restarts=0", "Restarts=1")
        .replace("   Partition", f"   StdErr={log}\n   Partition")
        .replace("JobState={state}", "JobState=COMPLETING")
    )
    slow.answer("job", again.format(start=int(slow.began), end=int(slow.began) + 240))
    at = time.time()
    slow.signals.signalled(signal.SIGTERM, "n1", at)
    written = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    line = f"slurmstepd-n1: error: *** JOB 42 ON n1 CANCELLED AT {written} DUE TO {why} ***\n"
    if why:
        slow.reactor.at(at + 1.0, lambda now: write(f"step 1\n{line}"))
    request = slow.stop()
    assert (request.phrase, request.requeue) == (phrase, True), request.reason
    assert ("no accounting tells which" in request.reason) is (not why)
