"""The core's state without a process around it: requests, starts, ends, and what it takes over from a core before."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.decide.queue.queue_model import Device, Machine, Needs, Policy
from holdfast.queue import job_start
from holdfast.queue.core_messages import (
    AwaitEnd,
    CancelJob,
    CoreAnswer,
    GetStatus,
    ListQueue,
    Request,
    SetPriority,
    SubmitJob,
    answer_of,
    line_of,
)
from holdfast.queue.core_place import CorePlace
from holdfast.queue.core_records import CoreRecords, JobStage, RecordedJob, counts
from holdfast.queue.core_socket import CoreSocket
from holdfast.queue.queue_core import QueueCore
from holdfast.reactor import Reactor
from holdfast.record.owner_lock import NOT_BEGUN, OwnerInfo, OwnerLock, boot_id
from processes import reactor

__all__ = ["reactor"]

MACHINE = Machine(
    devices=tuple(Device(name=f"pretend{number}", index=number) for number in range(4)), cpus=8, memory=1 << 40
)
LIVES = "import sys, time\ntime.sleep(float(sys.argv[1]))"

MakeCore = Callable[[], QueueCore]


@pytest.fixture
def place(tmp_path: Path) -> CorePlace:
    found = CorePlace(home=tmp_path / "home", machine="here")
    found.make()
    return found


@pytest.fixture
def make_core(place: CorePlace, reactor: Reactor) -> Iterator[MakeCore]:
    made: list[QueueCore] = []

    def make() -> QueueCore:
        for before in made:
            before.close()
        made.clear()
        core = QueueCore(
            place, CoreRecords(place.records), reactor, lambda: MACHINE, Policy(), "ada", lambda text: None
        )
        core.adopt()
        made.append(core)
        return core

    yield make
    for core in made:
        for row in asked(core, ListQueue()).rows:
            if row.state == "queued":
                asked(core, CancelJob(id=row.id))
        core.close()


def asked(core: QueueCore, request: Request) -> CoreAnswer:
    found: list[CoreAnswer] = []
    core.take(request, found.append)
    assert len(found) == 1
    return found[0]


def a_job(place: CorePlace, job_id: str, seconds: float = 0.0, devices: int = 4, priority: str = "normal") -> SubmitJob:
    """A job's directory with a command that sleeps, and the request to accept it."""
    directory = place.home / "jobs" / job_id
    directory.mkdir(parents=True)
    owner = OwnerInfo(job_id=job_id, name="x", host=os.uname().nodename, pid=1, created=1000.0)
    lock = OwnerLock.take(directory, owner)
    lock.note_queued(NOT_BEGUN)
    lock.release()
    command = (sys.executable, "-c", LIVES, str(seconds))
    job_start.write_submission(
        directory,
        job_start.JobSubmission(command=command, directory=str(place.home), environment=dict(os.environ), umask=0o22),
    )
    return SubmitJob(id=job_id, name="x", needs=Needs(devices=devices), devices_known=True, priority=priority)


def states(core: QueueCore) -> dict[str, str]:
    return {row.id: row.state for row in asked(core, ListQueue()).rows}


def turn(reactor: Reactor, core: QueueCore, until: Callable[[], bool]) -> None:
    for _ in range(4000):
        if until():
            return
        reactor.wait(longest_s=0.05)
    raise AssertionError(f"it did not come: {states(core)}")


def test_jobs_run_one_after_the_other_and_those_who_wait_for_an_end_hear_of_it(
    make_core: MakeCore, place: CorePlace, reactor: Reactor
) -> None:
    core = make_core()
    assert asked(core, a_job(place, "one", 0.3)) == CoreAnswer()
    assert asked(core, a_job(place, "two")) == CoreAnswer()
    turn(reactor, core, lambda: states(core) == {"one": "running", "two": "queued"})
    heard: list[CoreAnswer] = []
    core.take(AwaitEnd(id="two"), heard.append)
    assert asked(core, GetStatus()).running == asked(core, GetStatus()).waiting == 1
    turn(reactor, core, lambda: bool(heard))
    assert states(core) == {} and asked(core, AwaitEnd(id="two")).unknown
    assert not (place.home / "jobs/one" / job_start.SUBMISSION_NAME).exists()


@pytest.mark.parametrize("request_", [CancelJob(id="x"), SetPriority(id="x", priority="low")])
def test_a_job_that_is_not_in_the_queue_is_unknown(make_core: MakeCore, request_: Request) -> None:
    answer = asked(make_core(), request_)
    assert not answer.ok and answer.unknown


def test_a_refused_job_leaves_no_record(make_core: MakeCore, place: CorePlace) -> None:
    core = make_core()
    for wish, said in (
        (SubmitJob(id="gone", name="x", needs=Needs(), devices_known=True), "has no directory"),
        (a_job(place, "a", devices=5), "needs 5 devices"),
        (a_job(place, "b", priority="soon"), "expected one of low, normal, high, urgent"),
        (SubmitJob(id="a", name="x", needs=Needs(), devices_known=False), "this machine has 4 devices"),
        (SubmitJob(id="a", name="x", needs=Needs(cpus=10**6), devices_known=True), "CPUs, and this machine has"),
    ):
        answer = asked(core, wish)
        assert not answer.ok and said in answer.message
    assert counts(place.records) == (0, 0)


def test_the_next_core_has_the_same_jobs_in_the_same_order_and_starts_none_twice(
    make_core: MakeCore, place: CorePlace, reactor: Reactor
) -> None:
    core = make_core()
    for number in range(3):
        asked(core, a_job(place, f"job{number}", 0.5))
    asked(core, SetPriority(id="job2", priority="high"))
    turn(reactor, core, lambda: "running" in states(core).values())
    before = asked(core, ListQueue()).rows
    core = make_core()
    after = asked(core, ListQueue()).rows
    assert [(row.id, row.state, row.priority, row.started_at) for row in after] == [
        (row.id, row.state, row.priority, row.started_at) for row in before
    ]
    turn(reactor, core, lambda: not states(core))


@pytest.mark.parametrize("runs", [True, False])
def test_a_core_that_died_while_it_started_a_job(
    runs: bool, make_core: MakeCore, place: CorePlace, reactor: Reactor
) -> None:
    """The record says that the core starts the job. Whether it runs is known from the locked file that it inherits."""
    wish = a_job(place, "one", 0.4)
    records = CoreRecords(place.records)
    job = RecordedJob(
        id="one", name="x", user="ada", needs=wish.needs, priority="normal", submitted_at=1000.0, place=1,
        stage=JobStage.STARTING, devices=("pretend0",), started_at=1001.0,
    )  # fmt: skip
    records.put(job)
    records.close()
    pidfd = -1
    if runs:
        _, pidfd = job_start.start("one", place.home / "jobs/one", {})
    core = make_core()
    if runs:
        assert states(core) == {"one": "running"}, "it has its devices as long as it lives"
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
        assert not job_start.is_started(place.home / "jobs/one")
    turn(reactor, core, lambda: not states(core))


def test_a_process_id_that_another_process_has_by_now_is_not_the_job(
    make_core: MakeCore, place: CorePlace, reactor: Reactor
) -> None:
    wish = a_job(place, "one")
    for ticks, boot in ((job_start.ticks_of(os.getpid()) + 1, boot_id()), (job_start.ticks_of(os.getpid()), "other")):
        records = CoreRecords(place.records)
        records.put(
            RecordedJob(
                id="one", name="x", user="ada", needs=wish.needs, priority="normal", submitted_at=1000.0, place=1,
                stage=JobStage.RUNNING, devices=("pretend0",), started_at=1001.0, pid=os.getpid(), ticks=ticks,
                boot_id=boot,
            )
        )  # fmt: skip
        records.close()
        assert states(make_core()) == {}


def test_a_damaged_record_costs_one_job(place: CorePlace) -> None:
    records = CoreRecords(place.records)
    for number in range(2):
        records.put(
            RecordedJob(
                id=str(number), name="x", user="ada", needs=Needs(), priority="low", submitted_at=1.0, place=number
            )
        )
    records.close()
    with sqlite3.connect(place.records) as db:
        db.execute("UPDATE jobs SET job = '{' WHERE id = '0'")
    records = CoreRecords(place.records)
    assert [job.id for job in records.jobs()] == ["1"]
    records.close()
    assert counts(place.records) == (0, 1)
    assert counts(place.directory / "none.db") == (0, 0)


def test_one_core_has_the_lock(place: CorePlace) -> None:
    first = place.lock()
    assert first is not None and place.lock() is None
    os.close(first)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"{\n", "does not know the request"),
        (b'{"type":"dance"}\n', "does not know the request"),
        (b"x" * (65 << 10), "at most 65536 bytes"),
    ],
)
def test_a_malformed_request_is_answered_and_the_core_goes_on(
    sent: bytes, said: str, make_core: MakeCore, place: CorePlace, reactor: Reactor
) -> None:
    core = make_core()
    listener = place.listen()
    server = CoreSocket(listener, reactor, core.take)
    try:
        for line, expected in ((sent, said), (line_of(GetStatus()), "")):
            client = place.connect(5.0)
            client.setblocking(False)
            answer, left = bytearray(), line
            while not answer.endswith(b"\n"):
                if left:
                    left = left[_sent(client, left) :]
                reactor.wait(longest_s=0.01)
                answer += _received(client)
            client.close()
            found = answer_of(bytes(answer))
            assert expected in found.message and found.ok is not bool(expected)
    finally:
        server.close()
        listener.close()


def _sent(client: socket.socket, data: bytes) -> int:
    try:
        return client.send(data)
    except (BlockingIOError, ConnectionError):
        return 0


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16)
    except BlockingIOError:
        return b""
