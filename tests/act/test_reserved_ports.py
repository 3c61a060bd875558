"""The ports of roles: reserved before the workers start, told to all of them, held until each one runs."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from conftest import Holdfast, Ran, free_port
from gang_play import Play, spec
from holdfast.act.rendezvous_ports import NoPort, ReservedPorts
from holdfast.decide.phases import Phase
from holdfast.model.actions import RunChecks
from holdfast.model.gang_protocol import Prepare
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.peer_addresses import tasks_of

# ---------------------------------------------------------------------------------------------- a machine's own


@pytest.fixture
def reserved() -> Iterator[ReservedPorts]:
    ports = ReservedPorts(None)
    yield ports
    ports.let_go()


def can_be_opened(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def test_a_reserved_port_is_held_until_it_is_let_go(reserved: ReservedPorts) -> None:
    one, two = reserved.hold(1, 2)
    assert not can_be_opened(one) and not can_be_opened(two)
    reserved.let_go([one])
    assert can_be_opened(one) and not can_be_opened(two)


def test_the_same_attempt_has_the_same_ports_and_those_that_lack(reserved: ReservedPorts) -> None:
    first = reserved.hold(1, 2)
    assert reserved.hold(1, 2) == first
    assert reserved.hold(1, 3)[:2] == first


def test_another_attempt_has_other_ports_and_the_old_ones_are_free(reserved: ReservedPorts) -> None:
    first = reserved.hold(1, 3)
    second = reserved.hold(2, 3)
    assert not set(first) & set(second)
    assert all(map(can_be_opened, first))


def test_what_is_taken_for_something_else_is_not_reserved() -> None:
    port = free_port()
    narrow = ReservedPorts((port, port))
    with pytest.raises(NoPort):
        narrow.hold(1, 1, without=(port,))
    assert narrow.hold(1, 1) == (port,)
    narrow.let_go()


def test_a_range_that_is_too_narrow_says_how_many_there_were() -> None:
    port = free_port()
    narrow = ReservedPorts((port, port))
    with pytest.raises(NoPort) as caught:
        narrow.hold(1, 2)
    assert caught.value.args == (1,)
    assert can_be_opened(port)


# ---------------------------------------------------------------------------------------------- the gang


def with_ports() -> JobSpec:
    return spec(roles=(Role(name="worker", count=2, command=("x",), ports={"http": 2}),))


def last_checks(play: Play) -> RunChecks:
    return [action for _, _, out in play.history for action in out if isinstance(action, RunChecks)][-1]


def prepares_sent(play: Play) -> list[Prepare]:
    out = [action for action in play.out if hasattr(action, "command")]
    return [action.command for action in out if isinstance(action.command, Prepare)]


def test_each_node_is_asked_for_the_ports_of_its_workers_and_all_are_told_of_all() -> None:
    play = Play()
    play.submit(with_ports())
    assert last_checks(play).ports == dict.fromkeys(play.nodes, 2)
    play.check(ports={node: (100 + place, 200 + place) for place, node in enumerate(play.nodes)})
    peers = list(
        {id(prepare.peers): prepare.peers for prepare in prepares_sent(play) if prepare.peers is not None}.values()
    )
    assert len(prepares_sent(play)) == 2 and len(peers) == 1
    assert [task.ports["http"] for task in tasks_of(peers.pop())] == [(100, 200), (101, 201)]
    play.verify()


def test_a_job_that_asks_for_nothing_is_told_nothing() -> None:
    play = Play()
    play.submit()
    assert last_checks(play).ports == {}
    play.check()
    assert [prepare.peers for prepare in prepares_sent(play)] == [None] * len(prepares_sent(play))


def test_a_node_that_has_reserved_too_few_ends_the_start_and_is_named() -> None:
    play = Play()
    play.submit(with_ports())
    play.check(ports={node: (1, 2)[: 1 + (node != play.nodes[1])] for node in play.nodes})
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert f"{play.nodes[1]} has reserved 1 of 2 ports" in play.final.report.reason
    play.verify()


def test_a_long_prepare_is_not_said_again_while_it_is_on_its_way() -> None:
    play, names = Play(), tuple(f"n{number}" for number in range(300))
    roles = (Role(name="worker", count=300, command=("x",), ports={"http": 1}),)
    play.submit(spec(roles=roles), nodes=names)
    play.check(ports=dict.fromkeys(names, (1,)))
    assert len(prepares_sent(play)) == 300
    play.wait(2.9)
    assert prepares_sent(play) == []
    play.wait(0.2)
    assert len(prepares_sent(play)) == 300


# ---------------------------------------------------------------------------------------------- for real

OPENS_PORTS = """
import json, os, socket, sys, time
mine = [int(port) for port in os.environ["PAI_CONTAINER_HOST_http_PORT_LIST"].split(",")]
held = [socket.create_server(("", port)) for port in mine]
names = ("PAI_HOST_IP_", "PAI_PORT_LIST_", "PAI_TASK_ROLE_", "PAI_CURRENT_", "PAI_CONTAINER_")
told = {name: value for name, value in os.environ.items() if name.startswith(names)}
told["file"] = open(os.environ["HOLDFAST_PEERS"]).read()
attempt = os.environ["HOLDFAST_ATTEMPT"]
open(f"told-{attempt}-{os.environ['RANK']}", "w").write(json.dumps(told))
role, index = os.environ["PAI_CURRENT_TASK_ROLE_NAME"], os.environ["PAI_TASK_INDEX"]
count = int(os.environ["PAI_TASK_ROLE_TASK_COUNT_ps"])
for peer in range(count):
    for port in os.environ[f"PAI_PORT_LIST_ps_{peer}_http"].split(","):
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection((os.environ[f"PAI_HOST_IP_ps_{peer}"], int(port)), 5).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
open(f"met-{attempt}-{os.environ['RANK']}", "w").close()
while len([name for name in os.listdir(".") if name.startswith(f"met-{attempt}-")]) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
if attempt == "1" and os.environ["RANK"] == "0":
    sys.exit(3)
"""


def write_job_file(tool: Holdfast) -> None:
    script = tool.script(OPENS_PORTS)
    command = f"command: [python, {script}], ports: {{http: 2}}"
    (tool.dir / "j.yaml").write_text(
        f"name: j\nroles:\n  ps: {{count: 2, {command}}}\n  w: {{count: 2, {command}}}\nrestarts: {{max_restarts: 1}}\n"
    )


def names_seen(tool: Holdfast, attempt: int) -> list[dict[str, str]]:
    return [json.loads((tool.dir / f"told-{attempt}-{rank}").read_text()) for rank in range(4)]


def check_what_was_told(tool: Holdfast) -> None:
    for attempt in (1, 2):
        told = names_seen(tool, attempt)
        lists = [one["PAI_CONTAINER_HOST_http_PORT_LIST"] for one in told]
        assert len({port for ports in lists for port in ports.split(",")}) == 8
        for one in told:
            assert [one[f"PAI_PORT_LIST_{task}_http"] for task in ("ps_0", "ps_1", "w_0", "w_1")] == lists
            assert f"PAI_PORT_LIST_w_1_http={lists[3]}\n" in one["file"]
    first, second = ({port for one in names_seen(tool, at) for port in lists_of(one)} for at in (1, 2))
    assert not first & second, "each attempt has new ports"


def lists_of(told: dict[str, str]) -> list[str]:
    return told["PAI_CONTAINER_HOST_http_PORT_LIST"].split(",")


@pytest.mark.key
@pytest.mark.real
def test_on_one_machine_every_worker_opens_its_own_ports_and_finds_its_peers(holdfast: Holdfast) -> None:
    write_job_file(holdfast)
    ran = holdfast.run("--job", "j.yaml")
    assert ran.status == 0, ran.err
    check_what_was_told(holdfast)


@pytest.mark.real
def test_over_two_nodes_every_worker_opens_its_own_ports_and_finds_its_peers(holdfast: Holdfast) -> None:
    write_job_file(holdfast)
    where = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "2", "--job", "j.yaml"]
    runs = [holdfast.start("run", "--no-checks", "--node-rank", str(node), *where) for node in range(2)]
    ran = [holdfast.finish(run, 60) for run in runs]
    assert [one.status for one in ran] == [0, 0], ran[0].err + ran[1].err
    check_what_was_told(holdfast)


@pytest.mark.real
def test_ports_that_cannot_be_had_end_the_start_before_any_worker(holdfast: Holdfast) -> None:
    write_job_file(holdfast)
    first = free_port()
    where = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nnodes", "2", "--job", "j.yaml"]
    where += ["--port-range", f"{first}-{first + 1}", "--replace-wait", "1"]
    runs = [holdfast.start("run", "--no-checks", "--node-rank", str(node), *where) for node in range(2)]
    ran = [holdfast.finish(run, 60) for run in runs]
    assert all(one.status for one in ran)
    assert "the workers need 4 ports, and" in ran[0].err + ran[1].err
    assert not list(holdfast.dir.glob("told-*"))


def run_named(tool: Holdfast, word: str, *options: str) -> Ran:
    (tool.dir / "named.yaml").write_text(
        "name: j\nroles:\n  ps: {count: 1, command: ['true'], ports: {http: 1}}\n"
        f"  w: {{count: 2, command: [echo, '{word}']}}\n"
    )
    return tool.run("--job", "named.yaml", *options)


@pytest.mark.real
def test_words_of_a_command_without_a_shell_have_hosts_and_ports_of_peers(holdfast: Holdfast) -> None:
    ran = run_named(holdfast, "to ${PAI_HOST_IP_ps_0}:$PAI_PORT_LIST_ps_0_http from $PAI_TASK_INDEX")
    assert ran.status == 0, ran.err
    lines = sorted(ran.out.splitlines())
    assert [re.sub(r":\d+ ", ":PORT ", line) for line in lines] == [
        "[w-1] to 127.0.0.1:PORT from 0",
        "[w-2] to 127.0.0.1:PORT from 1",
    ]


@pytest.mark.real
def test_a_peer_that_there_is_not_is_named_before_anything_starts(holdfast: Holdfast) -> None:
    ran = run_named(holdfast, "to $PAI_HOST_IP_ps_1")
    assert ran.status == 2
    assert "`roles.w.command`, word 2, line 1, column 4: there is no `$PAI_HOST_IP_ps_1`" in ran.err
    assert "did you mean `$PAI_HOST_IP_ps_0`?" in ran.err
    assert not holdfast.home.exists() or not list(holdfast.home.glob("jobs/*"))


@pytest.mark.real
def test_a_job_that_names_none_of_them_has_none_unless_it_is_told_so(holdfast: Holdfast) -> None:
    script = holdfast.script("import os; print(sum(name.startswith('PAI_') for name in os.environ))")
    assert holdfast.run(script).out == "[worker-0] 0\n"
    assert int(holdfast.run("--pai", script).out.split()[1]) > 30
    assert int(holdfast.run(script, HOLDFAST_PAI="1").out.split()[1]) > 30


@pytest.mark.real
def test_workers_that_are_told_of_their_peers_start_warm(holdfast: Holdfast) -> None:
    script = holdfast.script("import os; print(os.environ['PAI_TASK_INDEX'], os.environ['PAI_HOST_IP_worker_1'])")
    ran = holdfast.run("--pai", "--warm", "--nproc-per-node", "2", script, timeout_s=60)
    assert ran.status == 0, ran.err
    assert "start cold" not in ran.err and "starts cold" not in ran.err
    assert sorted(ran.out.splitlines()) == ["[worker-0] 0 127.0.0.1", "[worker-1] 1 127.0.0.1"]
