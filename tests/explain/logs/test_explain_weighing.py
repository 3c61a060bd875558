"""Which of several words in one log is believed: details before summaries, causes before how it ended."""

from __future__ import annotations

import pytest

from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import Blame, ExitReport, WorkerExit

TRACEBACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 88, in <module>\n    main()\n'
PEER_LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.3]:33333\n"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    " of which 4.06 GiB is free.\n"
)


def report_on(text: str, code: int | None = None, signal: int | None = None, *, typed: bool = True) -> ExitReport:
    pid = None if typed else 77
    ended = WorkerExit(
        role="worker", rank=0, node="", attempt=1, exit_code=code, signal=signal, pid=pid, last_words=text
    )
    known = code is not None or signal is not None
    worker = WorkerEvidence(rank=0, log=LogExcerpt(source="0.log", text=text), exit=ended if known else None)
    return explain(AttemptEvidence(workers=(worker,)))


def nccl(detail: str, summary: str = "unhandled system error") -> str:
    lines = [
        *TRACEBACK.splitlines(),
        f"torch.distributed.DistBackendError: NCCL error in: ../c10d/NCCLUtils.hpp:268, {summary}, NCCL version 2.20.5",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "Last error:",
        detail,
    ]
    return "".join(f"[rank3]: {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("detail", "phrase"),
    [
        ("socketStartConnect: Connect to 10.4.2.3<43211> failed : Connection refused", "CollectiveConnectFailed"),
        ("Call to ibv_modify_qp failed with error Connection timed out", "CollectiveConnectFailed"),
        ("Cuda failure 2 'out of memory'", "AcceleratorOutOfMemory"),
        ("Error while creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888)", "SharedMemoryExhausted"),
    ],
)
def test_the_last_error_says_more_than_its_summary(detail: str, phrase: str) -> None:
    assert report_on(nccl(detail), 1).phrase == phrase


def test_between_workers_a_first_hand_word_comes_before_an_earlier_hint() -> None:
    text = (
        "HCCL function error: hcclCommInitRootInfoConfig, error code is 7\n"
        "EI0006: [PID: 711] 2026-04-12-10:22:11.134 Getting socket times out. Reason: Remote Rank did not send.\n"
    )
    assert report_on(text, 1).phrase == "CollectiveConnectFailed"


def test_the_message_of_torch_npu_goes_on_over_its_own_stamped_lines() -> None:
    said = report_on(
        TRACEBACK + "RuntimeError: words that nobody knows\n"
        "[ERROR] 2026-04-12-10:22:11 (PID:711, Device:5, RankID:13) ERR02200 DIST call hccl api failed.\n"
        "EJ0001: [PID: 711] 2026-04-12-10:22:11.134 Failed to initialize the HCCP process. Reason: Maybe the last"
        " training process is running.\n",
        1,
    )
    assert (said.phrase, said.blame) == ("CollectiveSystemError", Blame.PLATFORM)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("ending", [{"code": 134}, {"signal": 6}])
def test_who_aborts_because_a_peer_went_away_did_not_crash(ending: dict[str, int], typed: bool) -> None:
    text = (
        "[rank3]: RuntimeError: NCCL error: ncclRemoteError: remote process exited or there was a network error\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "Aborted (core dumped)\n"
    )
    assert report_on(text, **ending, typed=typed).phrase == "PeerLost"


def test_an_abort_without_a_word_about_peers_is_a_crash() -> None:
    text = "terminate called after throwing an instance of 'my::Odd'\nAborted (core dumped)\n"
    assert report_on(text, 134).phrase == "NativeCrash"
    assert report_on(text, signal=6, typed=False).phrase == "NativeCrash"


def test_an_exception_without_words_is_named_once() -> None:
    assert report_on(TRACEBACK + "AssertionError\n", 1).reason.count("AssertionError") == 1


def gang_of_endings(endings: list[str]) -> AttemptEvidence:
    workers = []
    for rank, ending in enumerate(endings):
        text = TRACEBACK + ending
        ended = WorkerExit(
            role="worker", rank=rank, node="n1", attempt=1, exit_code=1, pid=100 + rank,
            ended_at=1_000_000.0 + rank / 100, order=rank + 1, last_words=text,
        )  # fmt: skip
        log = LogExcerpt(source=f"worker-{rank} stderr", text=text)
        workers.append(WorkerEvidence(rank=rank, stderr=log, exit=ended))
    return AttemptEvidence(workers=tuple(workers))


@pytest.mark.parametrize("place", [0, 1, 5, 40, 63])
def test_of_many_deaths_the_one_with_its_own_cause_is_found_wherever_it_stands(place: int) -> None:
    endings = [PEER_LOST] * 64
    endings[place] = OUT_OF_MEMORY
    said = explain(gang_of_endings(endings))
    assert said.phrase == "AcceleratorOutOfMemory"
    assert said.first is not None
    assert said.first.rank == place
    assert len(said.collateral) == 63


def test_of_many_that_die_of_the_same_at_the_same_place_none_is_the_culprit() -> None:
    said = explain(gang_of_endings([OUT_OF_MEMORY] * 64))
    assert said.first is None
    assert "all 64 ranks raised the same torch.OutOfMemoryError" in said.reason


def test_of_many_own_deaths_the_first_is_the_culprit() -> None:
    said = explain(gang_of_endings([f"ValueError: no shard for {chr(97 + rank % 26)}{rank}\n" for rank in range(64)]))
    assert said.first is not None
    assert said.first.rank == 0
    assert said.also == ()
