"""Real jobs that fail again and again: those that get further go on, those that do not are ended."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from conftest import Holdfast
from holdfast.decide.gang import Gang
from holdfast.record.job_views import events

pytestmark = pytest.mark.real


def decision_kinds(report: dict[str, Any]) -> list[str]:
    return [attempt["decision"]["kind"] for attempt in report["attempts"]]


@pytest.mark.parametrize(
    "line",
    [
        "print('step', number, 'loss', 1 / number, flush=True)",
        "print(f'\\r{number}%|####      | {number}/100 [00:01<00:02, 3.0it/s]', end='', file=sys.stderr, flush=True)",
    ],
)
def test_a_job_whose_output_advances_is_not_given_up(holdfast: Holdfast, line: str) -> None:
    """It resumes where it was, and dies of the same signal every ten steps."""
    script = holdfast.script(
        f"""
        import os, signal, sys
        start = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) * 10
        for number in range(start + 1, min(start + 11, 66)):
            {line}
        if number < 65:
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    report = holdfast.run("--max-restarts", "2", script).report
    assert decision_kinds(report) == ["restart"] * 6 + ["succeed"]
    assert [sign["kind"] for sign in report["attempts"][1]["signs"]] == ["count"]
    assert "restart 1 of 2" in report["attempts"][5]["decision"]["reason"]
    assert "in attempt 5" in report["attempts"][5]["decision"]["reason"]


@pytest.mark.parametrize(
    "line",
    [
        "print(f'=== iteration {number} ===', flush=True)",
        "print(f'srun step {number + 1}', flush=True)",
        "print(f'run step={os.getpid()} of the launcher', flush=True)",
        "print(f'epoch {number}, port 295{number}', flush=True); print('step 1', flush=True)",
    ],
)
def test_a_number_that_rises_with_each_attempt_is_no_progress(holdfast: Holdfast, line: str) -> None:
    script = holdfast.script(
        f"""
        import os
        number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        {line}
        raise ValueError("config.hidden_size is not a multiple of num_heads")
        """
    )
    assert decision_kinds(holdfast.run("--max-restarts", "2", script).report) == ["restart", "fail"]


@pytest.mark.parametrize("end", ["sys.exit(7)", "os.kill(os.getpid(), signal.SIGSEGV)", "raise ValueError('no')"])
def test_the_same_failure_twice_ends_a_job_that_prints_the_same_steps(holdfast: Holdfast, end: str) -> None:
    script = holdfast.script(
        f"""
        import os, signal, sys
        for step in range(5):
            print("epoch 1 step", step, flush=True)
        {end}
        """
    )
    report = holdfast.run(script).report
    assert decision_kinds(report) == ["restart", "fail"]
    assert "no sign of progress was seen" in report["attempts"][1]["decision"]["reason"]


def test_another_text_is_another_failure(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os
        attempt = int(os.environ["HOLDFAST_ATTEMPT"])
        if attempt < 4:
            raise ValueError(f"not yet {attempt}")
        """
    )
    assert holdfast.run(script).status == 0


def test_a_port_of_its_own_in_use_is_tried_twice(holdfast: Holdfast) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        script = holdfast.script(
            f"""
            import socket
            socket.create_server(("127.0.0.1", {taken.getsockname()[1]}))
            """
        )
        report = holdfast.run(script).report
    assert report["phrase"] == "AddressInUse"
    assert decision_kinds(report) == ["restart", "fail"]


@pytest.mark.parametrize("how", ["option", "variable", "job file"])
def test_how_many_equal_failures_end_a_job_can_be_said(holdfast: Holdfast, how: str) -> None:
    script = holdfast.script("raise SystemExit(7)")
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"name: same\nroles: {{worker: {{count: 1, command: [python, {script}]}}}}\n"
        "restarts: {same_failure: 3, max_restarts: 5, backoff_s: 0.01}\n"
    )
    if how == "option":
        ran = holdfast.run("--same-failure", "3", script)
    elif how == "variable":
        ran = holdfast.run(script, HOLDFAST_SAME_FAILURE="3")
    else:
        ran = holdfast.run("--job", job)
    assert decision_kinds(ran.report) == ["restart", "restart", "fail"]


@pytest.mark.parametrize("value", ["1", "-2", "often"])
def test_a_number_of_equal_failures_that_cannot_be_is_refused(holdfast: Holdfast, value: str) -> None:
    ran = holdfast.run("--same-failure", value, holdfast.script("pass"))
    assert ran.status == 2
    assert "--same-failure: expected off, or a whole number, 2 or more" in ran.err
    job = holdfast.dir / "job.yaml"
    job.write_text(f"name: j\nroles: {{w: {{count: 1, command: ['true']}}}}\nrestarts: {{same_failure: {value}}}\n")
    ran = holdfast.run("--job", job)
    assert ran.status == 2
    assert "`restarts.same_failure`: expected off, or a whole number, 2 or more" in ran.err


def test_off_leaves_the_end_to_the_budget(holdfast: Holdfast) -> None:
    job = holdfast.dir / "job.yaml"
    job.write_text(
        "name: without\nroles: {worker: {count: 1, command: ['false']}}\n"
        "restarts: {same_failure: off, max_restarts: 2, backoff_s: 0.01}\n"
    )
    report = holdfast.run("--job", job).report
    assert decision_kinds(report) == ["restart", "restart", "fail"]
    assert "both restarts are used" in report["attempts"][2]["decision"]["reason"]


def test_a_workers_own_code_200_keeps_its_budget(holdfast: Holdfast) -> None:
    job = holdfast.dir / "job.yaml"
    job.write_text(
        "name: own\nroles: {worker: {count: 1, command: [sh, -c, exit 200]}}\n"
        "restarts: {max_restarts: 3, backoff_s: 0.01}\n"
    )
    assert decision_kinds(holdfast.run("--job", job).report) == ["restart"] * 3 + ["fail"]


def test_the_journal_played_again_sees_the_same_progress(holdfast: Holdfast) -> None:
    """Counts and checkpoints are in the journal's events: nothing is known beside them."""
    script = holdfast.script(
        """
        import os, sys
        for step in range(int(os.environ["HOLDFAST_ATTEMPT"]) // 2 + 2):
            print("step", step, flush=True)
        sys.exit(7)
        """
    )
    report = holdfast.run("--max-restarts", "2", script).report
    gang = Gang()
    for now, event in events(holdfast.home, report["job"]["id"]):
        gang.handle(event, now)
    assert decision_kinds(report) == ["restart", "restart", "fail"]
    assert [record.decision.reason for record in gang.records] == [
        attempt["decision"]["reason"] for attempt in report["attempts"]
    ]
    assert [[sign.text for sign in record.signs] for record in gang.records] == [
        [],
        ["the output counts step 2 (step 1 in attempt 1)"],
        [],
    ]


def test_all_ranks_with_one_status_are_told_from_all_with_another(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os, sys
        sys.exit(int(os.environ["HOLDFAST_ATTEMPT"]) + 6)
        """
    )
    report = holdfast.run("--nproc-per-node", "2", "--max-restarts", "2", script).report
    assert decision_kinds(report) == ["restart", "restart", "fail"]


def test_a_service_that_is_not_ready_is_waited_for(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
        import os
        if os.environ["HOLDFAST_ATTEMPT"] != "5":
            raise ConnectionError("storage gateway not ready")
        """
    )
    job = holdfast.dir / "job.yaml"
    job.write_text(
        f"name: wait\nroles: {{worker: {{count: 1, command: [python, {script}]}}}}\n"
        "restarts: {max_restarts: 1, backoff_s: 0.01}\n"
    )
    report = holdfast.run("--job", job).report
    assert decision_kinds(report) == ["restart"] * 4 + ["succeed"]
