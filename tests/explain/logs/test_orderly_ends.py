"""A log that ends well is a success, by what its last statement says; one without an end is none."""

# ruff: noqa: E501 - a log's line stays one line
from __future__ import annotations

import pytest
from explain_builders import of_one_log, of_texts, trace

STEPS = "".join(f"step {n} loss 2.{n}\n" for n in range(4))


@pytest.mark.parametrize(
    "end",
    [
        "JobID|State|ExitCode\n81|COMPLETED|0:0", "   JobState=COMPLETED Reason=None", "81   fit   COMPLETED      0:0",
        "Successfully completed.", "\t(1) Normal termination (return value 0)", "    Exit_status = 0",
        "exit_status  0", "      Reason:       Completed\n      Exit Code:    0", "Job 'raysubmit_a' succeeded",
        "fit-1 exited with code 0", "Process finished with exit code 0",
        "2026-01-01 10:00:00,000 INFO exited: fit (exit status 0; expected)",
        "[launch.py:347:main] Process 812 exits successfully.",
        "Training finished successfully.", "Training complete. Best accuracy 0.91", "All done!", "Done in 31.2s",
        "Fine-tuning has completed", "`Trainer.fit` stopped: `max_steps=100` reached.", "all epochs done",
        "{'train_runtime': 75.2, 'train_loss': 0.7, 'epoch': 2.0}", "the run finished with 0 errors",
        "Final checkpoint written to /out/last.pt", "epoch 10/10 finished, training completed",
        "===== 14 passed, 2 skipped in 3.21s =====", "Ran 8 tests in 1.2s\n\nOK",
    ],
)  # fmt: skip
def test_a_statement_of_success_is_believed(end: str) -> None:
    report = of_one_log(STEPS + end)
    assert (report.phrase, report.code, report.rerun) == ("Succeeded", 0, "never")
    assert report.because.line is not None
    assert report.because.line.text in end


@pytest.mark.parametrize(
    "end",
    [
        "training was not completed", "waiting until training is done", "epoch 3 finished", "initialization done",
        "Successfully loaded the model", "the run finished with 3 errors", "0 of 8 jobs completed before the timeout",
        "if everything is done press enter", "loading checkpoint shards: done", "step 3 completed",
    ],
)  # fmt: skip
def test_other_words_are_no_success(end: str) -> None:
    assert of_one_log(STEPS + end).phrase == "Unexplained"


def test_what_comes_after_a_statement_of_success_counts() -> None:
    done = f"{STEPS}Training complete.\n"
    assert of_one_log(done + trace("KeyError: 'name'")).phrase == "UserException"
    assert of_one_log(f"{done}{STEPS}").phrase == "Unexplained"
    assert of_one_log(f"{done}Segmentation fault (core dumped)").phrase == "NativeCrash"


def test_a_failed_rank_beside_one_that_succeeded_is_the_cause() -> None:
    report = of_texts(f"{STEPS}Training complete.\n", STEPS + trace("KeyError: 'name'"))
    assert report.phrase == "UserException"
    assert of_texts(f"{STEPS}Training complete.\n", STEPS).phrase == "Unexplained"
    assert of_texts(f"{STEPS}Training complete.\n", f"{STEPS}Training complete.\n").phrase == "Succeeded"


@pytest.mark.parametrize(
    "text",
    [
        "INFO:     Shutting down\nINFO:     Application shutdown complete.\nINFO:     Finished server process [1]",
        "[2026-01-01 10:30:00 +0000] [7] [INFO] Handling signal: term\n[2026-01-01 10:30:01 +0000] [7] [INFO] Shutting down: Master",
        "Signal (15) received.\nI0301 10:20:00.000000 1 server.cc:351] All models are stopped, unloading models",
        "received SIGTERM, draining\nserver stopped gracefully",
    ],
)  # fmt: skip
def test_a_server_that_was_asked_to_stop_was_stopped(text: str) -> None:
    report = of_one_log(text)
    assert (report.phrase, report.blame) == ("StoppedByOperator", "operator")


def test_another_server_that_has_shut_down_is_no_orderly_end() -> None:
    assert of_one_log("lost it: did the remote server has shutdown?").phrase == "Unexplained"


DUMP = """step 10 loss 2.0
Fatal Python error: Aborted

Thread 0x00007f12 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
Current thread 0x00007f13 (most recent call first):
  File "{file}", line 331 in {where}
  File "/w/fit.py", line 8 in main
"""


def test_a_process_that_was_aborted_while_it_waited_hung() -> None:
    report = of_one_log(DUMP.format(file="/usr/lib/python3.11/threading.py", where="wait"))
    assert (report.phrase, report.rerun) == ("HungWorker", "unknown")
    assert "wait" in report.reason
    assert of_one_log(DUMP.format(file="/w/native.py", where="parse")).phrase == "NativeCrash"


def test_what_holdfast_reported_in_a_log_is_believed() -> None:
    dump = DUMP.format(file="/w/native.py", where="parse")
    told = "holdfast: job 7 (fit) FAILED: HungWorker (exit code 248) after 1 attempt, 5 min"
    report = of_one_log(f"{dump}{told}\n")
    assert (report.phrase, report.code) == ("HungWorker", 248)
    assert report.because.line is not None
    assert report.because.line.text == told
    assert of_one_log(f"{STEPS}holdfast: job 7 (fit) SUCCEEDED after 1 attempt, 5 min\n").phrase == "Succeeded"
    assert of_one_log(f"{dump}{told.replace('HungWorker', 'NoSuchClass')}").phrase == "NativeCrash"
