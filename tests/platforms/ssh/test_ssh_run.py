"""`holdfast run --hosts` with a real sshd: several names of this machine are the nodes of one job."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from conftest import Holdfast, Ran, free_port
from processes import until
from real_sshd import Sshd, sshd

__all__ = ["sshd"]

pytestmark = pytest.mark.real

TELLS = """
import json, os, sys
names = ("RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT "
         "GIVEN HOSTNAME SSH_CONNECTION DISPLAY").split()
told = {name: os.environ.get(name) for name in names}
open(f"told-{os.environ['RANK']}", "w").write(json.dumps({**told, "cwd": os.getcwd(), "argv": sys.argv[1:]}))
print("rank", os.environ["RANK"], flush=True)
"""
WAITS = """
import os, time
open(f"up-{os.environ['RANK']}", "w").write(str(os.getpid()))
while not os.path.exists("go"):
    time.sleep(0.02)
print("gone", os.environ["RANK"], flush=True)
"""


def start(tool: Holdfast, server: Sshd, *words: str | Path, **env: str) -> subprocess.Popen[str]:
    return tool.start("run", "--no-checks", "--ssh", server.command, *words, **env)


def ranks_up(tool: Holdfast, count: int) -> Callable[[], bool]:
    return lambda: all((tool.dir / f"up-{rank}").exists() for rank in range(count))


def end(tool: Holdfast, process: subprocess.Popen[str]) -> Ran:
    return tool.finish(process, 90)


def of_ssh(tool: Holdfast, host: str) -> list[psutil.Process]:
    """The ssh clients of this test that hold an agent on this host."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[:1] == ["ssh"] and host in words and "agent" in words[-1] and tool.token in process.environ():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_a_script_runs_on_the_listed_hosts_in_their_order(sshd: Sshd, holdfast: Holdfast) -> None:
    env = {"GIVEN": 'it\'s "here"\n$x', "HOSTNAME": "typed-here", "DISPLAY": ":7"}
    script = holdfast.script(TELLS)
    words = ("--report", "r.json", "--hosts", "node1:2,localhost,node3", script, "--lr", "0.1 2")
    ran = end(holdfast, start(holdfast, sshd, *words, **env))
    assert ran.status == 0, ran.err
    told = [json.loads((holdfast.dir / f"told-{rank}").read_text()) for rank in range(4)]
    assert [(t["GROUP_RANK"], t["LOCAL_RANK"], t["LOCAL_WORLD_SIZE"]) for t in told] == [
        ("0", "0", "2"),
        ("0", "1", "2"),
        ("1", "0", "1"),
        ("2", "0", "1"),
    ]
    assert {(t["WORLD_SIZE"], t["GROUP_WORLD_SIZE"]) for t in told} == {("4", "3")}
    assert len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in told}) == 1
    assert told[0]["MASTER_ADDR"]
    assert {(t["GIVEN"], t["cwd"], tuple(t["argv"])) for t in told} == {
        (env["GIVEN"], str(holdfast.dir), ("--lr", "0.1 2"))
    }
    elsewhere = [t for t in told if t["GROUP_RANK"] != "1"]
    assert [(t["HOSTNAME"], t["DISPLAY"], t["SSH_CONNECTION"]) for t in elsewhere] == [(None, None, None)] * 3
    assert sorted(re.findall(r"rank (\d)", ran.out)) == ["0", "1", "2", "3"], "what workers print comes back"
    assert json.loads((holdfast.dir / "r.json").read_text())["outcome"] == "succeeded"
    assert ran.err.count("SUCCEEDED") == 1, "one report, where the command was typed"


def test_a_machine_that_is_not_in_the_list_hosts_the_owner_alone(sshd: Sshd, holdfast: Holdfast) -> None:
    (holdfast.dir / "hosts.txt").write_text("# two\nnode1 slots=1\nnode2 slots=2 max_slots=4\n")
    ran = end(holdfast, start(holdfast, sshd, "--json", "--hostfile", "hosts.txt", holdfast.script(TELLS)))
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["outcome"] == "succeeded", "with --json, what workers print goes to stderr"
    assert ran.err.count("rank ") >= 3
    assert json.loads((holdfast.dir / "told-2").read_text())["GROUP_RANK"] == "1"


def test_the_code_of_the_job_is_the_code_of_the_command(sshd: Sshd, holdfast: Holdfast) -> None:
    script = holdfast.script("import os, sys; sys.exit(203 if os.environ['RANK'] == '1' else 0)")
    ran = end(holdfast, start(holdfast, sshd, "--max-restarts", "0", "--hosts", "localhost,node2", script))
    assert ran.status == 203, ran.err
    assert "rank 1 on node2" in ran.err
    assert "ssh has ended" not in ran.err


def test_no_process_shows_the_key_in_its_arguments_or_environment(sshd: Sshd, holdfast: Holdfast) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    shown = []
    for other in psutil.process_iter():
        try:
            if holdfast.token in other.environ():
                shown.append(f"{other.cmdline()} {other.environ()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    assert len(shown) >= 5
    assert [text for text in shown if re.search(r"[0-9a-f]{64}", text)] == []
    (holdfast.dir / "go").touch()
    assert end(holdfast, process).status == 0


def test_the_nodes_are_asked_from_where_the_command_was_typed(sshd: Sshd, holdfast: Holdfast) -> None:
    """The key of such a job lies in no file but in the job's own directory, while it lives."""
    process = start(holdfast, sshd, "--name", "far", "--hosts", "node1,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    [kept] = holdfast.home.glob("jobs/*/key")
    assert kept.stat().st_mode & 0o777 == 0o600
    asked = holdfast("devices", "--job", "far", "--on", "node2")
    assert (asked.status, asked.err) == (0, "")
    (holdfast.dir / "go").touch()
    assert end(holdfast, process).status == 0
    assert not kept.exists()


def test_an_ssh_that_is_killed_costs_the_job_nothing(sshd: Sshd, holdfast: Holdfast) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2,node3", holdfast.script(WAITS))
    until(ranks_up(holdfast, 3), "all ranks are up")
    [client] = of_ssh(holdfast, "node2")
    client.kill()
    until(lambda: [other for other in of_ssh(holdfast, "node2") if other.pid != client.pid], "node2 is dialled again")
    (holdfast.dir / "go").touch()
    ran = end(holdfast, process)
    assert ran.status == 0, ran.err
    assert ran.err.count("node2: the connection of ssh has ended") == 1
    assert "attempt 2" not in ran.err


def test_ctrl_c_ends_every_host(sshd: Sshd, holdfast: Holdfast) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    process.send_signal(signal.SIGINT)
    assert end(holdfast, process).status == 250


def test_when_the_command_is_killed_the_hosts_end_with_the_lease(sshd: Sshd, holdfast: Holdfast) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: not holdfast.survivors(), "nothing is left on any host", 60)


def test_a_host_is_left_out_where_the_range_can_do_without(sshd: Sshd, holdfast: Holdfast) -> None:
    words = ("--nnodes", "2:3", "--last-call", "0.5", "--hosts", "localhost,node2,gone", holdfast.script(TELLS))
    ran = end(holdfast, start(holdfast, sshd, *words))
    assert ran.status == 0, ran.err
    assert ran.err.count("gone: ssh cannot reach it: ") == 1
    assert json.loads((holdfast.dir / "told-1").read_text())["WORLD_SIZE"] == "2"


def test_a_host_that_loses_its_agent_is_dialled_again_and_takes_its_place(sshd: Sshd, holdfast: Holdfast) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    first = (holdfast.dir / "up-1").read_text()
    [guard] = [
        other
        for other in psutil.Process(int(first)).parents()
        if other.cmdline()[-1:] == ["agent"] and other.name() == "holdfast-guard"
    ]
    guard.kill()
    until(lambda: (holdfast.dir / "up-1").read_text() not in ("", first), "rank 1 is up again")
    (holdfast.dir / "go").touch()
    ran = end(holdfast, process)
    assert ran.status == 0, ran.err
    assert "node2: the connection of ssh has ended" in ran.err
    assert ran.report["attempts"][0]["decision"]["charged"] is False


def test_the_owner_takes_a_free_port_of_the_range_and_refuses_one_that_is_held(sshd: Sshd, holdfast: Holdfast) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        script = holdfast.script(TELLS)
        held = end(holdfast, start(holdfast, sshd, "--master-port", str(port), "--hosts", "localhost,node2", script))
        assert held.status == 2
        assert f"port {port} is in use on this machine" in held.err
        words = ("--port-range", f"{port}-{port + 20}", "--hosts", "localhost,node2", script)
        ran = end(holdfast, start(holdfast, sshd, *words))
    assert ran.status == 0, ran.err
    told = json.loads((holdfast.dir / "told-0").read_text())
    assert port <= int(told["MASTER_PORT"]) <= port + 20


def test_a_host_that_never_says_hello_is_named(sshd: Sshd, holdfast: Holdfast) -> None:
    """It has all that a look asks for; what is started there hangs."""
    wrapped = holdfast.dir / "my-ssh"
    wrapped.write_text(f'#!/bin/sh\ncase "$*" in *node3*agent*) exec sleep 600;; *) exec {sshd.command} "$@";; esac\n')
    wrapped.chmod(0o755)
    words = ("--ssh", wrapped, "--join-timeout", "10", "--hosts", "localhost,node2,node3", holdfast.script(TELLS))
    ran = end(holdfast, holdfast.start("run", "--no-checks", *words))
    assert ran.status == 251, ran.err
    assert "2 of 3 nodes joined within" in ran.err
    said = " ".join(ran.err.split())
    assert "never said hello: node3" in said
    assert "ssh -o BatchMode=yes node3 true" in said


def test_ctrl_c_ends_the_look_at_the_hosts(holdfast: Holdfast) -> None:
    slow = holdfast.dir / "slow-ssh"
    slow.write_text("#!/bin/sh\ntouch looking\nexec sleep 600\n")
    slow.chmod(0o755)
    process = holdfast.start("run", "--ssh", str(slow), "--hosts", "localhost,node2", holdfast.script("pass"))
    until((holdfast.dir / "looking").exists, "ssh looks")
    process.send_signal(signal.SIGINT)
    ran = end(holdfast, process)
    assert (ran.status, ran.err) == (130, "")


def named(tool: Holdfast, name: str) -> list[psutil.Process]:
    """The processes of this test with this name."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == name and tool.token in process.environ():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.parametrize("name", ["holdfast-owner", "holdfast-start"])
def test_an_owner_or_a_starter_that_is_killed_ends_no_attempt(sshd: Sshd, holdfast: Holdfast, name: str) -> None:
    process = start(holdfast, sshd, "--hosts", "localhost,node2", holdfast.script(WAITS))
    until(ranks_up(holdfast, 2), "both ranks are up")
    [victim] = named(holdfast, name)
    victim.kill()
    until(lambda: [each for each in named(holdfast, name) if each.pid != victim.pid], "a new one is there")
    (holdfast.dir / "go").touch()
    ran = end(holdfast, process)
    assert ran.status == 0, ran.err
    assert "attempt 2" not in ran.err
    assert ("is not shown any more" in ran.err) == (name == "holdfast-start")


def test_one_host_elsewhere_runs_the_job_over_ssh(sshd: Sshd, holdfast: Holdfast) -> None:
    (holdfast.dir / "hosts.txt").write_text("node1 slots=2\n")
    ran = end(holdfast, start(holdfast, sshd, "--hostfile", "hosts.txt", holdfast.script(TELLS)))
    assert ran.status == 0, ran.err
    told = [json.loads((holdfast.dir / f"told-{rank}").read_text()) for rank in range(2)]
    assert {(t["WORLD_SIZE"], t["GROUP_WORLD_SIZE"], t["LOCAL_WORLD_SIZE"]) for t in told} == {("2", "1", "2")}
    assert ran.err.count("SUCCEEDED") == 1


@pytest.mark.parametrize(
    ("words", "workers"),
    [
        (["--hostfile", "hosts.txt"], 2),
        (["--hostfile", "hosts.txt", "--nproc-per-node", "3", "--nnodes", "1"], 2),
        (["--hosts", "localhost"], 1),
        (["--hosts", os.uname().nodename, "--nproc-per-node", "3"], 3),
        (["--hosts", "127.0.0.1:2", "--max-restarts", "1"], 2),
    ],
)
def test_a_list_of_this_machine_alone_is_one_machine(holdfast: Holdfast, words: list[str], workers: int) -> None:
    (holdfast.dir / "hosts.txt").write_text("# one\n\nlocalhost slots=2\n")
    ran = holdfast.run("--ssh", "/bin/false", *words, holdfast.script(TELLS))
    assert ran.status == 0, ran.err
    assert "names this machine alone" in ran.err
    assert json.loads((holdfast.dir / "told-0").read_text())["WORLD_SIZE"] == str(workers)
    refused = holdfast.run(*words, "--nnodes", "2", "job.py")
    assert refused.status == 2 and "with 1 host: expected as many hosts" in refused.err
