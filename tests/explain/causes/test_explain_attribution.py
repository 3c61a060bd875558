"""Who was it: live exits with times, orders and last words go in, one culprit comes out."""

from __future__ import annotations

import pytest
from explain_builders import dead, seen, trace
from msgspec.structs import replace

from builders import T
from holdfast.explain import explain, first_hand
from holdfast.model.evidence import (
    AttemptEvidence,
    CheckFailure,
    Deadline,
    HangEvidence,
    LeftBehind,
    MemoryKill,
    RankSnapshot,
    StopRequest,
    StopSource,
    ThreadState,
    WorkerEvidence,
)
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, Rerun
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy

GLOO_LOST_PEER = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:41211. "
    "This is typically caused by a remote worker crashing."
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1331, remote process exited or there"
    " was a network error, NCCL version 2.20.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "Last error:\nsocketProgress: Connection closed by remote peer node3<41233>"
)
NCCL_ABORTED = (
    "[rank0]:[E1120 21:53:36 ProcessGroupNCCL.cpp:1537] [PG 0 Rank 0] Process group watchdog thread terminated with "
    "exception: NCCL communicator was aborted on rank 0.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'"
)


@pytest.mark.parametrize(
    ("words", "signal", "own"),
    [
        (trace("KeyError: 'lr'"), None, True),
        ("", None, True),
        ("", 9, True),
        ("", 11, True),
        (trace(GLOO_LOST_PEER), None, False),
        (trace(NCCL), None, False),
        (NCCL_ABORTED, 6, False),
        ("terminate called after throwing an instance of 'std::bad_alloc'", 6, True),
        (trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"), None, False),
        (trace("ConnectionResetError: [Errno 104] Connection reset by peer"), None, False),
        (trace("BrokenPipeError: [Errno 32] Broken pipe"), None, False),
        (
            trace("torch.distributed.DistNetworkError: failed to recv, got 0 bytes: Connection reset by peer"),
            None,
            False,
        ),
        (trace("RuntimeError: Timed out waiting 15000ms for recv operation to complete"), None, False),
    ],
)
def test_first_hand(words: str, signal: int | None, own: bool) -> None:
    ended = dead(0, words, signal=signal).exit
    assert ended is not None
    assert first_hand(ended) is own


def test_a_normal_end_and_an_end_after_our_stop_are_not_first_hand() -> None:
    for worker in (dead(0, code=0), dead(0, trace("KeyError: 1"), after_stop=True)):
        assert worker.exit is not None
        assert not first_hand(worker.exit)


def test_an_earlier_collective_error_does_not_hide_the_own_exception() -> None:
    ended = dead(0, f"[W] {GLOO_LOST_PEER}, retrying\n" + trace("ValueError: bad batch")).exit
    assert ended is not None
    assert first_hand(ended)


def test_the_crash_is_the_cause_and_the_broken_connections_are_collateral() -> None:
    report = explain(
        seen(
            dead(0, trace(GLOO_LOST_PEER), at=0.1, order=1),
            dead(1, trace("KeyError: 'lr'"), at=0.0, order=0),
            dead(2, trace(GLOO_LOST_PEER), at=0.2, order=2),
        )
    )
    assert (report.phrase, report.exception) == ("UserException", "KeyError")
    assert report.first is not None
    assert (report.first.rank, report.first.node, report.first.pid) == (1, "node1", 1001)
    assert report.collateral == (0, 2)
    assert report.original.exit_code == 1
    assert "rank 1 on node1" in report.reason
    assert report.hint == "holdfast logs j1 --attempt 1 --rank 1"


def test_in_one_instant_own_words_beat_silence_and_silence_beats_peer_lost() -> None:
    same = [dead(0, trace(GLOO_LOST_PEER), order=0), dead(1, order=1, code=3), dead(2, trace("ValueError: x"), order=2)]
    assert explain(seen(*same)).first.rank == 2  # type: ignore[union-attr] # a culprit is what is asserted
    assert explain(seen(*same[:2])).first.rank == 1  # type: ignore[union-attr] # the same


def test_peer_lost_noticed_first_does_not_win() -> None:
    report = explain(seen(dead(0, trace(NCCL), at=0.0, order=0), dead(1, signal=11, at=0.4, order=1)))
    assert report.first is not None
    assert report.first.rank == 1
    assert (report.phrase, report.code, report.original.signal) == ("NativeCrash", 234, "SIGSEGV")


def test_a_rank_that_aborts_at_second_hand_is_no_cause_however_early() -> None:
    """NCCL's watchdog aborts its own process once a peer is gone; the peer may still be printing its traceback."""
    report = explain(
        seen(dead(0, NCCL_ABORTED, signal=6, at=0.0, order=0), dead(1, trace("ValueError: x"), at=2.0, order=1))
    )
    assert report.first is not None
    assert report.first.rank == 1
    assert (report.exception, report.collateral) == ("ValueError", (0,))


def test_an_abort_without_a_word_beats_silence() -> None:
    report = explain(seen(dead(0, code=3, at=0.0, order=0), dead(1, signal=6, at=0.1, order=1)))
    assert report.first is not None
    assert (report.first.rank, report.phrase) == (1, "NativeCrash")


def test_words_about_a_peer_that_no_row_knows_are_second_hand_too() -> None:
    report = explain(
        seen(dead(0, "lost contact to the coordinator", code=3, at=0.0, order=0), dead(1, code=3, at=2.0, order=1))
    )
    assert report.first is not None
    assert report.first.rank == 1


LOST_LINK = "ConnectionResetError: [Errno 104] Connection reset by peer"


def test_a_rank_that_only_hears_of_it_is_no_cause_however_early() -> None:
    report = explain(seen(dead(0, trace(LOST_LINK), at=0.0, order=0), dead(1, trace("ValueError: x"), at=2.0, order=1)))
    assert report.first is not None
    assert (report.first.rank, report.exception) == (1, "ValueError")


def test_a_rank_that_a_signal_killed_did_not_only_hear_of_it() -> None:
    report = explain(
        seen(dead(0, trace(LOST_LINK), signal=11, at=0.0, order=0), dead(1, trace("ValueError: x"), at=2.0, order=1))
    )
    assert report.first is not None
    assert (report.first.rank, report.phrase) == (0, "NativeCrash")


def test_a_rank_whose_child_was_killed_for_memory_did_not_only_hear_of_it() -> None:
    """A data loader's process is killed, and the rank finds its pipe broken; the next rank fails a moment later."""
    kill = MemoryKill(source="kernel log", text="oom-kill", node="node0", rank=0, pid=77, at=T - 0.01)
    report = explain(
        seen(
            dead(0, trace(LOST_LINK), at=0.0, order=0),
            dead(1, trace("ValueError: x"), at=0.1, order=1),
            memory_kills=(kill,),
        )
    )
    assert report.first is not None
    assert (report.first.rank, report.phrase) == (0, "HostOutOfMemoryKilled")


def test_the_earliest_of_two_own_failures_wins() -> None:
    early, late = dead(1, trace("ValueError: early"), at=0.0, order=0), dead(0, signal=11, at=2.0, order=1)
    report = explain(seen(late, early))
    assert report.first is not None
    assert report.first.rank == 1


def test_equal_causes_are_both_named() -> None:
    report = explain(seen(dead(0, trace("ValueError: a")), dead(1, trace("ValueError: b"))))
    assert [other.rank for other in report.also] == [1]
    assert report.confidence == 0.5
    assert "rank 1" in report.reason


def test_exits_after_our_stop_are_collateral_whatever_they_say() -> None:
    report = explain(
        seen(
            dead(0, trace("ValueError: torn down"), at=5.0, after_stop=True),
            dead(1, trace("KeyError: 'first'"), at=0.0),
            dead(2, trace("ValueError: torn down too"), at=6.0),
            stop_asked_at=T + 4.0,
        )
    )
    assert report.exception == "KeyError"
    assert report.collateral == (0, 2)


def test_edges_lead_to_the_rank_that_left_with_status_0() -> None:
    words = trace("RuntimeError: Timed out waiting 15000ms for recv operation from rank 2 to complete")
    report = explain(
        seen(dead(0, words, at=9.0, order=1), dead(1, words, at=9.1, order=2), dead(2, code=0, at=0.0, order=0))
    )
    assert report.first is not None
    assert report.first.rank == 2
    assert report.phrase == "CollectiveMismatch"
    assert report.rerun is Rerun.UNKNOWN, "inferred, not read: the same start may still end well"
    assert report.collateral == (0, 1)


def test_without_edges_the_rank_that_left_early_with_status_0_is_named() -> None:
    report = explain(seen(dead(0, trace(GLOO_LOST_PEER), at=3.0, order=1), dead(1, code=0, at=0.0, order=0)))
    assert report.first is not None
    assert report.first.rank == 1


def test_when_everybody_only_blames_peers_the_report_says_how_little_that_is() -> None:
    report = explain(
        seen(dead(0, trace(GLOO_LOST_PEER), at=0.0, order=0), dead(1, trace(GLOO_LOST_PEER), at=0.1, order=1))
    )
    assert report.phrase == "PeerLost"
    assert report.confidence < 0.5
    assert report.rerun is not Rerun.NEVER


def test_all_well_is_success() -> None:
    report = explain(seen(dead(0, code=0), dead(1, code=0)))
    assert (report.phrase, report.code, report.collateral) == ("Succeeded", 0, ())


def test_a_stop_request_with_its_words_comes_first() -> None:
    stop = StopRequest(reason="ana wants the node", solution="start it tomorrow", who="ana (pid 7)", at=T)
    report = explain(seen(dead(0, trace("KeyboardInterrupt"), at=1.0, after_stop=True), stop=stop, stop_asked_at=T))
    assert (report.phrase, report.code, report.blame) == ("StoppedByOperator", 250, Blame.OPERATOR)
    assert "ana wants the node" in report.reason
    assert report.solution == "start it tomorrow"


def test_a_failure_before_the_stop_request_stays_the_cause() -> None:
    stop = StopRequest(reason="it is broken", at=T + 5)
    report = explain(seen(dead(0, trace("KeyError: 'lr'"), at=0.0), stop=stop, stop_asked_at=T + 5))
    assert report.exception == "KeyError"


@pytest.mark.parametrize(("ended_by", "phrase"), [(15, "StoppedByOperator"), (11, "NativeCrash")])
def test_a_death_by_the_very_signal_that_asks_for_the_stop_belongs_to_it(ended_by: int, phrase: str) -> None:
    """It came to every process of the job, and the worker was the quicker one."""
    stop = StopRequest(reason="holdfast got SIGTERM", source=StopSource.SIGNAL, signal=15, at=T + 0.01)
    report = explain(seen(dead(0, signal=ended_by, at=0.0), stop=stop, stop_asked_at=T + 0.01))
    assert report.phrase == phrase


def test_a_rank_that_lost_a_peer_to_that_signal_is_not_to_blame_either() -> None:
    stop = StopRequest(reason="scontrol requeue", source=StopSource.PLATFORM, signal=15, at=T + 0.3)
    felled = dead(0, code=143, at=0.0)
    lost_it = dead(1, trace("RuntimeError: the peer is gone"), at=0.1)
    assert explain(seen(felled, lost_it, stop=stop, stop_asked_at=T + 0.3)).phrase == "StoppedByOperator"
    first = dead(1, trace("RuntimeError: the loss is not a number"), at=-0.1)
    assert explain(seen(felled, first, stop=stop, stop_asked_at=T + 0.3)).exception == "RuntimeError"


def test_a_death_by_the_same_signal_long_before_the_stop_is_a_cause_of_its_own() -> None:
    stop = StopRequest(reason="holdfast got SIGTERM", source=StopSource.SIGNAL, signal=15, at=T + 20)
    report = explain(seen(dead(0, signal=15, at=0.0), stop=stop, stop_asked_at=T + 20))
    assert report.phrase == "KilledBySignal"


@pytest.mark.parametrize(
    ("phrase", "code"), [("TimeLimitReached", None), ("KilledByDiskCleaner", 198), ("Preempted", None)]
)
def test_other_requests_have_their_own_phrase(phrase: str, code: int | None) -> None:
    report = explain(
        seen(
            dead(0, signal=15, after_stop=True),
            stop=StopRequest(reason="because", phrase=phrase, at=T),
        )
    )
    assert report.phrase == phrase
    assert code is None or report.code == code


def test_a_memory_kill_names_limit_peak_and_rank() -> None:
    kill = MemoryKill(
        source="cgroup v2 memory.events",
        text="oom_kill 1",
        rank=3,
        scope="worker",
        limit_bytes=2 << 30,
        peak_bytes=2 << 30,
    )
    report = explain(seen(dead(3, signal=9), dead(0, trace(GLOO_LOST_PEER), at=0.1, order=1), memory_kills=(kill,)))
    assert (report.phrase, report.blame) == ("HostOutOfMemoryKilled", Blame.WORKLOAD)
    assert "rank 3 on node3" in report.reason
    assert "limit 2.0 GiB" in report.reason
    assert "peak 2.0 GiB" in report.reason
    assert report.original.signal == "SIGKILL"


def test_a_kill_in_a_group_that_ranks_share_is_the_one_killed_ranks() -> None:
    kill = MemoryKill(
        source="cgroup v1 memory.oom_control",
        text="oom_kill rose by 1",
        node="node0",
        scope="container",
        limit_bytes=800 << 20,
        peak_bytes=800 << 20,
        limited_by="Slurm's step 12.0 (sbatch --mem, srun --mem)",
        count=1,
    )
    first, second = dead(3, node="node0", signal=9), dead(1, node="node0", signal=9, at=0.2, order=1)
    alone = explain(seen(first, dead(1, trace(GLOO_LOST_PEER), at=0.1, order=1), memory_kills=(kill,)))
    two = explain(seen(first, second, memory_kills=(kill,)))
    both = explain(seen(first, second, memory_kills=(replace(kill, count=2),)))

    words = (
        "killed at the memory limit of Slurm's step 12.0 (sbatch --mem, srun --mem), limit 800.0 MiB, peak 800.0 MiB"
    )
    assert alone.reason == both.reason == f"rank 3 on node0: {words}"
    assert two.reason == (
        f"rank 3 on node0: {words}; 1 memory kill was counted, ranks 1 and 3 ended by SIGKILL: "
        "which of them it was is not known"
    )


def test_a_kill_without_memory_trouble_is_not_called_a_memory_kill() -> None:
    report = explain(seen(dead(0, signal=9)))
    assert (report.phrase, report.code, report.rerun) == ("KilledBySignal", 137, Rerun.UNKNOWN)


def test_a_memory_kill_of_another_rank_does_not_explain_a_python_exception() -> None:
    kill = MemoryKill(source="kernel log", text="Killed process 77", rank=5)
    assert explain(seen(dead(0, trace("KeyError: 'lr'")), memory_kills=(kill,))).exception == "KeyError"


@pytest.mark.parametrize(("code", "rerun"), [(200, Rerun.LATER), (201, Rerun.LATER), (210, Rerun.NEVER)])
def test_contract_codes_are_the_workers_own_word(code: int, rerun: Rerun) -> None:
    report = explain(seen(dead(0, trace("torch.OutOfMemoryError: CUDA out of memory"), code=code)))
    assert (report.code, report.rerun, report.original.exit_code) == (code, rerun, code)


@pytest.mark.parametrize(
    ("signal", "phrase"),
    [(11, "NativeCrash"), (6, "NativeCrash"), (8, "NativeCrash"), (9, "KilledBySignal"), (15, "KilledBySignal")],
)
def test_a_bare_signal(signal: int, phrase: str) -> None:
    report = explain(seen(dead(0, signal=signal)))
    assert (report.phrase, report.code) == (phrase, 128 + signal if phrase == "KilledBySignal" else 234)


@pytest.mark.parametrize(
    ("code", "phrase"), [(127, "CommandNotFound"), (126, "ExecFormatError"), (3, "Unexplained"), (139, "NativeCrash")]
)
def test_a_bare_status(code: int, phrase: str) -> None:
    assert explain(seen(dead(0, code=code))).phrase == phrase


def test_a_vanished_worker_is_unexplained_and_says_so() -> None:
    report = explain(seen(dead(0, code=None)))
    assert (report.phrase, report.code) == ("Unexplained", 255)
    assert "without an exit status" in report.reason


def test_a_device_fault_comes_before_what_the_program_says() -> None:
    event = FaultEvent(
        device="gpu3",
        code="79",
        assertion=Assertion.OCCUR,
        at=T - 1,
        node="node1",
        text="NVRM: Xid 79",
        source="kernel log",
    )
    fault = ActiveFault(event=event, remedy=Remedy.ISOLATE, ranks=(1,))
    report = explain(
        seen(
            dead(1, trace("RuntimeError: CUDA error: unspecified launch failure")),
            dead(0, trace(GLOO_LOST_PEER), at=1),
            faults=(fault,),
        )
    )
    assert (report.phrase, report.blame, report.rerun) == ("AcceleratorLost", Blame.HARDWARE, Rerun.ELSEWHERE)
    assert report.devices == ("gpu3",)
    assert report.first is not None
    assert report.first.rank == 1


def test_a_fault_that_began_later_or_hit_nobody_here_explains_nothing() -> None:
    late = FaultEvent(device="gpu3", code="79", assertion=Assertion.OCCUR, at=T + 60, node="node1")
    other = FaultEvent(device="gpu9", code="79", assertion=Assertion.OCCUR, at=T - 1, node="node9")
    faults = (
        ActiveFault(event=late, remedy=Remedy.ISOLATE),
        ActiveFault(event=other, remedy=Remedy.ISOLATE, ranks=(9,)),
    )
    assert explain(seen(dead(1, trace("KeyError: 'lr'")), faults=faults)).exception == "KeyError"


@pytest.mark.parametrize(
    ("sick", "well"),
    [
        (dead(1, signal=6, at=0.1, order=1), dead(0, signal=11, order=0)),
        (dead(1, trace(NCCL), at=-0.4, order=0), dead(0, signal=11, order=1)),
        (dead(1, code=3, at=0.5, order=1), dead(0, code=1, order=0)),
        (dead(1, trace(NCCL), at=0.1, order=1), dead(0, code=1, order=0)),
        (dead(1, trace(GLOO_LOST_PEER), at=0.1, order=1), dead(0, trace(GLOO_LOST_PEER), order=0)),
    ],
    ids=["two crashes", "missed first by itself", "two without a word", "words against none", "both accuse"],
)
def test_a_fault_of_any_that_died_first_explains_them_all(sick: WorkerEvidence, well: WorkerEvidence) -> None:
    """Of two that died together the other one would be picked; the device of this one had failed."""
    event = FaultEvent(device="gpu1", code="79", assertion=Assertion.OCCUR, at=T - 1, node="node1")
    fault = ActiveFault(event=event, remedy=Remedy.ISOLATE, ranks=(1,))
    report = explain(seen(well, sick, faults=(fault,)))
    assert (report.phrase, report.blame, report.devices) == ("AcceleratorLost", Blame.HARDWARE, ("gpu1",))
    assert report.first is not None
    assert (report.first.rank, report.collateral) == (1, (0,))


@pytest.mark.parametrize(
    ("fallen", "culprit"),
    [
        (dead(1, trace(NCCL), at=0.1, order=1), dead(0, trace("KeyError: 'lr'"), order=0)),
        (dead(1, signal=6, at=0.4, order=1), dead(0, trace("KeyError: 'lr'"), order=0)),
        (dead(1, signal=15, at=0.1, order=1, after_stop=True), dead(0, trace("KeyError: 'lr'"), order=0)),
    ],
    ids=["only accuses", "later", "stopped by us"],
)
def test_a_fault_of_one_that_only_fell_with_the_culprit_explains_nothing(
    fallen: WorkerEvidence, culprit: WorkerEvidence
) -> None:
    event = FaultEvent(device="gpu1", code="79", assertion=Assertion.OCCUR, at=T - 1, node="node1")
    fault = ActiveFault(event=event, remedy=Remedy.ISOLATE, ranks=(1,))
    report = explain(seen(culprit, fallen, faults=(fault,)))
    assert (report.exception, report.devices) == ("KeyError", ())


def test_a_watched_fault_is_no_cause() -> None:
    event = FaultEvent(device="gpu3", code="63", assertion=Assertion.ONCE, at=T - 1, node="node1")
    fault = ActiveFault(event=event, remedy=Remedy.WATCH)
    assert explain(seen(dead(1, trace("KeyError: 'lr'")), faults=(fault,))).exception == "KeyError"


def test_a_hang_names_its_culprit() -> None:
    hang = HangEvidence(
        attempt=1, silent_s=60, culprits=(2,), why="rank 2 is stopped (state T) while ranks 0 and 1 wait", at=T
    )
    workers = [dead(rank, signal=15, at=9.0, after_stop=True) for rank in range(3)]
    report = explain(
        seen(
            *workers,
            hang=hang,
            stop_asked_at=T + 8,
            stop=StopRequest(reason="hung", source=StopSource.HANG, phrase="HungWorker", at=T),
        )
    )
    assert report.phrase == "HungWorker"
    assert report.first is not None
    assert report.first.rank == 2
    assert "rank 2 is stopped" in report.reason


def test_lost_nodes() -> None:
    report = explain(
        seen(dead(0, trace(GLOO_LOST_PEER)), lost=(LeftBehind(node="node7", silent_s=42.0, ranks=(8, 9)),))
    )
    assert (report.phrase, report.blame) == ("NodeFailed", Blame.NETWORK)
    assert report.devices == ("node7",)
    assert "42 s" in report.reason


@pytest.mark.parametrize(
    ("words", "blame"),
    [
        ("DOWN+NOT_RESPONDING (Not responding)", Blame.NETWORK),
        ("ALLOCATED", Blame.NETWORK),
        ("DOWN (Node unexpectedly rebooted)", Blame.HARDWARE),
        ("DOWN (fan 2 of the chassis)", Blame.HARDWARE),
    ],
)
def test_a_silent_node_is_the_networks_fault_until_something_says_more(words: str, blame: Blame) -> None:
    said = Evidence(kind=EvidenceKind.PLATFORM, text=f"node7: {words}", source="scontrol show node node7", node="node7")
    lost = (LeftBehind(node="node7", silent_s=42.0, ranks=(8, 9)),)
    report = explain(seen(dead(0, trace(GLOO_LOST_PEER)), lost=lost, platform=(said,)))
    assert (report.phrase, report.blame) == ("NodeFailed", blame)


@pytest.mark.parametrize("other", ["node70", "node7-b", "my-node7", "rack.node7"])
def test_words_about_another_node_say_nothing_of_a_silent_one(other: str) -> None:
    said = Evidence(
        kind=EvidenceKind.PLATFORM, text=f"{other}: Node unexpectedly rebooted", source="scontrol", node=other
    )
    lost = (LeftBehind(node="node7", silent_s=42.0, ranks=(8, 9)),)
    report = explain(seen(dead(0, trace(GLOO_LOST_PEER)), lost=lost, platform=(said,)))
    assert (report.phrase, report.blame) == ("NodeFailed", Blame.NETWORK)


def test_a_node_that_is_known_to_be_gone_is_not_the_networks_fault() -> None:
    report = explain(seen(lost=(LeftBehind(node="node7", silent_s=0.0, why="its machine was deleted"),)))
    assert (report.phrase, report.blame) == ("NodeFailed", Blame.HARDWARE)


def test_a_failed_check_has_the_checks_blame() -> None:
    check = CheckFailure(
        check="network", message="all-reduce at 3 GB/s, 40 expected", nodes=("node4",), blame="network"
    )
    report = explain(AttemptEvidence(check=check, phase="CHECKING"))
    assert (report.phrase, report.code, report.blame) == ("CheckFailed", 252, Blame.NETWORK)
    assert "node4" in report.reason


def test_the_deadline_names_who_was_not_ready() -> None:
    workers = (dead(0, signal=15, at=9, after_stop=True), WorkerEvidence(rank=1, node="node1"))
    report = explain(seen(*workers, deadline=Deadline.PREPARE, phase="PREPARING", stop_asked_at=T))
    assert (report.phrase, report.code) == ("GangStartTimeout", 251)
    assert "rank 1 was not made ready" in report.reason
    assert "node1" in report.reason


@pytest.mark.parametrize(
    ("said", "phrase"),
    [
        ("exec: No such file or directory: 'trian'", "CommandNotFound"),
        ("No such file or directory: 'trian.py'", "CodeNotFound"),
        ("[Errno 8] Exec format error: './train'", "ExecFormatError"),
        ("[Errno 13] Permission denied: './train'", "PermissionDenied"),
        ("the command of w, word 3, line 2, column 6: there is no `$PAI_TASK_INDX`: 'PAI_TASK_INDX'", "ConfigInvalid"),
    ],
)
def test_a_worker_that_could_not_be_started(said: str, phrase: str) -> None:
    report = explain(seen(WorkerEvidence(rank=0, start_failed=said)))
    assert report.phrase == phrase
    assert said.split("'")[1] in report.reason
    assert (report.solution == "Correct that name in the command.") is (phrase == "ConfigInvalid")


def test_the_same_failure_has_the_same_fingerprint_and_another_place_another() -> None:
    one = explain(seen(dead(0, trace("ValueError: 17"), at=0.0)))
    again = explain(seen(dead(3, "noise\n" + trace("ValueError: 17"), at=50.0)))
    elsewhere = explain(seen(dead(0, trace("ValueError: 17", frame="/app/other.py"))))
    assert one.fingerprint == again.fingerprint
    assert one.fingerprint != elsewhere.fingerprint


def test_evidence_is_bounded() -> None:
    workers = [dead(rank, trace(f"ValueError: {rank} " + "x" * 9000), at=rank * 1.0, order=rank) for rank in range(300)]
    report = explain(seen(*workers))
    assert len(report.evidence) <= 12
    assert all(len(item.text) <= 2048 for item in report.evidence)
    assert len(report.collateral) == 299


def test_a_bug_of_ours_still_gives_a_report() -> None:
    broken = dead(0, code=7)
    worker = WorkerEvidence(rank=0, exit=broken.exit, stderr="not an excerpt")  # type: ignore[arg-type]  # the bug: text where an excerpt belongs
    report = explain(seen(worker))
    assert (report.phrase, report.code, report.original.exit_code) == ("Unexplained", 255, 7)
    assert report.hint is not None
    assert "bug of holdfast" in report.hint


def test_the_exception_before_an_abort_is_the_cause() -> None:
    words = trace("KeyError: 'lr'") + "Fatal Python error: Aborted\n"
    assert explain(seen(dead(0, words, signal=6))).exception == "KeyError"


def test_the_kernel_log_explains_a_bare_kill_of_this_process_only() -> None:
    def report_with(pid: int) -> str:
        line = f"Out of memory: Killed process {pid} (python) total-vm:9000kB, anon-rss:8000kB, file-rss:0kB"
        kernel = (Evidence(kind=EvidenceKind.KERNEL, text=line, source="kernel log", at=T),)
        return explain(seen(dead(0, signal=9), kernel=kernel)).phrase

    assert report_with(1000) == "HostOutOfMemoryKilled"
    assert report_with(4242) == "KilledBySignal"


def test_who_called_the_kernels_killer_is_not_who_was_killed() -> None:
    invoked = "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"
    killed = "Memory cgroup out of memory: Killed process {} (python) total-vm:9000kB, anon-rss:8000kB"

    def phrase_with(*lines: str) -> str:
        kernel = tuple(Evidence(kind=EvidenceKind.KERNEL, text=line, source="kernel log", at=T) for line in lines)
        return explain(seen(dead(0, signal=9), kernel=kernel)).phrase

    assert phrase_with(invoked, killed.format(4242)) == "KilledBySignal"
    assert phrase_with(invoked, killed.format(1000)) == "HostOutOfMemoryKilled"
    assert phrase_with(invoked) == "HostOutOfMemoryKilled"


def test_the_kernel_log_does_not_overrule_what_the_program_says_of_itself() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1000, name=python, GPU has fallen off the bus."
    kernel = (Evidence(kind=EvidenceKind.KERNEL, text=line, source="kernel log", at=T),)
    assert (
        explain(seen(dead(0, trace("ModuleNotFoundError: No module named 'apex'")), kernel=kernel)).phrase
        == "ModuleNotFound"
    )
    launch = trace("RuntimeError: CUDA error: unspecified launch failure")
    assert explain(seen(dead(0, launch), kernel=kernel)).phrase == "AcceleratorLost"


def test_a_component_that_wrote_its_reason_is_believed_where_the_worker_is_silent() -> None:
    said = (
        Evidence(
            kind=EvidenceKind.LOG, text='1 ERROR REASON "get: /code: No such file or directory"', source="runtime"
        ),
    )
    report = explain(seen(dead(0, code=1), pai_errors=said))
    assert "get: /code: No such file or directory" in report.reason
    assert report.trigger == "runtimeErrorLog"
    assert explain(seen(dead(0, trace("KeyError: 'lr'")), pai_errors=said)).exception == "KeyError"


GLOO_TIMED_OUT = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"
)


def test_the_one_that_still_ran_when_all_others_gave_up_waiting_is_named() -> None:
    report = explain(
        seen(
            dead(0, trace(GLOO_TIMED_OUT), at=0.0, order=1),
            dead(1, "loading shard 7\n", signal=15, at=0.6, order=3, after_stop=True),
            dead(2, trace(GLOO_TIMED_OUT), at=0.01, order=2),
            stop_asked_at=T + 0.5,
        )
    )
    assert report.phrase == "CollectiveTimeout"
    assert report.first is not None and (report.first.rank, report.first.node) == (1, "node1")
    assert report.reason.startswith("ranks 0 and 2 timed out in a collective (RuntimeError: ")
    assert "rank 1 on node1 alone still ran" in report.reason
    assert report.collateral == (0, 2) and report.original.signal is None and report.confidence <= 0.5


@pytest.mark.parametrize("running", [(1, 2), ()])
def test_nobody_is_named_missing_where_several_or_none_still_ran(running: tuple[int, ...]) -> None:
    workers = [
        dead(rank, "", signal=15, at=0.6, order=9, after_stop=True)
        if rank in running
        else dead(rank, trace(GLOO_TIMED_OUT), at=rank / 100, order=rank)
        for rank in range(4)
    ]
    report = explain(seen(*workers, stop_asked_at=T + 0.5))
    assert report.first is not None and report.first.rank == 0 and "still ran" not in report.reason


def test_a_status_that_nothing_explains_comes_with_the_last_line() -> None:
    report = explain(seen(dead(1, "starting\nthe config is wrong: lr must be positive\n")))
    assert report.phrase == "Unexplained"
    assert report.reason.endswith("its last line: the config is wrong: lr must be positive")
    assert report.evidence[0].source == "worker-1 stderr:2"
    assert explain(seen(dead(1, ""))).reason.endswith("exited with status 1 and printed nothing")


def test_a_native_crash_is_told_with_its_exception_and_pythons_line() -> None:
    where = 'Current thread 0x7f (most recent call first):\n  File "/w/t.py", line 16 in step\n'
    stack = f"Fatal Python error: Aborted\n\n{where}"
    thrown = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad thing\n"
    report = explain(seen(dead(1, thrown + stack, signal=6)))
    assert (report.phrase, report.code) == ("NativeCrash", 234)
    assert "a C++ exception that it did not catch, std::runtime_error: bad thing" in report.reason
    assert report.reason.endswith("Python was in step (/w/t.py:16)")
    fault = stack.replace("Aborted", "Segmentation fault")
    assert explain(seen(dead(1, fault, signal=11))).reason.endswith("Python was in step (/w/t.py:16)")


def test_a_hang_without_stacks_says_what_would_give_them() -> None:
    shots = tuple(
        RankSnapshot(rank=rank, pid=1, at=T, stack_source=source)
        for rank, source in enumerate(["py-spy is not installed", "py-spy is not installed; the process is stopped"])
    )
    threads = (ThreadState(tid=1, name="python3", state="S", waits_in="futex"),)
    shots = (replace(shots[0], threads=threads), shots[1])
    hang = HangEvidence(attempt=1, silent_s=60, culprits=(0,), why="rank 0 stands", at=T, looks=(shots,))
    workers = [dead(rank, signal=15, at=9.0, after_stop=True) for rank in range(2)]
    report = explain(seen(*workers, hang=hang, stop_asked_at=T + 8))
    assert report.solution.startswith("Install py-spy")
    assert "/proc, no stack: py-spy is not installed" in [item.source for item in report.evidence]
    stacked = replace(hang, looks=((replace(shots[0], stack_source="py-spy"), shots[1]),))
    assert "Look at the stacks" in explain(seen(*workers, hang=stacked, stop_asked_at=T + 8)).solution


def test_a_signal_that_holdfast_passed_on_is_told_so() -> None:
    worker = dead(0, "step 3\n", signal=10)
    report = explain(seen(worker, passed_on=(10,)))
    assert report.phrase == "KilledBySignal" and report.code == 138
    assert "ended by SIGUSR1, which holdfast had got and passed on" in report.reason
    assert "the sender and the reason are unknown" in explain(seen(worker, passed_on=(12,))).reason
