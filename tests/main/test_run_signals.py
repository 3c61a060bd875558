"""A signal to holdfast reaches each worker as itself, and once: from a terminal, by number, or sent to all at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import psutil
import pytest

from conftest import Holdfast, Ran, wait_for
from processes import Terminal

pytestmark = pytest.mark.real

KEEPS_A_DIARY = """
import os, pathlib, signal, sys, time

diary = pathlib.Path(f"got{os.environ['RANK']}")
leaves_on = {"INT", "HUP", "QUIT", "TERM", "USR1"} - set(sys.argv[1:])


def got(number, _):
    name = signal.Signals(number).name.removeprefix("SIG")
    with diary.open("a") as file:
        file.write(f"{name} ")
    if name in leaves_on:
        time.sleep(0.4)  # it saves
        with diary.open("a") as file:
            file.write("saved")
        sys.exit(0)


for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, got)
pathlib.Path(f"up{os.environ['RANK']}").write_text("1")
while True:
    try:
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        got(signal.SIGINT, None)
"""

HAS_NO_HANDLER = """
import os, pathlib, time
pathlib.Path(f"up{os.environ['RANK']}").write_text("1")
time.sleep(600)
"""


def start_two(holdfast: Holdfast, script: str, *more: str, given: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    path = holdfast.script(script)
    process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", *more, path, *given)
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}", timeout_s=90)
    return process


def diaries(holdfast: Holdfast) -> list[str]:
    return [(holdfast.dir / f"got{rank}").read_text() for rank in (0, 1)]


def check_stopped(ran: Ran, name: str) -> None:
    report = ran.report
    assert (ran.status, report["phrase"], report["outcome"]) == (250, "StoppedByOperator", "stopped")
    assert name in report["reason"]
    assert len(report["attempts"]) == 1


@pytest.mark.key
@pytest.mark.parametrize("start_how", ["--no-warm", "--warm"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM])
def test_workers_get_the_signal_itself_and_once(holdfast: Holdfast, number: signal.Signals, start_how: str) -> None:
    process = start_two(holdfast, KEEPS_A_DIARY, start_how)
    process.send_signal(number)
    check_stopped(holdfast.finish(process), number.name)
    assert diaries(holdfast) == [f"{number.name.removeprefix('SIG')} saved"] * 2


def test_sigterm_follows_at_half_of_the_grace_and_sigkill_at_its_end(holdfast: Holdfast) -> None:
    process = start_two(holdfast, KEEPS_A_DIARY, "--grace", "1", given=("INT", "TERM"))
    process.send_signal(signal.SIGINT)
    ran = holdfast.finish(process)
    check_stopped(ran, "SIGINT")
    assert diaries(holdfast) == ["INT TERM "] * 2
    assert "1.0 s after SIGINT (SIGTERM came at half of that time) and were killed" in ran.err


@pytest.mark.key
@pytest.mark.parametrize(("key", "name"), [(b"\x03", "INT"), (b"\x1c", "QUIT")])
def test_a_key_at_the_terminal_reaches_the_workers_once(holdfast: Holdfast, key: bytes, name: str) -> None:
    script = holdfast.script(KEEPS_A_DIARY)
    terminal = Terminal(holdfast, "run", "--no-checks", "--nproc-per-node", "2", str(script))
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}")
    terminal.types(key)
    assert terminal.ends() == 250
    assert diaries(holdfast) == [f"{name} saved"] * 2
    assert b"StoppedByOperator" in terminal.said
    assert f"SIG{name}".encode() in terminal.said


def test_a_second_ctrl_c_at_the_terminal_kills_at_once(holdfast: Holdfast) -> None:
    script = str(holdfast.script(KEEPS_A_DIARY))
    terminal = Terminal(holdfast, "run", "--no-checks", "--nproc-per-node", "2", "--grace", "600", script, "INT")
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}")
    terminal.types(b"\x03")
    for rank in (0, 1):
        wait_for(holdfast.dir / f"got{rank}")
    terminal.types(b"\x03")
    assert terminal.ends() == 250
    assert diaries(holdfast) == ["INT "] * 2


def test_a_closed_terminal_is_a_hang_up_to_the_workers(holdfast: Holdfast) -> None:
    script = holdfast.script(KEEPS_A_DIARY)
    terminal = Terminal(holdfast, "run", "--no-checks", "--nproc-per-node", "2", "--report", "r.json", str(script))
    for rank in (0, 1):
        wait_for(holdfast.dir / f"up{rank}")
    os.close(terminal.fd)
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 250
    assert diaries(holdfast) == ["HUP saved"] * 2


# ---------------------------------------------------------------------------------------------- sent to all


def send_to_all(guard: int, number: signal.Signals, order: int) -> None:
    """As Slurm does without cgroups: every process of the job, one after the other. `order` -1: the youngest first."""
    processes = [psutil.Process(guard), *psutil.Process(guard).children(recursive=True)]
    for process in processes[::order]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a helper may have ended meanwhile
            process.send_signal(number)


@pytest.mark.parametrize("order", [1, -1])
def test_a_signal_that_came_to_all_is_not_passed_on(holdfast: Holdfast, order: int) -> None:
    process = start_two(holdfast, KEEPS_A_DIARY)
    send_to_all(process.pid, signal.SIGUSR1, order)
    ran = holdfast.finish(process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 1)
    assert diaries(holdfast) == ["USR1 saved"] * 2
    assert "SIGUSR1 came to every process of the job" in ran.err


@pytest.mark.parametrize("which", ["guard", "supervisor"])
def test_a_signal_to_one_of_holdfasts_processes_is_passed_on(holdfast: Holdfast, which: str) -> None:
    process = start_two(holdfast, KEEPS_A_DIARY)
    [supervisor] = psutil.Process(process.pid).children()
    os.kill(process.pid if which == "guard" else supervisor.pid, signal.SIGUSR1)
    ran = holdfast.finish(process)
    assert ran.status == 0
    assert diaries(holdfast) == ["USR1 saved"] * 2


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_came_to_all_is_told_as_a_stop_and_sent_once(
    holdfast: Holdfast, number: signal.Signals, order: int
) -> None:
    process = start_two(holdfast, KEEPS_A_DIARY)
    send_to_all(process.pid, number, order)
    check_stopped(holdfast.finish(process), number.name)
    assert diaries(holdfast) == [f"{number.name.removeprefix('SIG')} saved"] * 2


@pytest.mark.parametrize("order", [1, -1])
def test_workers_that_die_of_a_stop_sent_to_all_are_no_failure(holdfast: Holdfast, order: int) -> None:
    process = start_two(holdfast, HAS_NO_HANDLER)
    send_to_all(process.pid, signal.SIGTERM, order)
    ran = holdfast.finish(process)
    report = ran.report
    assert (ran.status, report["phrase"]) == (250, "StoppedByOperator")
    assert "SIGTERM" in report["reason"]


def test_a_stop_that_only_seemed_to_come_to_all_reaches_the_workers_at_half_of_the_grace(holdfast: Holdfast) -> None:
    """`pkill holdfast`: both of holdfast's processes have it, and no worker."""
    process = start_two(holdfast, KEEPS_A_DIARY, "--grace", "4")
    [supervisor] = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGTERM)
    supervisor.send_signal(signal.SIGTERM)
    check_stopped(holdfast.finish(process), "SIGTERM")
    assert diaries(holdfast) == ["TERM saved"] * 2


NEEDS_THE_STORE = """
import os, pathlib, signal, time
import torch.distributed as dist
dist.init_process_group("gloo")
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
pathlib.Path(f"up{os.environ['RANK']}").write_text("1")
while not got:
    time.sleep(0.05)
dist.barrier(group=dist.new_group([0, 1]))
print("all saved", len(got), flush=True)
"""

FAILS_ON_USR1_ONCE = """
import os, pathlib, signal, time
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
    time.sleep(1.5)  # as long as it takes until forks stand by
    pathlib.Path(f"up{os.environ['RANK']}").write_text("1")
    time.sleep(600)
[blocked] = [line for line in open("/proc/self/status") if line.startswith("SigBlk")]
print(int(blocked.split()[1], 16), signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""


@pytest.mark.torch
def test_the_workers_store_outlives_a_signal_that_came_to_all(holdfast: Holdfast) -> None:
    process = start_two(holdfast, NEEDS_THE_STORE)
    send_to_all(process.pid, signal.SIGUSR1, 1)
    ran = holdfast.finish(process, timeout_s=90)
    assert (ran.status, len(ran.report["attempts"])) == (0, 1), ran.err
    assert sorted(ran.out.splitlines()) == ["[worker-0] all saved 1", "[worker-1] all saved 1"]


def test_forks_that_stand_by_outlive_a_signal_that_came_to_all(holdfast: Holdfast) -> None:
    process = start_two(holdfast, FAILS_ON_USR1_ONCE, "--warm", "--standby")
    send_to_all(process.pid, signal.SIGUSR1, 1)
    ran = holdfast.finish(process)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2)
    assert sorted(ran.out.splitlines()) == ["[worker-0] 0 True", "[worker-1] 0 True"]
    assert "nursery" not in ran.err and "cold" not in ran.err


# ---------------------------------------------------------------------------------------------- nothing stays


@pytest.mark.key
def test_a_stopped_supervisor_whose_guard_dies_leaves_nothing(holdfast: Holdfast) -> None:
    process = start_two(holdfast, HAS_NO_HANDLER)
    [supervisor] = psutil.Process(process.pid).children()
    supervisor.send_signal(signal.SIGSTOP)
    below = supervisor.children(recursive=True)
    process.kill()
    assert len(below) == 2
    _, alive = psutil.wait_procs([supervisor, *below], timeout=60)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE], "they outlived the guard"
    process.communicate(timeout=60)
