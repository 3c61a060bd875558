"""People ask about a job from any of its nodes: the owner answers, and fetches what lies on another node."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from conftest import Holdfast, wait_for
from holdfast.decide.gang_view import GangView, MemberView
from holdfast.decide.phases import Phase
from holdfast.model.codec import encode
from holdfast.model.events import EvidenceCollected
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.job_spec import Placement
from holdfast.node.agent.log_requests import LogReader
from holdfast.owner.nodes.failed_log_tails import MOST_RANKS, FailedLogTails
from holdfast.owner.nodes.operator_lines import LogLine
from holdfast.owner.nodes.operator_service import MOST_WAITING, OperatorService
from holdfast.reactor import Reactor
from holdfast.record.job_directory import JobPlace
from holdfast.record.owner_address import OwnerAddress, read_owner_address, write_owner_address
from holdfast.record.owner_lock import OwnerInfo, OwnerLock
from holdfast.wire.control_socket import Reply
from holdfast.wire.node_messages import (
    PROTOCOL,
    Answered,
    Asked,
    ForgetLog,
    LogFrom,
    LogPiece,
    LogRead,
    LogStream,
    Question,
    ReadLog,
)
from pair_of_nodes import Pair, pair

__all__ = ["pair"]  # a fixture


@pytest.mark.real
def test_a_job_is_shown_read_and_stopped_from_either_node(pair: Pair) -> None:
    pair.start('wait_for("go")\n', "--max-restarts", "0")
    shown = pair.until("ranks 0 and 1 up", pair.b, "show", "pair")
    assert (shown.status, "RUNNING" in shown.out) == (0, True)
    assert json.loads(pair.on(pair.b, "show", "pair", "--json").out)["state"] == "running"
    read = pair.until("rank", pair.b, "logs", "pair", "--rank", "0", "--stdout")
    assert read.out == "rank 0 of attempt 1\n"
    both = pair.until("a word", pair.a, "logs", "pair", "--rank", "1").out.splitlines()
    assert sorted(both) == ["[worker-1 stderr] a word of rank 1", "[worker-1 stdout] rank 1 of attempt 1"]
    listed = json.loads(pair.on(pair.b, "jobs", "--json").out)["jobs"]
    assert [(job["name"], job["state"]) for job in listed] == [("pair", "out of sight")]
    none = pair.on(pair.b, "logs", "pair", "--rank", "7")
    assert "attempt 1 has no rank 7: it has ranks 0 to 1" in none.err
    stopped = pair.on(pair.b, "stop", "pair", "--reason", "enough of it")
    assert (stopped.status, "SIGTERM now" in stopped.out) == (0, True)
    assert [ran.status for ran in pair.finish()] == [250, 250]
    after = pair.on(pair.b, "show", "pair")
    assert "enough of it" in after.out
    assert "over already" in pair.on(pair.b, "stop", "pair", "--reason", "again").out
    other = pair.on(pair.b, "logs", "pair", "--rank", "0")
    assert (other.status, "a log stays on its rank's node" in other.err) == (2, True)


@pytest.mark.real
def test_a_log_is_followed_over_attempts_until_the_job_ends(pair: Pair) -> None:
    rest = 'wait_for(f"go-{attempt}")\nprint("at the end of", attempt)\nsys.exit(int(attempt == "1" and rank == "1"))\n'
    pair.start(rest, "--max-restarts", "1")
    follower = pair.holdfast.start("logs", "pair", "--rank", "1", "--stdout", "-f", HOLDFAST_HOME=str(pair.a))
    assert follower.stdout is not None
    assert follower.stdout.readline() == "rank 1 of attempt 1\n"
    pair.go("go-1")
    wait_for(pair.holdfast.dir / "up-1-2")
    pair.go("go-2")
    assert [ran.status for ran in pair.finish()] == [0, 0]
    followed = pair.holdfast.finish(follower)
    assert followed.status == 0, followed.err
    assert followed.out.splitlines() == [
        "at the end of 1", "rank 1 of attempt 2", "at the end of 2",
    ]  # fmt: skip


@pytest.mark.real
def test_a_log_is_followed_through_the_death_of_the_owner(pair: Pair) -> None:
    pair.start('wait_for("go")\nprint("went on", flush=True)\nwait_for("end")\n')
    follower = pair.holdfast.start("logs", "pair", "--rank", "1", "--stdout", "-f", HOLDFAST_HOME=str(pair.b))
    assert follower.stdout is not None
    assert follower.stdout.readline() == "rank 1 of attempt 1\n"
    owners = [process for process in psutil.process_iter(["name"]) if process.info["name"] == "holdfast-owner"]
    [owner] = [process for process in owners if pair.holdfast.token in process.environ()]
    owner.kill()
    pair.go()
    assert follower.stdout.readline() == "went on\n", follower.communicate()[1]
    pair.go("end")
    assert [ran.status for ran in pair.finish()] == [0, 0]
    assert pair.holdfast.finish(follower).status == 0


@pytest.mark.real
def test_the_end_of_a_failed_ranks_log_comes_to_the_owners_node(pair: Pair) -> None:
    rest = """
wait_for("go")
if rank == "1":
    for _ in range(30_000):
        print("y" * 99)
    sys.stdout.flush()
    sys.exit(7)
wait_for("never")
"""
    pair.start(rest, "--max-restarts", "0")
    pair.go()
    assert [ran.status for ran in pair.finish()] == [255, 255]
    read = pair.on(pair.a, "logs", "pair", "--rank", "1", "--stdout").out
    first, *lines = read.splitlines()
    assert first == f"[holdfast: the last 1048576 of 3000020 bytes; the whole log is on {pair.nodes[1]}]"
    assert set(lines[1:]) == {"y" * 99}
    assert len(read) - len(first) - 1 == 1 << 20
    assert pair.on(pair.a, "logs", "pair", "--rank", "1", "--stderr").out == "a word of rank 1\n"


@pytest.mark.real
def test_faults_and_devices_of_a_node_are_reached_from_another(pair: Pair) -> None:
    pair.start('wait_for("go")\n', "--max-restarts", "0")
    here, there = pair.nodes
    on_b = ("--job", "pair", "--on", there)
    refused = pair.on(pair.a, "faults", "report", "--device", "gpu77", "--code", "NODE-X", *on_b)
    assert "--code NODE-X: no list names this fault code" in refused.err
    known = pair.on(pair.a, "faults", "report", "--device", "gpu77", "--code", "79", "--once", *on_b)
    assert (known.status, "gpu77: " in known.out) == (0, True), known.err
    assert "gpu77" not in pair.on(pair.a, "devices").out
    assert "gpu77" in pair.on(pair.b, "devices").out
    listed = json.loads(pair.on(pair.b, "devices", "--job", "pair", "--json").out)["devices"]
    assert "gpu77" in [device["device"] for device in listed]
    released = pair.on(pair.a, "release", "gpu77", "--reason", "seen", "--job", "pair", "--on", there)
    assert (released.status, "gpu77" in released.out) == (0, True)
    unknown = pair.on(pair.a, "release", "gpu77", "--reason", "seen", "--job", "pair", "--on", "node9")
    assert f"no node `node9`: the job has {here}, {there}" in unknown.err
    assert "no node was named" in pair.on(pair.a, "release", "gpu77", "--reason", "seen", "--job", "pair").err
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]


@pytest.mark.real
def test_without_the_key_nothing_is_answered(pair: Pair) -> None:
    pair.start('wait_for("go")\n')
    kept = pair.key.read_bytes()
    pair.key.unlink()
    none = pair.on(pair.b, "show", "pair")
    assert (none.status, "no job key" in none.err) == (2, True)
    pair.key.write_bytes(bytes(32))
    pair.key.chmod(0o600)
    other = pair.on(pair.b, "stop", "pair", "--reason", "no")
    assert (other.status, "another job key" in other.err) == (2, True)
    pair.key.write_bytes(kept)
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]
    over = pair.on(pair.b, "logs", "pair", "--rank", "1", "--stdout")
    assert over.out == "rank 1 of attempt 1\n"
    gone = pair.on(pair.b, "devices", "--job", "pair")
    assert (gone.status, "no owner answers" in gone.err, "it may be over" in gone.err) == (251, True, True)


def test_verbs_for_nodes_want_a_job_over_nodes(holdfast: Holdfast) -> None:
    holdfast.run("--name", "alone", "--no-python", "true")
    ran = holdfast("devices", "--job", "alone")
    assert (ran.status, "does not run over several nodes" in ran.err) == (2, True)


# ---------------------------------------------------------------------------------------------- the owner's part


class Caller:
    """A person's connection, as far as the owner speaks to it."""

    def __init__(self) -> None:
        self.heard: list[Answered] = []
        self.dismissed = False

    def send(self, message: Answered) -> bool:
        self.heard.append(message)
        return True

    def dismiss(self, message: Answered) -> None:
        self.heard.append(message)
        self.dismissed = True


class OperatorDesk:
    """The owner's part, and what it asks of nodes."""

    def __init__(self, tmp_path: Path) -> None:
        lock = OwnerLock(-1, OwnerInfo(job_id="j", name="n", host="h", pid=1, created=0.0))
        place = JobPlace("j", tmp_path, tmp_path, tmp_path, lock, "")
        self.asked: list[tuple[str, Question]] = []
        self.gone: set[str] = set()
        self.view = GangView(phase=Phase.CHECKING, attempt=0)
        self.reactor = Reactor(lambda: 0.0)
        self.operators = OperatorService(
            self.reactor,
            place,
            ask=self._ask,
            nodes=lambda: ["n0", "n1"],
            view=lambda: self.view,
            stop=lambda line: Reply(True, line.reason),
        )

    def _ask(self, node: str, question: Question) -> bool:
        self.asked.append((node, question))
        return node not in self.gone

    def begun(self, attempt: int, *, phase: Phase = Phase.RUNNING) -> None:
        placements = [
            Placement(node=f"n{rank}", role="worker", rank=rank, local_rank=0, role_rank=rank) for rank in (0, 1)
        ]
        members = tuple(MemberView(placement=placement) for placement in placements)
        self.view = GangView(phase=phase, attempt=attempt, members=members)
        self.operators.moved(self.view)

    def ask(self, rank: int, *, attempt: int = 0, wait: bool = False, protocol: int = PROTOCOL) -> Caller:
        caller = Caller()
        line = LogLine(rank=rank, attempt=attempt, wait=wait, streams=(LogFrom(stream=LogStream.STDOUT),))
        asked = Asked(protocol=protocol, version="0", user="u", host="h", line=encode(line).decode())
        self.operators.asked(caller, asked)
        return caller


@pytest.fixture
def desk(tmp_path: Path) -> OperatorDesk:
    return OperatorDesk(tmp_path)


def test_at_most_so_many_wait_for_an_answer(desk: OperatorDesk) -> None:
    desk.begun(1)
    callers = [desk.ask(1, wait=True) for _ in range(MOST_WAITING + 1)]
    assert [caller.heard for caller in callers[:-1]] == [[]] * MOST_WAITING
    assert (callers[-1].dismissed, "others wait" in callers[-1].heard[0].message) == (True, True)
    for caller in callers:
        desk.operators.person_left(caller)
    asked = [question.id for _, question in desk.asked if isinstance(question, ReadLog)]
    assert [question for _, question in desk.asked if isinstance(question, ForgetLog)] == [
        ForgetLog(id=number) for number in asked
    ]
    assert desk.ask(1).heard == []


def test_a_node_that_is_lost_ends_the_wait_for_its_answer(desk: OperatorDesk) -> None:
    desk.begun(1)
    caller = desk.ask(1)
    desk.operators.node_left("n1")
    assert caller.heard[0].message == "n1 has lost its connection to the owner"
    desk.gone.add("n1")
    assert "which is not connected" in desk.ask(1).heard[0].message


def test_who_follows_a_log_waits_for_its_node_to_come_back_or_for_the_next_attempt(desk: OperatorDesk) -> None:
    desk.begun(1)
    caller = desk.ask(1, attempt=1, wait=True)
    desk.gone.add("n1")
    desk.operators.node_left("n1")
    desk.gone.clear()
    asked = len(desk.asked)
    desk.operators.node_joined()
    assert (len(desk.asked), caller.heard) == (asked + 1, [])
    desk.gone.add("n1")
    desk.operators.node_left("n1")
    desk.begun(2)
    assert caller.heard[0].log is not None
    assert caller.heard[0].log.over


def test_a_question_about_the_next_attempt_waits_until_it_begins(desk: OperatorDesk) -> None:
    assert "no attempt has begun" in desk.ask(0).heard[0].message
    desk.begun(1)
    caller = desk.ask(1, attempt=2, wait=True)
    assert desk.asked == []
    desk.begun(2)
    assert isinstance(desk.asked[-1][1], ReadLog)
    desk.operators.close()
    assert caller.heard[-1].ended


def test_an_answer_after_its_person_has_left_is_dropped_and_another_version_is_named(desk: OperatorDesk) -> None:
    desk.begun(1)
    caller = desk.ask(1)
    desk.operators.person_left(caller)
    desk.operators.answered("n1", LogRead(id=desk.asked[0][1].id))
    assert caller.heard == []
    assert f"protocol {PROTOCOL}" in desk.ask(1, protocol=PROTOCOL + 1).heard[0].message


# ---------------------------------------------------------------------------------------------- the node's part


def test_a_wait_for_a_log_ends_with_the_next_line_and_with_the_attempt(tmp_path: Path) -> None:
    reactor = Reactor(time.monotonic)
    said: list[LogRead] = []
    reader = LogReader(reactor, tmp_path, "n0", said.append)
    reader.moved(GangView(phase=Phase.RUNNING, attempt=1))
    log = tmp_path / "attempt-1" / "worker-3" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n")
    question = ReadLog(id=1, rank=3, streams=(LogFrom(stream=LogStream.STDOUT, at=4),), wait=True)
    reader.read(question)
    assert said == []
    with log.open("a") as file:
        file.write("two\n")
    while not said:
        reactor.wait(longest_s=20.0)
    assert (said[0].pieces[0].data, said[0].attempt, said[0].over) == (b"two\n", 1, False)
    reader.read(ReadLog(id=2, rank=3, attempt=1, streams=(LogFrom(stream=LogStream.STDOUT, at=8),), wait=True))
    reader.moved(GangView(phase=Phase.PREPARING, attempt=2))
    assert (said[1].id, said[1].over) == (2, True)
    reader.read(ReadLog(id=3, rank=9, attempt=1, streams=()))
    assert said[2].trouble == "n0 has no log of rank 9 in attempt 1"
    reader.close()
    reactor.close()


def test_the_note_of_this_machine_is_taken_and_no_loopback_of_another(tmp_path: Path) -> None:
    here = os.uname().nodename

    def leave(node: str, machine: str, host: str, job: str = "20260101-j") -> None:
        directory = tmp_path / "jobs" / job / "nodes" / node
        directory.mkdir(parents=True)
        write_owner_address(
            directory, OwnerAddress(job_id=job, name="n", node=node, machine=machine, owner="o", host=host, port=1)
        )

    assert read_owner_address(tmp_path, "n") is None
    leave("far", "another", "127.0.0.1")
    assert read_owner_address(tmp_path, "n") is None
    leave("near", here, "10.0.0.1")
    assert (found := read_owner_address(tmp_path, "20260101-j")) is not None
    assert found.host == "10.0.0.1"
    leave("new", here, "10.0.0.2", "20260102-j")
    assert (newest := read_owner_address(tmp_path, "n")) is not None
    assert newest.job_id == "20260102-j"


def test_of_very_many_failed_ranks_the_culprits_logs_come_first(tmp_path: Path) -> None:
    asked: list[tuple[str, ReadLog]] = []

    def ask(node: str, question: Callable[[int], ReadLog]) -> int:
        asked.append((node, question(len(asked))))
        return len(asked) - 1

    tails = FailedLogTails(tmp_path, ask)
    ends = [
        WorkerExit(role="w", rank=rank, node=f"n{rank % 2}", attempt=3, exit_code=1, ended_at=float(rank))
        for rank in range(300)
    ]
    for node in ("n0", "n1"):
        own = tuple(WorkerEvidence(rank=end.rank, role="w", node=node, exit=end) for end in ends if end.node == node)
        tails.note(node, EvidenceCollected(attempt=3, evidence=AttemptEvidence(workers=own)))
    tails.fetch(3, {299})
    while tails.busy:
        for at, (node, _) in enumerate(tuple(asked)):
            tails.read(node, LogRead(id=at, pieces=(LogPiece(stream=LogStream.STDERR, at=0, data=b"x", size=1),)))
    ranks = {node: [question.rank for where, question in asked if where == node] for node in ("n0", "n1")}
    assert ranks["n1"][:2] == [299, 1]
    assert len({question.rank for _, question in asked}) == MOST_RANKS
    assert (tmp_path / "attempt-3" / "w-299" / "stderr.log").read_bytes() == b"x"
