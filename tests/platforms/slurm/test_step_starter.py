"""The starter of the agents' steps, with a srun that prints what the test says."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from holdfast.platforms.slurm import step_starter
from holdfast.platforms.slurm.agent_step import Steps
from holdfast.platforms.slurm.step_starter import SrunStarter
from holdfast.wire.starter_reports import StarterReport, parse_starter_reports

#: Each call has a number. Its script is in the file with this number, else the step's agents end well.
SRUN = """#!/bin/sh
cd {folder}
number=$(($(cat calls) + 1))
echo $number > calls
echo "$*" > "words-$number"
[ -e "$number" ] && . "./$number"
exit 0
"""
ENDED = "echo 'srun: error: {nodes}: tasks 0-1: Exited with exit code {status}' >&2\nexit {status}\n"


def start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *calls: str, over_s: float = 0.0
) -> tuple[list[str], list[StarterReport]]:
    """Return the command lines of all steps, and what the owner gets to know.

    `over_s`: after how many seconds the job is over; 0: it goes on.
    """
    (folder / "srun").write_text(SRUN.format(folder=folder))
    (folder / "srun").chmod(0o755)
    (folder / "calls").write_text("0")
    for number, script in enumerate(calls, 1):
        (folder / str(number)).write_text(script)
    path = f"{folder}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    steps = Steps(
        job="42",
        nodes=("n1", "n2"),
        order=lambda address, port: b"{}\n",
        environment={**os.environ, "PATH": path},
        python=sys.executable,
        output=1,
    )
    starter = SrunStarter(steps)
    guard, ours = os.pipe()
    if over_s:
        threading.Timer(over_s, os.write, (ours, b"\0")).start()
    try:
        assert starter("127.0.0.1", 1, guard) == 0
    finally:
        os.close(guard)
        os.close(ours)
    made = range(1, int((folder / "calls").read_text()) + 1)
    try:
        reports = parse_starter_reports(os.read(starter.news_fd, 1 << 16))
    except BlockingIOError:
        reports = ()
    return [(folder / f"words-{number}").read_text() for number in made], list(reports)


@pytest.mark.real
def test_agents_that_crash_are_called_so_and_get_a_new_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, [said] = start(tmp_path, monkeypatch, ENDED.format(nodes="n[1-2]", status=1))
    assert said.words == "n1, n2: the agent has ended (srun: Exited with exit code 1)"
    assert (said.anew, said.nodes, said.lost) == (("n1", "n2"), (), False)
    assert len(steps) == 2


@pytest.mark.real
def test_one_agent_that_crashes_gets_a_step_on_its_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "echo 'srun: error: n2: task 1: Exited with exit code 1' >&2\nsleep 1\nexit 1\n"
    steps, [said] = start(tmp_path, monkeypatch, line)
    assert said.anew == ("n2",)
    assert len(steps) == 2
    assert "--nodelist=n2" in steps[1]


@pytest.mark.real
@pytest.mark.parametrize(
    "line",
    [
        ENDED.format(nodes="n[1-2]", status=2),
        "echo 'slurmstepd-n1: error: execve(): /venv/python: No such file' >&2\n" + ENDED.format(nodes="n1", status=1),
    ],
    ids=["usage", "no-python"],
)
def test_agents_that_would_end_again_get_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    steps, [said] = start(tmp_path, monkeypatch, line)
    assert len(steps) == 1
    assert said.nodes
    assert not said.anew


EXPIRED = "echo 'srun: error: Unable to create step for job 42: Slurm job 42 has expired' >&2\nexit 1\n"


@pytest.mark.real
def test_a_step_that_an_ending_job_gets_no_more_is_the_reason_only_if_no_signal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_starter, "ENDING_S", 0.1)
    steps, [said] = start(tmp_path, monkeypatch, EXPIRED)
    assert len(steps) == 1
    assert said.words.startswith("the job has ended, or Slurm is ending it")


@pytest.mark.real
def test_the_owners_own_reason_for_the_end_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_starter, "ENDING_S", 600.0)
    _, said = start(tmp_path, monkeypatch, EXPIRED, over_s=1.0)
    assert said == []
