"""A report has the best two causes of other classes that the logs show, and what decided against each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from builders import T
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, StopRequest, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast.record.report_file import exit_report_object
from holdfast_testing.labelled_logs import records

OUT_OF_GPU_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has 79 GiB"
DISK_FULL = "OSError: [Errno 28] No space left on device: '/scratch/ckpt'"
RAISED = 'Traceback (most recent call last):\n  File "/app/train.py", line 88, in <module>\n    main()\n'


def of_log(text: str) -> ExitReport:
    return explain(AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source="job.log", text=text)),)))


def rivals(report: ExitReport) -> list[tuple[str, int, str]]:
    return [(each.row, each.line.number, each.against) for each in report.because.rivals]


def test_a_line_of_a_weaker_kind_is_a_rival() -> None:
    report = of_log(
        f"{RAISED}{OUT_OF_GPU_MEMORY}\n"
        "terminate called without an active exception\n*** Process received signal ***\nSignal: Aborted (6)\n"
    )
    assert report.phrase == "AcceleratorOutOfMemory"
    assert [row for row, *_ in rivals(report)] == ["NativeCrash"]
    assert all("counts less than the exception that ended the program" in against for *_, against in rivals(report))


def test_an_error_that_the_program_survived_is_a_rival() -> None:
    stamp = "2026-11-20 22:00:{:02},000 "
    went_on = "".join(f"{stamp.format(10 + number)}step {number} loss 2.5\n" for number in range(20))
    report = of_log(f"{stamp.format(1)}start\n{RAISED}{DISK_FULL}\n{went_on}{RAISED}{OUT_OF_GPU_MEMORY}\n")
    assert report.phrase == "AcceleratorOutOfMemory"
    assert rivals(report) == [("DiskFull", 5, "the program went on after it")]


def test_an_error_before_lines_without_times_that_look_like_progress_is_a_rival() -> None:
    report = of_log(f"{RAISED}{DISK_FULL}\nstep 7 loss 2.5\n{RAISED}{OUT_OF_GPU_MEMORY}\n")
    assert rivals(report) == [("DiskFull", 4, "lines that look like progress follow it")]


def test_the_line_that_comes_later_is_a_rival() -> None:
    report = of_log(f"{RAISED}{OUT_OF_GPU_MEMORY}\n{RAISED}{DISK_FULL}\n")
    assert (report.phrase, rivals(report)) == (
        "AcceleratorOutOfMemory",
        [("DiskFull", 8, "it comes after the deciding line")],
    )


def worker(rank: int, text: str, at: float) -> WorkerEvidence:
    ended = WorkerExit(role="worker", rank=rank, node="a", attempt=1, pid=7, exit_code=1, ended_at=at, order=rank + 1)
    return WorkerEvidence(rank=rank, log=LogExcerpt(source=f"{rank}.log", text=text), exit=ended)


def test_the_cause_of_a_rank_that_failed_later_is_a_rival() -> None:
    both = (worker(0, f"{RAISED}{OUT_OF_GPU_MEMORY}\n", T), worker(1, f"{RAISED}{DISK_FULL}\n", T + 5))
    report = explain(AttemptEvidence(workers=both))
    assert rivals(report) == [("DiskFull", 4, "it is of rank 1, and rank 0 failed first")]


def test_a_request_comes_before_what_the_logs_say() -> None:
    stopped = replace(worker(0, f"{RAISED}{OUT_OF_GPU_MEMORY}\n", T + 5), rank=0)
    report = explain(AttemptEvidence(workers=(stopped,), stop=StopRequest(reason="enough", at=T)))
    assert rivals(report) == [
        ("AcceleratorOutOfMemory", 4, "the rule `asked_to_stop` comes before the lines of logs"),
    ]


def test_secrets_in_a_rival_are_masked_and_it_is_in_the_json() -> None:
    report = of_log(f"{RAISED}{OUT_OF_GPU_MEMORY}\n{RAISED}{DISK_FULL} api_key=abcdef0123456789\n")
    found: Any = exit_report_object(report)["because"]["rivals"]
    assert [(each["row"], each["wording"] != "", each["line"]["number"]) for each in found] == [("DiskFull", True, 8)]
    assert "abcdef0123456789" not in found[0]["line"]["text"]


def test_no_labelled_log_has_more_than_two_rivals_or_its_own_class_among_them() -> None:
    found = [(name, explain(evidence)) for name, evidence in records()]
    wrong = [
        name
        for name, report in found
        if len({report.phrase, *(each.row for each in report.because.rivals)}) != len(report.because.rivals) + 1
        or len(report.because.rivals) > 2
        or not all(each.against and each.line.text for each in report.because.rivals)
    ]
    assert wrong == []
    assert sum(bool(report.because.rivals) for _, report in found) > 100
