"""Views: alive or dead by the lock, each loss recorded once, and a job is known by its directory alone if need be."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from builders import exit_report, failed_job, job_spec
from holdfast.errors import BadUsage
from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.model.events import Tick
from holdfast.model.exit_report import Blame, Outcome, Rerun
from holdfast.record import job_views, report_file
from holdfast.record.job_directory import JobPlace, claim, new_job_id
from holdfast.record.job_lookup import find
from holdfast.record.job_views import JobState
from holdfast.record.journal import Journal
from holdfast.record.lost_owner_report import OwnerEnd, report_of_loss
from holdfast.record.owner_lock import OwnerInfo, OwnerLiveness, OwnerLock, life_of, read_owner

ENDED_BY = exit_report(226, "AcceleratorOutOfMemory", blame=Blame.WORKLOAD, rerun=Rerun.NEVER)
SUPERVISOR = """
import os, sys, time
from pathlib import Path
from holdfast.model.gang_protocol import Member, MemberState, Report
from holdfast.model.events import AgentReported, JobSubmitted
from holdfast.model.job_spec import JobSpec, Role
from holdfast.record.job_lookup import find
from holdfast.record.journal import Journal
from holdfast.record.job_directory import claim
home = Path(sys.argv[1])
now = time.time()
place = claim(home, name="demo", now=now)
journal = Journal.open(home)
spec = JobSpec(name="demo", roles=(Role(name="worker", count=4, command=("x",)),))
journal.create_job(place.job_id, spec, now=now, host=os.uname().nodename, pid=os.getpid())
journal.append(place.job_id, now, JobSubmitted(job_id=place.job_id, spec=spec, nodes=()))
states = [MemberState.UP, MemberState.UP, MemberState.FAILED, MemberState.UP]
members = tuple(Member(rank=rank, state=state) for rank, state in enumerate(states))
journal.append(place.job_id, now + 1, AgentReported(report=Report(
    node="n", boot=1, attempt=2, stopped=1, sent=1.0, members=members)))
print(place.job_id, flush=True)
sys.stdin.readline()
"""


def _recorded_run(home: Path, name: str, now: float, *, ends: bool = True, journaled: bool = True) -> JobPlace:
    """A job of this very process, begun and perhaps ended."""
    place = claim(home, name=name, now=now)
    journal = Journal.open(home)
    if journaled:
        spec = job_spec(4, name=name)
        journal.create_job(place.job_id, spec, now=now, host=place.lock.supervisor.host, pid=os.getpid())
    if ends:
        report = failed_job(place.job_id, name, ENDED_BY)
        if journaled:
            journal.record_attempt(place.job_id, report.attempts[0])
            journal.finish(report, now=now + 60)
        report_file.write(home, report)
        place.lock.release()
    journal.close()
    return place


@pytest.mark.real
def test_a_killed_supervisor_is_found_told_and_recorded_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        alive = job_views.reconcile(tmp_path, explain_lost_owner)
        assert [(view.id, view.state) for view in alive.jobs] == [(job_id, JobState.RUNNING)]
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    lost = job_views.reconcile(tmp_path, explain_lost_owner)
    (view,) = lost.jobs
    assert (view.state, view.outcome, view.code, view.phrase) == (JobState.ENDED, "failed", 137, "KilledBySignal")
    (report,) = lost.newly_lost
    assert f"holdfast itself (pid {process.pid} on " in report.report.reason
    assert "attempt 2, ranks 0, 1 and 3 up, rank 2 failed" in report.report.reason
    assert [record.attempt for record in report.attempts] == [2]
    again = job_views.reconcile(tmp_path, explain_lost_owner)
    assert again.newly_lost == ()
    assert job_views.detail(again, again.jobs[0]).report == report
    on_disk = json.loads((tmp_path / "jobs" / job_id / "report.json").read_text())
    assert (on_disk["schema"], on_disk["outcome"], on_disk["code"]) == ("holdfast.report/1", "failed", 137)


def test_jobs_are_listed_newest_first_and_a_name_means_its_newest(tmp_path: Path) -> None:
    first = _recorded_run(tmp_path, "train", 1000.0)
    second = _recorded_run(tmp_path, "train", 2000.0)
    other = _recorded_run(tmp_path, "serve", 1500.0)
    survey = job_views.reconcile(tmp_path, explain_lost_owner)
    assert [view.id for view in survey.jobs] == [second.job_id, other.job_id, first.job_id]
    assert find(survey, "train").id == second.job_id
    assert find(survey, first.job_id).id == first.job_id
    assert [view.ended for view in survey.jobs] == [2060.0, 1560.0, 1060.0]


@pytest.mark.parametrize("name", ["a" * 256, "..", "../../etc", ""])
def test_a_row_whose_id_can_be_no_directory_is_left_out(tmp_path: Path, name: str) -> None:
    good, bad = _recorded_run(tmp_path, "good", 1000.0), _recorded_run(tmp_path, "bad", 2000.0)
    db = sqlite3.connect(tmp_path / "holdfast.db")
    db.execute("UPDATE jobs SET id = ? WHERE id = ?", (name, bad.job_id))
    db.commit()
    db.close()
    seen = [view.id for view in job_views.reconcile(tmp_path, explain_lost_owner).jobs]
    assert name not in seen and good.job_id in seen


def test_an_unknown_job_is_bad_usage_with_the_nearest_names(tmp_path: Path) -> None:
    _recorded_run(tmp_path, "train-large", 1000.0)
    with pytest.raises(BadUsage, match=r"no job `trian-large`.*nearest.*`train-large`") as caught:
        find(job_views.reconcile(tmp_path, explain_lost_owner), "trian-large")
    assert caught.value.exit_status == 2 and caught.value.hint == "holdfast jobs"
    with pytest.raises(BadUsage, match="remembers no job at all"):
        find(job_views.reconcile(tmp_path / "empty", explain_lost_owner), "x")


def test_a_job_the_journal_never_saw_is_known_by_its_directory(tmp_path: Path) -> None:
    running = _recorded_run(tmp_path, "now", 2000.0, ends=False, journaled=False)
    ended = _recorded_run(tmp_path, "then", 1000.0, journaled=False)
    survey = job_views.reconcile(tmp_path, explain_lost_owner)
    assert [(view.id, view.name, view.state) for view in survey.jobs] == [
        (running.job_id, "now", JobState.RUNNING),
        (ended.job_id, "then", JobState.ENDED),
    ]
    assert job_views.detail(survey, survey.jobs[1]).report == report_file.read(tmp_path, ended.job_id)
    running.lock.release()


def test_a_damaged_journal_still_lists_what_directories_tell(tmp_path: Path) -> None:
    place = _recorded_run(tmp_path, "demo", 1000.0)
    (tmp_path / "holdfast.db").write_bytes(os.urandom(9000))
    survey = job_views.reconcile(tmp_path, explain_lost_owner)
    assert "is damaged" in survey.trouble and "from the job directories alone" in survey.trouble
    (view,) = survey.jobs
    assert (view.id, view.outcome, view.phrase) == (place.job_id, "failed", "AcceleratorOutOfMemory")
    detail = job_views.detail(survey, view)
    assert detail.report is not None and detail.report.attempts[0].report.phrase == "AcceleratorOutOfMemory"


def test_an_end_that_only_reached_its_file_is_taken_over_as_it_is(tmp_path: Path) -> None:
    place = _recorded_run(tmp_path, "demo", 1000.0, ends=False)
    report_file.write(tmp_path, failed_job(place.job_id, report=ENDED_BY))
    place.lock.release()
    survey = job_views.reconcile(tmp_path, explain_lost_owner)
    assert survey.newly_lost == (), "it had a report of its own"
    assert (survey.jobs[0].phrase, survey.jobs[0].ended) == ("AcceleratorOutOfMemory", 20.0)
    (tmp_path / "jobs" / place.job_id / "report.json").unlink()
    again = job_views.reconcile(tmp_path, explain_lost_owner)
    assert job_views.detail(again, again.jobs[0]).report is not None


def test_a_late_loss_never_replaces_a_report(tmp_path: Path) -> None:
    place = _recorded_run(tmp_path, "demo", 1000.0)
    lost = msgspec.structs.replace(failed_job(place.job_id, report=ENDED_BY), outcome=Outcome.STOPPED)
    journal = Journal.open(tmp_path)
    journal.close_job_of_another(lost, place.lock.supervisor, ended=5.0)
    journal.close()
    view = job_views.reconcile(tmp_path, explain_lost_owner).jobs[0]
    assert (view.outcome, view.ended) == (Outcome.FAILED, 1060.0)


def test_a_machine_that_went_down_is_told_apart_from_a_killed_supervisor(tmp_path: Path) -> None:
    who = OwnerInfo(job_id="j", name="demo", host="node7", pid=42, created=1000.0, boot_id="old")
    report, ended = report_of_loss(tmp_path, who, [(1005.0, Tick())], (), explain_lost_owner, boot_id="new")
    assert report.report.phrase == "NodeFailed" and report.report.blame is Blame.HARDWARE
    assert "node7 went down some time after" in report.report.reason and ended == 1005.0
    assert "no attempt had begun" in report.report.reason


def test_who_reaped_the_supervisor_knows_how_and_when_it_ended(tmp_path: Path) -> None:
    place = _recorded_run(tmp_path, "demo", 1000.0, ends=False)
    place.lock.release()
    survey = job_views.reconcile(
        tmp_path, explain_lost_owner, OwnerEnd(pid=os.getpid(), signal=signal.SIGSEGV, at=1500.0)
    )
    (report,) = survey.newly_lost
    assert f"(pid {os.getpid()} on " in report.report.reason and "was ended by SIGSEGV at " in report.report.reason
    assert (report.report.code, report.report.original.signal) == (139, "SIGSEGV")
    assert survey.jobs[0].ended == 1500.0


def test_what_outlived_a_lost_supervisor_is_named(tmp_path: Path) -> None:
    """Guard and supervisor were killed in the same instant: workers die of that, but not what they had started."""
    place = _recorded_run(tmp_path, "demo", 1000.0, ends=False)
    place.lock.release()
    env = {**os.environ, "HOLDFAST_JOB": place.job_id}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env) as orphan:
        (report,) = job_views.reconcile(tmp_path, explain_lost_owner).newly_lost
        orphan.kill()
    assert f"What its workers had started lives still: pid {orphan.pid} (" in report.report.reason
    assert report.report.solution.startswith(f"End what is left: kill {orphan.pid}. ")


def test_the_last_line_of_a_worker_tells_when_it_died(tmp_path: Path) -> None:
    who = OwnerInfo(job_id="j", name="demo", host="node7", pid=42, created=1000.0)
    log = tmp_path / "jobs" / "j" / "attempt-1" / "worker-0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 12\n")
    os.utime(log, (3000.0, 3000.0))
    _, ended = report_of_loss(tmp_path, who, [(1005.0, Tick())], (), explain_lost_owner, boot_id="")
    assert ended == 3000.0


def test_the_lock_says_who_and_whether_it_lives(tmp_path: Path) -> None:
    place = claim(tmp_path, name="demo", now=1000.0)
    assert life_of(place.directory) is OwnerLiveness.ALIVE
    with pytest.raises(BlockingIOError):
        OwnerLock.take(place.directory, place.lock.supervisor)
    place.lock.release()
    assert life_of(place.directory) is OwnerLiveness.DEAD
    assert read_owner(place.directory) == place.lock.supervisor
    again = OwnerLock.take(place.directory, place.lock.supervisor)
    assert life_of(place.directory) is OwnerLiveness.ALIVE
    again.release()
    assert life_of(tmp_path) is OwnerLiveness.UNKNOWN


def test_a_report_that_had_to_go_elsewhere_is_the_jobs_report(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept.json"
    place = claim(home, name="demo", now=1000.0)
    report = msgspec.structs.replace(
        failed_job(place.job_id, report=ENDED_BY), report=msgspec.structs.replace(ENDED_BY, hint="look")
    )
    report_file.write_to(kept, report)
    place.lock.note_report(kept)
    place.lock.release()
    survey = job_views.reconcile(home, explain_lost_owner)
    assert survey.newly_lost == () and survey.jobs[0].phrase == "AcceleratorOutOfMemory"
    assert job_views.detail(survey, survey.jobs[0]).report == report
    kept.unlink()  # by now its own place has it
    assert report_file.read(home, place.job_id) == report


def test_a_report_of_another_job_is_not_taken_for_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    place = claim(tmp_path, name="demo", now=1000.0)
    report_file.write_to(kept, failed_job("another", report=ENDED_BY))
    place.lock.note_report(kept)
    place.lock.release()
    assert report_file.read(tmp_path, place.job_id) is None


def test_a_job_gets_a_private_directory_and_a_number_that_sorts_by_age(tmp_path: Path) -> None:
    first, second = claim(tmp_path, name="a", now=1000.0), claim(tmp_path, name="a", now=1060.0)
    for place in (first, second):
        assert stat.S_IMODE(place.directory.stat().st_mode) == 0o700 and place.trouble == ""
        place.lock.release()
    assert first.job_id < second.job_id
    assert new_job_id(1795218060.0, "k3f9") == "20261120-2341-k3f9"


def test_a_home_that_cannot_be_written_gets_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = claim(tmp_path / "home", name="a", now=1000.0)
    assert str(tmp_path / "home") in place.trouble and f"HOLDFAST_HOME={place.home}" in place.trouble
    assert place.directory.is_relative_to(place.home) and life_of(place.directory) is OwnerLiveness.ALIVE
    place.lock.release()


def test_a_log_directory_that_cannot_be_made_is_bad_usage_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(BadUsage, match=r"--log-dir .*/logs: expected a directory to write logs to"):
        claim(tmp_path / "home", name="a", now=1000.0, log_dir=tmp_path / "logs")
    assert list((tmp_path / "home" / "jobs").iterdir()) == []
