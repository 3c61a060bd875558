"""Several logs of one job, with ends that no operating system dated: the caller tells them, or a launcher's summary."""

from __future__ import annotations

from pathlib import Path

import pytest
from explain_builders import of_files

from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast.node.explain_files import explain_files

FIVE_STEPS = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 6))
RESET_BY_PEER = (
    f"{FIVE_STEPS}Traceback (most recent call last):\n"
    '  File "/w/train.py", line 47, in read\n    data = peer.recv(8)\n'
    "ConnectionResetError: [Errno 104] Connection reset by peer\n"
)
RANK0_LOST_PEER = (
    f"{FIVE_STEPS}[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/w/train.py", line 41, in main\n[rank0]:     loss.backward()\n'
    "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:49857.\n"
)
NO_LABELS = (
    f"{FIVE_STEPS}Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\nKeyError: 'labels'\n"
)
USAGE = "usage: train.py [-h] [--lr LR]\ntrain.py: error: argument --lr: invalid float value: 'fast'\n"
SENDING = (
    "W1122 22:04:35.595000 29318 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {pid} closing"
    " signal SIGTERM\n"
)
OOM_LINE = (
    "[ 4242.101] Memory cgroup out of memory: Killed process 29525 (python) total-vm:9331204kB, anon-rss:8123412kB,"
    " file-rss:1024kB, shmem-rss:0kB, UID:0 pgtables:16412kB oom_score_adj:0\n"
)


def failures_box(*ends: tuple[int, int], stopped: int = 0) -> str:
    """torchrun's summary: (rank, exit code) of each that it lists, the root cause last."""

    def one(index: int, rank: int, code: int) -> str:
        says = (
            f"Signal {-code} (SIGTERM) received by PID {29500 + rank}" if code == -15 else "To enable traceback see: x"
        )
        return (
            f"[{index}]:\n  time      : 2026-11-22_22:04:35\n  host      : node-1\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {29500 + rank})\n"
            f"  error_file: <N/A>\n  traceback : {says}\n"
        )

    *others, root = ends
    listed = "".join(one(n, *end) for n, end in enumerate(others, 1))
    return (
        "".join(SENDING.format(pid=29500 + n) for n in range(stopped))
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{listed}{'-' * 60}\n"
        + f"Root Cause (first observed failure):\n{one(0, *root)}{'=' * 60}\n"
    )


def of_ends(*ranks: tuple[str, int]) -> ExitReport:
    """Logs with ends that have no dates: (log, status), a signal below zero."""
    workers = []
    for rank, (text, code) in enumerate(ranks):
        ended = WorkerExit(
            role="worker", rank=rank, node="", attempt=1,
            exit_code=code if code >= 0 else None, signal=-code if code < 0 else None,
        )  # fmt: skip
        workers.append(WorkerEvidence(rank=rank, log=LogExcerpt(source=f"rank-{rank}.log", text=text), exit=ended))
    return explain(AttemptEvidence(workers=tuple(workers)))


def ranks_named(report: ExitReport) -> list[int | None]:
    return [one.rank for one in (report.first, *report.also) if one is not None]


@pytest.mark.parametrize(
    ("code", "phrase"), [(-11, "NativeCrash"), (-6, "NativeCrash"), (-15, "KilledBySignal"), (17, "Unexplained")]
)
def test_a_rank_that_left_without_a_word_comes_before_those_that_lost_the_connection(code: int, phrase: str) -> None:
    report = of_ends((RESET_BY_PEER, 1), (RESET_BY_PEER, 1), (FIVE_STEPS, code), (RESET_BY_PEER, 1))
    assert (report.phrase, ranks_named(report)) == (phrase, [2])
    assert report.collateral == (0, 1, 3)
    assert report.reason.startswith("rank 2")


def test_an_exception_comes_before_a_lost_connection() -> None:
    report = of_ends((RESET_BY_PEER, 1), (RESET_BY_PEER, 1), (NO_LABELS, 1))
    assert (report.phrase, ranks_named(report)) == ("UserException", [2])


def test_a_connection_that_all_lost_is_the_cause() -> None:
    assert of_ends((RESET_BY_PEER, 1), (RESET_BY_PEER, 1)).phrase == "NetworkLost"


def test_a_usage_message_of_all_ranks_has_no_culprit() -> None:
    report = of_ends((USAGE, 2), (USAGE, 2), (USAGE, 2))
    assert (report.phrase, ranks_named(report)) == ("InvalidArguments", [])
    assert "all 3 ranks said the same" in report.reason


def test_the_root_cause_of_torchrun_is_joined_with_that_ranks_own_log() -> None:
    logs = [
        ("0/stderr.log", RANK0_LOST_PEER),
        ("1/stderr.log", RANK0_LOST_PEER.replace("rank0", "rank1")),
        ("2/stdout.log", FIVE_STEPS),
    ]
    report = of_files(*logs, ("launcher.log", failures_box((0, -15), (1, -15), (2, 17), stopped=2)))
    assert (report.phrase, ranks_named(report)) == ("Unexplained", [2])
    assert "rank 2: exited with status 17" in report.reason
    report = of_files(*logs, ("launcher.log", failures_box((0, -15), (1, -15), (2, -15), stopped=2)))
    assert (report.phrase, ranks_named(report)) == ("KilledBySignal", [2])


def test_the_root_cause_of_torchrun_yields_to_a_rank_with_a_cause_of_its_own() -> None:
    logs = [
        ("rank-0.log", RANK0_LOST_PEER),
        ("rank-1.log", NO_LABELS),
        ("rank-2.log", RANK0_LOST_PEER.replace("rank0", "rank2")),
    ]
    for end in (1, -15):
        report = of_files(*logs, ("launcher.log", failures_box((1, end), (2, -15), (0, 1), stopped=1)))
        assert (report.phrase, ranks_named(report)) == ("UserException", [1])


def test_a_rank_that_torchrun_neither_stopped_nor_lists_had_left_early() -> None:
    logs = [
        ("0/stderr.log", RANK0_LOST_PEER),
        ("1/stderr.log", RANK0_LOST_PEER.replace("rank0", "rank1")),
        ("2/stdout.log", "no more data\n"),
    ]
    report = of_files(*logs, ("launcher.log", failures_box((1, -15), (0, 1), stopped=1)))
    assert (report.phrase, ranks_named(report)) == ("CollectiveMismatch", [2])
    # Where it was stopped itself, it had not left.
    report = of_files(*logs, ("launcher.log", failures_box((1, -15), (0, 1), stopped=2)))
    assert report.phrase != "CollectiveMismatch"


def test_the_kernel_s_file_says_why_a_rank_was_killed() -> None:
    logs = [("rank-0.log", RANK0_LOST_PEER), ("rank-1.log", FIVE_STEPS)]
    report = of_files(*logs, ("launcher.log", failures_box((0, -15), (1, -9), stopped=1)), ("dmesg.txt", OOM_LINE))
    assert (report.phrase, ranks_named(report)) == ("HostOutOfMemoryKilled", [1])


def test_a_scheduler_s_word_comes_before_any_rank_s_end() -> None:
    limit = "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-11-22T10:00:00 DUE TO TIME LIMIT ***\n"
    logs = [("rank-0.log", RANK0_LOST_PEER), ("rank-1.log", FIVE_STEPS)]
    report = of_files(*logs, ("slurm-77.out", failures_box((0, -15), (1, -15), stopped=2) + limit))
    assert report.phrase == "TimeLimitReached"


def test_a_file_s_rank_is_the_one_of_its_name() -> None:
    logs = [("rank10.log", RANK0_LOST_PEER.replace("[rank0]: ", "")), ("rank2.log", FIVE_STEPS)]
    report = of_files(*logs, ("launcher.log", failures_box((10, -15), (2, -11), stopped=1)))
    assert (report.phrase, ranks_named(report)) == ("NativeCrash", [2])
    assert report.collateral == (10,)


def test_a_peer_that_notices_first_is_not_the_cause() -> None:
    """A core dump takes a while: the sockets of the one that crashed are closed before its end is told."""

    def ended(rank: int, at: float, order: int, code: int | None, signal: int | None) -> WorkerExit:
        return WorkerExit(
            role="worker", rank=rank, node="n1", attempt=1, pid=70 + rank, ended_at=1.7e9 + at, order=order,
            exit_code=code, signal=signal,
        )  # fmt: skip

    workers = (
        WorkerEvidence(
            rank=0, node="n1", exit=ended(0, 0.0, 1, 1, None), stderr=LogExcerpt(source="0", text=RESET_BY_PEER)
        ),
        WorkerEvidence(
            rank=1, node="n1", exit=ended(1, 0.1, 2, None, 11), stderr=LogExcerpt(source="1", text=FIVE_STEPS)
        ),
    )
    report = explain(AttemptEvidence(workers=workers))
    assert (report.phrase, ranks_named(report)) == ("NativeCrash", [1])


def test_a_rank_without_a_file_is_known_by_the_launcher_alone() -> None:
    logs = [("rank-0.log", RANK0_LOST_PEER), ("rank-1.log", RANK0_LOST_PEER.replace("rank0", "rank1"))]
    report = of_files(*logs, ("launcher.log", failures_box((0, -15), (1, -15), (2, 17), stopped=2)))
    assert (report.phrase, ranks_named(report)) == ("Unexplained", [2])
    assert report.reason == "rank 2: exited with status 17 and its log is not among these"
    assert report.collateral == (0, 1)


def test_what_stands_in_the_launcher_s_file_of_a_rank_without_a_file_is_read() -> None:
    traceback = NO_LABELS.replace(FIVE_STEPS, "").replace("\n", "\n[rank2]: ").removesuffix("[rank2]: ")
    told = f"[rank2]: {traceback}{failures_box((0, -15), (2, 1), stopped=1)}"
    report = of_files(("rank-0.log", RANK0_LOST_PEER), ("rank-1.log", FIVE_STEPS), ("job.log", told))
    assert (report.phrase, ranks_named(report)) == ("UserException", [2])


def test_two_streams_of_a_rank_are_one_worker_s(tmp_path: Path) -> None:
    names = {
        "0/stdout.log": FIVE_STEPS,
        "0/stderr.log": RANK0_LOST_PEER,
        "2/stdout.log": FIVE_STEPS,
        "2/stderr.log": NO_LABELS,
    }
    for name, text in names.items():
        path = tmp_path / "attempt_0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "launcher.log").write_text(failures_box((0, -15), (2, 1), stopped=1))
    files = [str(tmp_path / "attempt_0" / name) for name in sorted(names)]
    report = explain_files([*files, str(tmp_path / "launcher.log")])
    assert (report.phrase, ranks_named(report), report.collateral) == ("UserException", [2], (0,))
    assert report.evidence[0].source.startswith(str(tmp_path / "attempt_0" / "2" / "stderr.log"))


def test_a_crash_of_another_program_in_the_kernel_s_file_is_no_cause() -> None:
    other = "[50276.504] python[30226]: segfault at 8 ip 00007f22fc585ad8 sp 00007ffc1ac9d388 error 4 in libc.so.6\n"
    logs = [("rank-0.log", RANK0_LOST_PEER), ("rank-1.log", FIVE_STEPS)]
    report = of_files(*logs, ("launcher.log", failures_box((0, -15), (1, -9), stopped=1)), ("dmesg.txt", other))
    assert (report.phrase, ranks_named(report)) == ("KilledBySignal", [1])
