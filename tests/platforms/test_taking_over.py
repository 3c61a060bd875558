"""Another run of a job that its platform starts again: what it finds and takes over, and what the old run can spoil."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import PREEMPTED, job_spec
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.launch.worker_output_options import parse_std
from holdfast.model import events as ev
from holdfast.model.decisions import JobReport
from holdfast.model.evidence import StopRequest
from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
from holdfast.model.job_spec import JobSpec, NodeInfo, PlatformJob, Requeuing
from holdfast.model.phrases import Phrase
from holdfast.owner.job_records import of_this_run
from holdfast.platforms.job_takeover import end_queued, place_of_before
from holdfast.platforms.slurm.text.job_restarts import (
    SacctRun,
    excluded,
    is_left_alone,
    requeue_refusal,
    rows,
    run_end,
    shrunk,
    too_few,
)
from holdfast.platforms.slurm.text.scontrol_records import JobRecord, NodeRecord, Partition
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.job_views import JobState, reconcile
from holdfast.record.journal import RUN_EVENTS, Journal
from holdfast.record.owner_lock import OwnerLock, read_owner

SLURM = PlatformJob(platform="slurm", id="42", cluster="c")
REQUEUED = job_spec(name="train", platform=SLURM, requeue=Requeuing(possible=True))


@pytest.fixture
def launch(tmp_path: Path) -> LaunchSpec:
    return LaunchSpec(
        spec=REQUEUED,
        home=tmp_path,
        cwd=tmp_path,
        render=str,  # type: ignore[arg-type]  # no report is shown
        environment={},
        checks=None,
        redirects=parse_std("0"),
        tee=parse_std("0"),
    )


@pytest.fixture
def begin_job(tmp_path: Path) -> Callable[..., JobPlace]:
    """`begin_job(*events)`: a run of the job that has written these, and is gone."""

    def begin(*events: ev.Event, spec: JobSpec = REQUEUED, run: int = 0) -> JobPlace:
        place = claim(tmp_path, name=spec.name, now=1000.0, platform=SLURM, run=run)
        journal = Journal.open(tmp_path)
        journal.of_run(place.job_id, run)
        journal.create_job(place.job_id, spec, now=1000.0, host="n1", pid=os.getpid())
        nodes = (NodeInfo(name="n1", slots=1),)
        submitted = ev.JobSubmitted(job_id=place.job_id, spec=spec, nodes=nodes, run=run)
        for event in (submitted, *events):
            journal.append(place.job_id, 1000.0, event)
        journal.close()
        place.lock.release()
        return place

    return begin


def test_another_run_finds_the_job_by_what_its_platform_calls_it(
    launch: LaunchSpec, begin_job: Callable[..., JobPlace]
) -> None:
    before = begin_job()
    found, why = place_of_before(launch, 1)
    assert found is not None and why == ""
    assert (found.job_id, found.run, found.resumed) == (before.job_id, 1, True)
    owner = read_owner(found.directory)
    assert owner is not None and owner.run == 1


def test_a_job_that_is_over_is_not_taken_over(launch: LaunchSpec, begin_job: Callable[..., JobPlace]) -> None:
    begin_job(ev.StopRequested(request=StopRequest(reason="enough")))
    assert place_of_before(launch, 1) == (None, "")


@pytest.mark.parametrize("other", [{"name": "other"}, {"roles": (replace(REQUEUED.roles[0], command=("sh",)),)}])
def test_what_else_a_batch_script_runs_is_not_taken_over(
    launch: LaunchSpec, begin_job: Callable[..., JobPlace], other: dict[str, Any]
) -> None:
    begin_job(spec=replace(REQUEUED, **other))
    assert place_of_before(launch, 1) == (None, "")


def test_where_no_run_is_known_the_user_learns_what_to_set(launch: LaunchSpec) -> None:
    found, why = place_of_before(launch, 2)
    assert found is None
    assert "set HOLDFAST_HOME to a directory that all nodes share" in why


def test_two_commands_of_one_script_take_over_a_job_each(
    launch: LaunchSpec, begin_job: Callable[..., JobPlace]
) -> None:
    ids = {begin_job().job_id, begin_job().job_id}
    taken = {place.job_id for place, _ in (place_of_before(launch, 1) for _ in ids) if place is not None}
    assert taken == ids


def test_a_lock_that_a_machine_of_before_seems_to_hold_is_taken_all_the_same(
    launch: LaunchSpec, begin_job: Callable[..., JobPlace]
) -> None:
    owner = read_owner(begin_job().directory)
    assert owner is not None
    held = OwnerLock.take(launch.home / "jobs" / owner.job_id, owner)
    found, _ = place_of_before(launch, 1)
    assert found is not None
    held.note_queued("what the run of before still writes goes to its own file")
    after = read_owner(found.directory)
    assert after is not None and (after.run, after.queued) == (1, "")
    held.release()


# ---------------------------------------------------------------------------------------------- two runs, one journal


def ended_report(job_id: str) -> JobReport:
    end = ExitReport(code=165, phrase="NodeFailed", blame=Blame.HARDWARE, rerun=Rerun.NOW, reason="r", solution="s")
    return JobReport(job_id=job_id, name="train", outcome=Outcome.FAILED, report=end)


def test_what_a_run_of_before_still_writes_changes_nothing(tmp_path: Path, begin_job: Callable[..., JobPlace]) -> None:
    place = begin_job()
    old, new = Journal.open(tmp_path), Journal.open(tmp_path)
    new.begin_run(place.job_id, 1, host="n2", pid=1)
    resumed = ev.JobResumed(platform="Slurm job 42", run=1, reason="r")
    new.append(place.job_id, 2000.0, resumed)
    before = list(new.events(place.job_id))
    assert not new.is_taken_over(place.job_id)
    assert old.is_taken_over(place.job_id)
    old.append(place.job_id, 2001.0, ev.Tick())
    old.finish(ended_report(place.job_id), now=2001.0)
    assert list(new.events(place.job_id)) == before
    new.append(place.job_id, 2002.0, ev.Tick())
    assert [event for _, event in new.events(place.job_id)][-2:] == [resumed, ev.Tick()]
    lost = replace(ended_report("").report, phrase="Lost")
    (view,) = reconcile(tmp_path, lambda _: lost).jobs
    assert view.phrase == "Lost", "the report of the run before is not the job's"
    old.close()
    new.close()


def test_a_job_that_was_closed_as_lost_is_open_again(tmp_path: Path, begin_job: Callable[..., JobPlace]) -> None:
    place = begin_job()
    assert reconcile(tmp_path, lambda lost: ended_report("").report).jobs[0].state is JobState.ENDED
    journal = Journal.open(tmp_path)
    journal.begin_run(place.job_id, 1, host=os.uname().nodename, pid=os.getpid())
    journal.close()
    owner = read_owner(place.directory)
    assert owner is not None
    lock = OwnerLock.take(place.directory, owner)
    assert reconcile(tmp_path, lambda lost: ended_report("").report).jobs[0].state is JobState.RUNNING
    lock.release()


def test_the_numbers_of_a_runs_events_follow_all_of_the_run_before(
    tmp_path: Path, begin_job: Callable[..., JobPlace]
) -> None:
    place = begin_job()
    journal = Journal.open(tmp_path)
    journal.begin_run(place.job_id, 3, host="n2", pid=1)
    journal.append(place.job_id, 1.0, ev.Tick())
    journal.close()
    again = Journal.open(tmp_path)
    again.of_run(place.job_id, 3)  # an owner of the same run that was killed
    again.append(place.job_id, 2.0, ev.Tick())
    assert len(list(again.events(place.job_id))) == 3
    again.close()
    assert RUN_EVENTS > 2**32


def test_only_what_has_happened_in_this_run_is_remembered_of_its_nodes() -> None:
    joined = ev.NodeJoined(node=NodeInfo(name="n1", slots=1), boot=1)
    submitted = ev.JobSubmitted(job_id="j", spec=REQUEUED, nodes=())
    resumed = ev.JobResumed(platform="Slurm job 42", run=1, reason="r")
    history: list[tuple[float, ev.Event]] = [(1.0, submitted), (2.0, joined), (3.0, resumed), (4.0, joined)]
    assert of_this_run(history, 1) == [resumed, joined]
    assert of_this_run(history[:2], 1) == []
    assert of_this_run(history[:2], 0) == [submitted, joined]


# ---------------------------------------------------------------------------------------------- while it waits


def queued(begun: Callable[..., JobPlace]) -> JobPlace:
    place = begun(ev.StopRequested(request=PREEMPTED))
    owner = read_owner(place.directory)
    assert owner is not None
    lock = OwnerLock.take(place.directory, owner)
    lock.note_queued("Slurm preempts")
    lock.release()
    return place


def test_a_job_that_waits_is_neither_lost_nor_over(tmp_path: Path, begin_job: Callable[..., JobPlace]) -> None:
    queued(begin_job)
    found = reconcile(tmp_path, lambda lost: ended_report("").report)
    assert [view.state for view in found.jobs] == [JobState.QUEUED]
    assert found.newly_lost == ()


def test_a_job_that_waits_can_be_stopped(tmp_path: Path, begin_job: Callable[..., JobPlace]) -> None:
    place = queued(begin_job)
    assert end_queued(tmp_path, place.job_id, StopRequest(reason="enough", at=3000.0))
    (view,) = reconcile(tmp_path, lambda lost: ended_report("").report).jobs
    assert (view.state, view.phrase) == (JobState.ENDED, "StoppedByOperator")
    assert not end_queued(tmp_path, place.job_id, StopRequest(reason="again", at=3001.0))


# ---------------------------------------------------------------------------------------------- what Slurm says

RUNNING = JobRecord(job=42, state="RUNNING", requeue=True, batch=True, nodes="n[1-4]", batch_host="n1")


@pytest.mark.parametrize(
    ("record", "word"),
    [(RUNNING, ""), (replace(RUNNING, requeue=False), "Requeue=0"), (replace(RUNNING, batch=False), "salloc")],
)
def test_slurm_starts_again_what_it_may(record: JobRecord, word: str) -> None:
    assert word in requeue_refusal(record) and bool(word) == bool(requeue_refusal(record))


def test_a_node_that_the_job_asks_for_by_name_cannot_be_left_out() -> None:
    pinned = replace(RUNNING, required="n[2-3]")
    assert "asks for n3 by name" in requeue_refusal(pinned, ["n3", "n4"])
    assert requeue_refusal(pinned, ["n4"]) == "" == requeue_refusal(pinned)


def test_nodes_are_left_out_only_where_the_partition_has_enough_others() -> None:
    main = Partition(name="main", nodes="n[1-4]")
    assert too_few(RUNNING, main, 3, ["n2"]) == ""
    assert too_few(RUNNING, main, 4, ["n2"]) == "partition main has 3 other nodes, and the job needs 4"
    assert "has 2 other nodes" in too_few(replace(RUNNING, excluded="n4"), main, 3, ["n2"])
    assert too_few(RUNNING, replace(main, nodes=""), 4, ["n2"]) == ""


def test_lost_nodes_leave_the_job_but_never_that_of_the_batch_script() -> None:
    assert shrunk(RUNNING, ["n3"]) == "n1,n2,n4"
    assert shrunk(RUNNING, ["n1", "n3"]) == ""
    assert shrunk(RUNNING, ["n9"]) == ""


def test_the_users_own_list_of_nodes_to_leave_out_is_kept() -> None:
    assert excluded(replace(RUNNING, excluded="n[7-8]"), ["n3"]) == "n7,n8,n3"
    assert excluded(replace(RUNNING, excluded="n[7-8]"), ["n8"]) == ""


def test_a_job_is_left_alone_where_the_node_of_its_script_is_lost() -> None:
    down = NodeRecord(name="n1", states=frozenset({"DOWN"}))
    up = NodeRecord(name="n1", states=frozenset({"ALLOCATED"}))
    assert is_left_alone(RUNNING, down)
    assert not is_left_alone(RUNNING, up)
    assert is_left_alone(replace(RUNNING, nodes="n[2-4]"), up)
    assert not is_left_alone(replace(RUNNING, state="COMPLETING"), down)
    assert not is_left_alone(replace(RUNNING, batch=False), down)


def test_why_a_run_has_ended_in_slurms_words() -> None:
    down = NodeRecord(name="n3", states=frozenset({"DOWN"}), reason="Not responding")
    now = SacctRun(state="RUNNING", nodes="n[1-3]")
    failed = run_end("42", (SacctRun(state="NODE_FAIL", nodes="n[1-3]"), now), (down,))
    assert failed.phrase == Phrase.NODE_FAILED
    assert failed.reason == "a node failed (n3 is DOWN (Not responding)), and Slurm has started job 42 again"
    assert run_end("42", (), (down,)).phrase == Phrase.NODE_FAILED
    assert run_end("42", (SacctRun(state="PREEMPTED"), now), (down,)).phrase == Phrase.PREEMPTED
    assert run_end("42", (SacctRun(state="REQUEUED"), now), ()).phrase == Phrase.STOPPED_BY_OPERATOR
    assert "Slurm has ended a run of job 42" in run_end("42", (), ()).reason


def test_rows_of_accounting_are_read() -> None:
    printed = "CANCELLED by 0|n[1-3]|2026-11-22T19:00:00\nRUNNING|n[1-2]|Unknown\n"
    assert rows(printed) == (SacctRun(state="CANCELLED", nodes="n[1-3]"), SacctRun(state="RUNNING", nodes="n[1-2]"))
    assert rows("") == rows("garbage\n") == ()
