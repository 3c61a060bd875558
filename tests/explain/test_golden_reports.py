"""Whole reports, as people read them: what the gang and the explainer make of a job, word for word.

Each story is played to its end with the real gang; the text it gives stands in `tests/data/golden/`. A change of
wording changes these files, and is seen in review:

    HOLDFAST_GOLDEN=write python -m pytest -q tests/explain/test_golden_reports.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

from gang_play import TIMERS, Play, died, spec
from holdfast.decide.phases import Phase
from holdfast.explain.openpai_exit_file import agg_error_file
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import JobReport
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    HangEvidence,
    LogExcerpt,
    MemoryKill,
    RankSnapshot,
    StopRequest,
    StopSource,
    ThreadState,
    WorkerEvidence,
)
from holdfast.model.exit_report import Evidence, EvidenceKind, Outcome
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.model.gang_protocol import MemberState
from holdfast.model.job_spec import NodeInfo, RestartPolicy, Role
from holdfast.model.phrases import Phrase
from holdfast.report.brief_report import render_brief
from holdfast.report.failure_place import scene_of
from places import DATA

GOLDEN = DATA / "golden"
#: When every job here begins, in seconds since the epoch.
GOLDEN_T = 1_790_000_000.0


class Story(Play):
    """A job whose workers write logs, and whose evidence is kept: the exit file is made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = GOLDEN_T
        self.logs: dict[int, str] = {}
        self.agg: list[bytes] = []

    def begin(self, nodes: tuple[str, ...] = ("gpu-1", "gpu-2"), *, name: str = "llama-sft", **changes: Any) -> None:
        role = changes.pop("role", "worker")
        fields: dict[str, Any] = {
            "name": name,
            "roles": (Role(name=role, count=len(nodes), command=("python", "train.py")),),
            "restarts": RestartPolicy(max_restarts=3),
            "timers": TIMERS,
        }
        self.nodes = nodes
        infos = tuple(NodeInfo(name=node, slots=1, devices=(f"npu{index}",)) for index, node in enumerate(nodes))
        self.tell(ev.JobSubmitted(job_id="j", spec=spec(**(fields | changes)), nodes=infos, seed=7))

    def run(self, seconds: float = 60.0) -> None:
        """Every worker runs for so long."""
        self.to(Phase.RUNNING)
        self.wait(seconds)

    def dies(self, rank: int, words: str = "", **how: Any) -> None:
        """A worker ends by itself, with these words as the end of its stderr."""
        self.logs[rank] = words
        order = how.pop("order", len(self.logs))
        role = self.gang.attempt_state.roster.members[rank].placement.role
        self.crash(rank, role=role, order=order, last_words=words[-8192:], **how)

    def explained(self, **known: Any) -> None:
        """What is left is stopped, and the evidence is collected: the logs that were written, and `known`."""
        if not self.at(Phase.DRAINING):
            self.wait(TIMERS.peer_wait_s)
        for node in self.gang.attempt_state.roster.nodes:
            self._stopped(node)
        if not any(isinstance(action, CollectEvidence) for action in self.out):
            self.wait(TIMERS.settle_s)
        asked = next(action.evidence for action in self.out if isinstance(action, CollectEvidence))
        workers = tuple(self._with_log(worker) for worker in asked.workers)
        evidence = structs.replace(asked, workers=workers, **known)
        self.collect(explaining_s=0.004, workers=workers, **known)
        self._keep(evidence)
        self.logs.clear()

    def _stopped(self, node: str) -> None:
        if self.at(Phase.DRAINING):
            self.now += 0.2
            self.report(node, stopped=self.gang.attempt)

    def _with_log(self, worker: WorkerEvidence) -> WorkerEvidence:
        words = self.logs.get(worker.rank)
        if not words:
            return worker
        return structs.replace(worker, stderr=LogExcerpt(source=f"{worker.role}-{worker.rank} stderr", text=words))

    def _keep(self, evidence: AttemptEvidence) -> None:
        record = self.records[-1]
        if record.report.code:
            self.agg.append(agg_error_file(record.report, evidence))

    def again(self) -> None:
        """The next attempt begins."""
        while not self.at(Phase.CHECKING):
            wake = self.gang.next_wake()
            assert wake is not None
            self.wait(max(0.0, wake - self.now) + 0.001)

    def succeeds(self, seconds: float = 300.0) -> None:
        self.run(seconds)
        for rank, member in self.gang.attempt_state.roster.members.items():
            node = member.placement.node
            done = died(rank, exit_code=0, node=node, attempt=self.gang.attempt, order=rank)
            self.report(node, MemberState.DONE, exit=done)
        for node in self.gang.attempt_state.roster.nodes:
            self._stopped(node)
        self.collect()


def traceback(line: int, said: str, *, file: str = "/srv/train.py", name: str = "main") -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line {line}, in {name}\n    loss.backward()\n{said}\n'


PEER_GONE = traceback(
    71,
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:41211",
)
STEPS_THEN_OOM = "step 41 loss 2.1187\nstep 42 loss 2.1092\n" + traceback(
    88,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    " of which 4.06 GiB is free.",
)

GOLDEN_STORIES: dict[str, Callable[[Story], None]] = {}


def golden(play: Callable[[Story], None]) -> Callable[[Story], None]:
    GOLDEN_STORIES[play.__name__.replace("_", "-")] = play
    return play


# OpenPAI's exit spec: a component that has a container killed says why, and the one exit file says who it was.


@golden
def pai_the_disk_cleaner_has_it_killed(job: Story) -> None:
    job.begin()
    job.run()
    job.stop(
        reason="Current Container Disk Usage 30% (30GB), All Container Disk Usage 91% (91GB), Limit 90% (90GB)",
        solution="Please retry on another node later.",
        source=StopSource.COMPONENT,
        component="diskCleaner",
        phrase="KilledByDiskCleaner",
    )
    job.explained(
        pai_errors=(
            Evidence(kind=EvidenceKind.LOG, text='234346457 ERROR ACTION "KILL"', source="diskCleaner"),
            Evidence(
                kind=EvidenceKind.LOG, text='234346457 ERROR REASON "disk usage 91% exceeds 90%"', source="diskCleaner"
            ),
        )
    )


@golden
def pai_an_exception_of_one_rank(job: Story) -> None:
    job.begin(("gpu-1", "gpu-2", "gpu-3"), restarts=RestartPolicy(max_restarts=0))
    job.run()
    job.dies(2, STEPS_THEN_OOM, exit_code=1)
    job.dies(0, PEER_GONE, exit_code=1)
    job.explained()


@golden
def pai_a_memory_kill_by_the_kernel(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=0))
    job.run()
    job.dies(1, "step 9 loss 3.1\nrss 14.1 GiB\n", signal=9)
    job.explained(
        memory_kills=(
            MemoryKill(
                source="kernel log",
                text="Memory cgroup out of memory: Killed process 101 (python) anon-rss:15728640kB",
                rank=1,
                pid=101,
                limit_bytes=16 << 30,
                rss_bytes=15 << 30,
                at=job.now - 1.0,
            ),
        )
    )


@golden
def pai_a_status_that_says_nothing(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=1))
    for _ in range(2):
        job.run(20.0)
        job.dies(0, "loading shard 17\n", exit_code=3)
        job.explained()
        if job.final is None:
            job.again()


# DLRover's pre-checks: a check fails before the start, elsewhere is tried, and checks go on beside the job.


@golden
def precheck_the_only_nodes_fail(job: Story) -> None:
    job.begin()
    failure = CheckFailure(
        check="disk",
        message="/dev/shm has 64 MiB free, 1 GiB is needed",
        solution="Give the container a larger /dev/shm (--shm-size).",
        nodes=("gpu-2",),
    )
    job.check(CheckState.FAIL, failure=failure, fatal=True)


@golden
def precheck_a_bad_node_is_left_out(job: Story) -> None:
    job.begin(("gpu-1", "gpu-2", "gpu-3"), roles=(Role(name="worker", count=2, command=("python", "train.py")),))
    failure = CheckFailure(check="matmul", message="gpu-1: wrong sum", nodes=("gpu-1",), elsewhere=True)
    job.check(CheckState.FAIL, failure=failure, avoid=("gpu-1",))
    job.succeeds()


@golden
def precheck_a_bad_node_is_left_out_and_a_worker_fails_later(job: Story) -> None:
    job.begin(
        ("gpu-1", "gpu-2"),
        roles=(Role(name="worker", count=1, command=("python", "train.py")),),
        restarts=RestartPolicy(max_restarts=0),
    )
    failure = CheckFailure(check="matmul", message="gpu-1: wrong sum", nodes=("gpu-1",), elsewhere=True)
    job.check(CheckState.FAIL, failure=failure, avoid=("gpu-1",))
    job.run()
    job.dies(0, traceback(3, "KeyError: 'lr'"), exit_code=1)
    job.explained()


@golden
def precheck_a_check_fails_during_the_job(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=0))
    job.run()
    failure = CheckFailure(
        check="network",
        message="10.0.0.3 lost 40 of 100 packets",
        nodes=("gpu-2",),
        blame="network",
        running=True,
        elsewhere=True,
    )
    job.tell(ev.CheckFailedRunning(attempt=job.gang.attempt, failure=failure))
    job.explained()


# Ascend's faults: a level decides whether work goes on, a card is reset, or is left.


def fault(job: Story, code: str, remedy: Remedy, text: str, **how: Any) -> None:
    event = FaultEvent(
        device="npu1", code=code, assertion=Assertion.OCCUR, at=job.now, node="gpu-2", text=text, source="ascend"
    )
    job.tell(ev.FaultSeen(fault=event, remedy=remedy, **how))


@golden
def ascend_memory_that_cannot_be_corrected(job: Story) -> None:
    job.begin(("gpu-1", "gpu-2", "gpu-3"), roles=(Role(name="worker", count=2, command=("python", "train.py")),))
    job.run()
    why = "80E01801 (HBM multi-bit ECC error) asks to leave npu1"
    fault(job, "80E01801", Remedy.ISOLATE, "HBM multi-bit error", stop=True, avoid=("npu1",), why=why)
    job.explained()
    job.again()
    job.succeeds()


@golden
def ascend_a_rank_died_of_a_fault_that_was_seen_first(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=1))
    job.run()
    fault(job, "80C98008", Remedy.RESTART_WORKERS, "AI core exception", why="80C98008: run the program again")
    job.now += 1.5
    job.dies(1, traceback(14, "RuntimeError: ACL stream synchronize failed, error code 507015"), exit_code=1)
    job.explained()
    job.again()
    job.succeeds()


# OpenPAI's runtime: it starts the tasks together, and says which one could not be started.


@golden
def runtime_a_command_that_is_not_there(job: Story) -> None:
    job.begin()
    job.to(Phase.PREPARING)
    job.report("gpu-1", MemberState.FAILED, start_failed="exec: No such file or directory: '/usr/local/pai/run'")
    job.explained()


@golden
def runtime_a_task_that_is_not_ready_in_time(job: Story) -> None:
    job.begin(("gpu-1", "gpu-2", "gpu-3"), restarts=RestartPolicy(max_restarts=0, platform_max_restarts=0))
    job.to(Phase.PREPARING)
    job.report("gpu-1", MemberState.PREPARED)
    job.report("gpu-3", MemberState.PREPARED)
    job.report("gpu-2", MemberState.BOOTING)
    job.wait(GOLDEN_T + TIMERS.prepare_s - job.now)
    job.explained()


# Two hosts, two runners: one fails while it starts, and the other is stopped for it.

PORT_IN_USE = traceback(195, "RuntimeError: bind: Address already in use", file="/srv/runner.py")


@golden
def runners_one_failure_and_then_success(job: Story) -> None:
    job.begin(("gremlin-1", "gremlin-3"), name="tiny-llama", role="runner")
    job.run(2.0)
    job.dies(1, PORT_IN_USE, exit_code=1)
    job.explained()
    job.again()
    job.succeeds()


@golden
def runners_one_that_never_starts(job: Story) -> None:
    job.begin(("gremlin-1", "gremlin-3"), name="tiny-llama", role="runner")
    while job.final is None:
        job.run(2.0)
        job.dies(1, "hello from the runner\nrunner created\nrunner shutting down\n" + PORT_IN_USE, exit_code=1)
        job.dies(0, "ValueError: Queue <multiprocessing.queues.Queue object> is closed\n", exit_code=1, after_stop=True)
        job.explained()
        if job.final is None:
            job.again()


@golden
def runners_all_wait_for_one_that_left(job: Story) -> None:
    job.begin(("gremlin-1", "gremlin-3", "gremlin-4"), name="tiny-llama", restarts=RestartPolicy(max_restarts=0))
    job.run()
    said = "[rank{0}]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer from rank 1\n"
    job.dies(2, said.format(2), exit_code=1)
    job.dies(0, said.format(0), exit_code=1)
    job.explained()


# What belongs to none of them alone.


@golden
def hang_one_rank_stands_elsewhere(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=0))
    job.run(300.0)
    waits = ("wait (torch/distributed.py:88)", "all_reduce (torch/distributed.py:40)", "step (train.py:61)")
    reads = ("readline (io.py:10)", "load (data.py:31)")
    looks = tuple(
        tuple(
            RankSnapshot(
                rank=rank,
                pid=100 + rank,
                at=job.now - 5 + 5 * look,
                threads=(ThreadState(tid=100 + rank, name="MainThread", state="S", frames=reads if rank else waits),),
                stack_source="py-spy",
            )
            for rank in (0, 1)
        )
        for look in (0, 1)
    )
    found = HangEvidence(
        attempt=1,
        silent_s=240.0,
        looks=looks,
        culprits=(1,),
        why="rank 1 reads (data.py:31) while rank 0 waits in all_reduce",
        at=job.now,
    )
    job.tell(ev.HangFound(attempt=1, evidence=found))
    job.explained()


@golden
def crash_in_native_code(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=0))
    job.run()
    words = (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad shard\n"
        "Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/srv/loader.py", line 12 in fetch\n'
    )
    job.dies(0, words, signal=6)
    job.dies(1, PEER_GONE, exit_code=1)
    job.explained()


@golden
def stopped_by_a_person(job: Story) -> None:
    job.begin()
    job.run()
    job.tell(ev.StopRequested(request=StopRequest(reason="not needed any more", who="ada (pid 7)", at=job.now)))
    job.explained()


def text_of(job: Story) -> str:
    assert isinstance(job.final, JobReport)
    scene = scene_of(job.final.report, None)
    told = "\n".join(render_brief(job.final, scene, width=100, verbose=verbose) for verbose in (False, True))
    files = [data.decode() for data in job.agg[-1:]] if job.final.outcome is not Outcome.SUCCEEDED else []
    return "\n".join([told, *files])


# Slurm: what it says stands beside what holdfast has seen; a run that it has cut short is explained in its words.


@golden
def slurm_says_what_it_knows_of_a_lost_node(job: Story) -> None:
    job.begin(restarts=RestartPolicy(max_restarts=0))
    job.run()
    job.tell(ev.NodeSilent(node="gpu-2", boot=1, silent_s=7.0, words_s=(7.0, 8.0, 9.0, 10.0)))
    job.tell(
        ev.PlatformSaid(
            attempt=1,
            subject="gpu-2",
            words="DOWN+NOT_RESPONDING (Not responding)",
            command="scontrol show node gpu-2",
            node="gpu-2",
        )
    )
    job.tell(ev.NodeFenced(node="gpu-2", boot=1))
    job.report("gpu-1", stopped=1)
    job.wait(2.0)
    job.collect()


@golden
def slurm_starts_the_job_again(job: Story) -> None:
    job.begin()
    job.run()
    reason = "a node failed (gpu-2 is DOWN (Not responding)), and Slurm has started job 42 again"
    nodes = tuple(NodeInfo(name=name, slots=1) for name in ("gpu-1", "gpu-3"))
    job.now += 30.0
    resumed = ev.JobResumed(
        platform="Slurm job 42", run=1, reason=reason, phrase=Phrase.NODE_FAILED, nodes=nodes, seen_at=job.now - 25.0
    )
    job.tell(resumed)
    job.wait(0.0)
    job.boot = 2
    job.run()
    job.succeeds()


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", GOLDEN_STORIES)
def test_the_report_is_the_one_that_was_agreed(name: str) -> None:
    job = Story()
    GOLDEN_STORIES[name](job)
    job.verify()
    path = GOLDEN / f"{name}.txt"
    told = text_of(job)
    if os.environ.get("HOLDFAST_GOLDEN") == "write":
        path.write_text(told, encoding="utf-8")
    assert told == path.read_text(encoding="utf-8")


def test_no_agreed_report_is_left_without_its_story() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(GOLDEN_STORIES)
