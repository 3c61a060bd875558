"""Words of a failure are a cause only if their sentence states one, and if the job did not go on after them."""

# ruff: noqa: E501 - a log's line stays one line
from __future__ import annotations

import pytest
from explain_builders import of_one_log

from holdfast.explain.logs.line_roles import Role, may_cause, role_of

SENTENCES = [
    (Role.STATES, "the disk of /scratch is full", 0),
    (Role.STATES, "CUDA out of memory. If you see this again, lower the batch size.", 0),
    (Role.ADVISES, "CUDA graphs take memory. If you run out of memory, consider decreasing the limit.", 35),
    (Role.ADVISES, "Please consider lowering the batch size: out of memory errors are likely", 45),
    (Role.ADVISES, "To avoid out of memory, set expandable_segments", 9),
    (Role.ADVISES, "Note that a connection refused here is harmless", 12),
    (Role.ADVISES, "When you hit a NCCL timeout, raise the limit", 13),
    (Role.PLANS, "workers that run out of memory will be killed after 30 s", 13),
    (Role.PLANS, "on CUDA out of memory the step will be retried", 3),
    (Role.QUOTES, '  "NCCL timeout"   -> raise --timeout', 3),
    (Role.QUOTES, '+ echo "no space left on device"', 8),
    (Role.QUOTES, 'logger.error("out of memory")', 14),
    (Role.WARNS, "UserWarning: 2 of 8 files are corrupt", 13),
    (Role.WARNS, "sample 12 is corrupt, skipping it", 10),
    (Role.WARNS, "connection refused, retrying in 3 s", 0),
]  # fmt: skip


@pytest.mark.parametrize(("role", "text", "start"), SENTENCES)
def test_a_sentence_has_the_role_of_its_form(role: Role, text: str, start: int) -> None:
    assert role_of(text, start) is role


def test_a_level_is_the_role_of_a_plain_sentence() -> None:
    assert [role_of("disk full", 0, level) for level in ("", "E", "W", "I", "D")] == [
        Role.STATES, Role.STATES, Role.WARNS, Role.INFORMS, Role.INFORMS,
    ]  # fmt: skip


def test_advice_plans_and_quotes_are_never_causes_and_warnings_are_if_nothing_followed() -> None:
    never = {role for role in Role if not may_cause(role, followed=False)}
    assert never == {Role.ADVISES, Role.PLANS, Role.QUOTES}
    assert {role for role in Role if may_cause(role, followed=True)} == {Role.STATES}


TRACE = 'Traceback (most recent call last):\n  File "/w/fit.py", line 3, in step\n    f()\n'
FULL = "(raylet) [2026-01-05 08:10:00,000 E 9 9] (raylet) file_system_monitor.cc:111: /tmp/ray/s is over 95% full, available space: 15; capacity: 37. Object creation will fail if spilling is required."


@pytest.mark.parametrize(
    "text",
    [
        "(Worker pid=5) INFO 05-02 10:11:02 If you get an out of memory error, consider decreasing `gpu_memory_utilization`.",
        f"{FULL}\n(fit pid=1) epoch 0, step 2\n{FULL}",
        "[launcher] if a worker fails all others will be killed with SIGKILL",
        f"===> Epoch[1](200/900): Loss: 0.9\n^C{TRACE}KeyboardInterrupt\n" + "".join(
            f"===> Epoch[{n}](100/900): Loss: 0.{n}\n" for n in (1, 2, 3, 4)
        ),
        f"$ python fit.py --bs 64\n{TRACE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n$ python fit.py --bs 8\nEpoch 1/3 - loss 1.4\nEpoch 2/3 - loss 1.1",
        "(raylet) node_manager.cc:3064: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed\n"
        + "".join(f"(Trainer pid=8) step={n} loss=1.7\n" for n in range(5)),
    ],
    ids=["advice", "standing", "plan", "later run", "prompt", "other stream"],
)  # fmt: skip
def test_what_the_job_survived_is_no_cause(text: str) -> None:
    report = of_one_log(text)
    assert report.phrase == "Unexplained"
    assert report.reason.startswith("no failure found in ")


def test_ranks_that_store_their_output_are_no_later_runs() -> None:
    """Their counters begin again too, and go about as far."""
    steps = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 30))
    assert of_one_log(f"{steps}{TRACE}KeyError: 'label'\n{steps}").phrase == "UserException"


def test_an_info_line_at_the_very_end_may_be_the_cause() -> None:
    text = "2026-02-03 11:00:00 INFO worker started\n2026-02-03 11:00:02 INFO [Errno 28] No space left on device: '/x'"
    assert of_one_log(text).phrase == "DiskFull"
    assert of_one_log(f"{text}\n2026-02-03 11:00:03 INFO the next file is read").phrase == "Unexplained"
