"""Slurm's commands as helpers: what is asked, what becomes of it, and that the owner never waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import children
from holdfast.platforms.slurm.slurm_commands import (
    CommandOutput,
    CommandTrouble,
    SlurmCommands,
    meant,
    program,
    scrubbed,
)
from holdfast.reactor import Reactor
from processes import reactor

__all__ = ["reactor"]  # fixtures

Script = Callable[[str], list[str]]


@pytest.fixture
def write_scontrol(tmp_path: Path) -> Script:
    def write(text: str) -> list[str]:
        path = tmp_path / "scontrol"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return [str(path), "show", "job", "42"]

    return write


def ask_slurm(reactor: Reactor, words: list[str], *, limit_s: float = 30.0, patience_s: float = 0.0) -> CommandOutput:
    found: list[CommandOutput] = []
    asking = SlurmCommands(reactor)
    asking.ask(words, lambda answer, now: found.append(answer), limit_s=limit_s, patience_s=patience_s)
    assert found == [], "the answer comes from the reactor"
    while not found:
        reactor.wait()
    assert len(found) == 1
    return found[0]


@pytest.mark.real
def test_an_answer_has_what_the_command_printed(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(reactor, write_scontrol("echo JobId=42; echo careful >&2"))
    assert (answer.ok, answer.out, answer.err, answer.status) == (True, "JobId=42\n", "careful\n", 0)
    assert answer.command.endswith("scontrol show job 42")


@pytest.mark.real
def test_what_scontrol_prints_instead_of_an_error_counts(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(reactor, write_scontrol("echo Node n9 not found; exit 1"))
    assert (answer.trouble, answer.said) == (CommandTrouble.UNKNOWN, "Slurm does not know it (Node n9 not found)")


@pytest.mark.real
def test_a_long_answer_is_whole(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(reactor, write_scontrol("head -c 1000000 /dev/zero"))
    assert len(answer.out) == 1_000_000


@pytest.mark.real
def test_a_command_that_is_not_there_is_a_trouble_in_words(reactor: Reactor) -> None:
    answer = ask_slurm(reactor, ["scontrol-of-no-slurm", "ping"])
    assert answer.trouble is CommandTrouble.MISSING
    assert "`scontrol-of-no-slurm` is not on this node" in answer.said


@pytest.mark.real
def test_a_command_that_hangs_is_killed_and_said(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(reactor, write_scontrol("echo waits >&2; exec sleep 1000"), limit_s=0.3)
    assert (answer.trouble, answer.status) == (CommandTrouble.SLOW, None)
    assert "has not answered `scontrol` within 0.3 s" in answer.said
    while children.helpers():
        reactor.wait()  # it is reaped when it has died


@pytest.mark.real
def test_where_slurmctld_is_away_it_is_asked_again(reactor: Reactor, write_scontrol: Script, tmp_path: Path) -> None:
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    words = write_scontrol(f'if mkdir {tmp_path}/once 2>/dev/null; then echo "{away}" >&2; exit 1; fi; echo JobId=42')
    assert ask_slurm(reactor, words, patience_s=30.0).out == "JobId=42\n"


@pytest.mark.real
def test_without_patience_the_first_trouble_is_the_answer(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(
        reactor, write_scontrol("echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    )
    assert answer.trouble is CommandTrouble.AWAY
    assert answer.said == "slurmctld does not answer (Unable to contact slurm controller (connect failure))"


@pytest.mark.real
def test_slurms_own_sigterm_to_every_process_takes_no_answer(reactor: Reactor, write_scontrol: Script) -> None:
    answer = ask_slurm(reactor, write_scontrol("kill -TERM $$; echo JobId=42"))
    assert answer.out == "JobId=42\n"


@pytest.mark.real
def test_a_try_that_a_signal_ended_is_made_again(reactor: Reactor, write_scontrol: Script, tmp_path: Path) -> None:
    answer = ask_slurm(reactor, write_scontrol(f"mkdir {tmp_path}/once 2>/dev/null && kill -KILL $$; echo JobId=42"))
    assert answer.out == "JobId=42\n"


@pytest.mark.real
def test_a_question_that_is_taken_back_answers_no_more(reactor: Reactor, write_scontrol: Script) -> None:
    found: list[CommandOutput] = []
    asking = SlurmCommands(reactor)
    take_back = asking.ask(write_scontrol("exec sleep 1000"), lambda answer, now: found.append(answer))
    take_back()
    while children.helpers():
        reactor.wait()
    assert found == []


def test_the_commands_get_no_setting_of_the_job() -> None:
    given = {"PATH": "/bin", "SLURM_CONF": "/c", "SLURM_JOB_ID": "1", "SQUEUE_FORMAT": "%i", "SLURM_CLUSTERS": "far"}
    kept = {"PATH": "/bin", "SLURM_CONF": "/c", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    assert scrubbed(given) == kept


def test_a_command_is_found_without_a_path(tmp_path: Path) -> None:
    """A HealthCheckProgram has none."""
    assert program("no-such-command", {}) == "no-such-command"
    (tmp_path / "scontrol").touch(mode=0o755)
    assert program("scontrol", {"PATH": f"/nowhere:{tmp_path}"}) == str(tmp_path / "scontrol")
    assert program("env", {}) == "/usr/bin/env" or not os.access("/usr/bin/env", os.X_OK)


@pytest.mark.parametrize(
    ("err", "trouble"),
    [
        ("slurm_load_jobs error: Invalid job id specified", CommandTrouble.UNKNOWN),
        ("Job 99 not found", CommandTrouble.UNKNOWN),
        ("slurm_update error: Access/permission denied", CommandTrouble.REFUSED),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", CommandTrouble.AWAY),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", CommandTrouble.AWAY),
        ("error: If munged is up, restart with --num-threads=10\nslurm_load_jobs error: Protocol authentication error",
         CommandTrouble.MUNGE),
        ("slurm_update error: Job has already finished", CommandTrouble.LATE),
        ("something new", CommandTrouble.FAILED),
    ],
)  # fmt: skip
def test_what_slurms_commands_say_when_they_fail(err: str, trouble: CommandTrouble) -> None:
    found, words = meant(("scontrol", "show", "job", "42"), 1, err, 2.0)
    assert found is trouble
    assert err.rpartition("\n")[2] in words
