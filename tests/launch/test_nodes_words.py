"""What is typed for a job over many nodes: how many, who hosts the owner, which waits, which part of it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.cli.options.run_option_table import read_run_options
from holdfast.errors import BadUsage
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.multi_node import MultiNodeJob, endpoint, over_nodes, port_range, rendezvous_conf, shown
from holdfast.launch.owner_placement import OwnerPlacement, part
from holdfast.launch.torchrun_options import node_range, with_variables
from holdfast.model.job_spec import JobSpec, NodePlan, Role
from holdfast.settings.resolved_settings import Settings, resolve
from holdfast.settings.run_options import RunOptions
from holdfast.wire.addresses import Interface, is_loopback, offered, plain

#: A machine with two networks.
ETH = (
    Interface(name="lo", address="127.0.0.1"),
    Interface(name="lo", address="::1"),
    Interface(name="docker0", address="172.17.0.1"),
    Interface(name="eth0", address="10.0.0.1"),
    Interface(name="eth0", address="fe80::1"),
    Interface(name="ib0", address="fd00::1"),
)


def typed(*words: str) -> RunOptions:
    options = read_run_options([*words, "t.py"])
    assert options is not None
    return with_variables(options, {})


def settings(home: Path, options: RunOptions, env: dict[str, str] | None = None) -> Settings:
    return resolve(options.settings(), env or {}, home, system_file=home / "none")


def many(home: Path, *words: str, env: dict[str, str] | None = None, count: int = 2) -> MultiNodeJob:
    options = typed(*words)
    job = JobFile(JobSpec(name="t", roles=(Role(name="worker", count=count, command=("true",)),)), None, ())
    return over_nodes(options, settings(home, options, env), job, home, node_range(options))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


# ---------------------------------------------------------------------------------------------- who hosts the owner


@pytest.mark.parametrize(
    ("host", "addresses", "is_host", "rank", "hosts", "why"),
    [
        ("node2", ["10.0.0.2"], True, None, True, "is_host=1 says so"),
        ("10.0.0.1", ["10.0.0.1"], False, 0, False, "is_host=0 says so"),
        ("10.0.0.1", ["10.0.0.1"], None, None, True, "10.0.0.1 is an address of its eth0"),
        ("node1", ["10.9.9.9", "fd00::1"], None, 1, True, "fd00::1 is an address of its ib0"),
        ("node2", ["10.0.0.2"], None, None, False, "node2 is no address of this machine"),
        ("service", ["10.0.0.2"], None, 0, True, "its --node-rank is 0"),
        ("service", ["10.0.0.2"], None, 1, False, "service is no address of this machine"),
        ("node1", ["127.0.1.1"], None, None, True, "node1 is this machine itself"),
        ("localhost", [], None, None, True, "localhost is this machine itself"),
        ("node1", [], None, None, True, "node1 is its name"),
        ("node1.cluster", [], None, None, True, "node1.cluster is its name"),
    ],
)
def test_the_owner_is_hosted_where_it_was_asked_for_then_by_address_then_by_rank_0(
    host: str, addresses: list[str], is_host: bool | None, rank: int | None, hosts: bool, why: str
) -> None:
    machine = "node1.cluster"
    answer = part(host, addresses, is_host=is_host, node_rank=rank, machine=machine, found=ETH)
    assert answer == OwnerPlacement(hosts=hosts, why=why)


def test_other_nodes_are_never_offered_a_loopback_address_or_a_bridge_to_containers() -> None:
    assert offered(ETH) == ("10.0.0.1", "fd00::1")


def test_addresses_have_one_form() -> None:
    assert plain("[fd00:0::1%eth0]") == "fd00::1"
    assert plain("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain("node1") == "node1"
    assert is_loopback("127.8.8.8") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("10.0.0.1") and not is_loopback("node1")
    assert shown("fd00::1", 7) == "[fd00::1]:7" and shown("node1", 7) == "node1:7"


# ---------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--rdzv-endpoint", "127.0.0.1:7001"], ("127.0.0.1", 7001)),
        (["--rdzv-endpoint", "127.0.0.1"], ("127.0.0.1", 29500)),
        (["--rdzv-endpoint", "127.0.0.1", "--rdzv-backend", "c10d"], ("127.0.0.1", 29400)),
        (["--rdzv-endpoint", "127.0.0.1", "--master-port", "7"], ("127.0.0.1", 7)),
        (["--rdzv-endpoint", "[::1]:7001", "--master-addr", "other"], ("::1", 7001)),
        (["--rdzv-endpoint", "[::1]"], ("::1", 29500)),
        (["--master-addr", "127.0.0.1"], ("127.0.0.1", 29500)),
        (["--master-addr", "[::1]", "--master-port", "7001"], ("::1", 7001)),
    ],
)
def test_the_endpoint_has_torchruns_forms_and_ports(home: Path, words: list[str], place: tuple[str, int]) -> None:
    order = many(home, "--nnodes", "2", *words).order
    assert (order.host, order.port) == place


def test_node_rank_0_hosts_where_the_master_address_is_typed_as_for_torchrun(home: Path) -> None:
    words = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--node-rank")
    assert many(home, *words, "0").order.hosts
    assert not many(home, *words, "1").order.hosts
    by_address = many(home, "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1", "--node-rank", "1").order
    assert by_address.hosts and by_address.is_host is None


def test_a_plan_has_the_range_the_spares_and_the_waits(home: Path) -> None:
    words = ("--rdzv-endpoint", "127.0.0.1:7", "--spares", "1", "--grow")
    found = many(home, "--nnodes", "2:4", *words, "--rdzv-conf", "join_timeout=9,last_call_timeout=3,read_timeout=1")
    assert found.job.spec.nodes == NodePlan(
        least=2, most=4, spares=1, last_call_s=3.0, join_s=9.0, grow=True, endpoint="127.0.0.1:7"
    )
    assert (found.job.spec.timers.beat_s, found.job.spec.timers.lease_s) == (1.0, 6.0)
    assert any("--rdzv-conf read_timeout: no meaning here" in note for note in found.notes)
    assert [(role.per_node, role.count) for role in found.job.spec.roles] == [(True, 1)]


def test_the_waits_of_torchruns_option_take_units(home: Path) -> None:
    words = ("--rdzv-endpoint", "127.0.0.1:7", "--rdzv-conf", "join_timeout=1h,last_call_timeout=1m30s")
    plan = many(home, "--nnodes", "2:4", *words).job.spec.nodes
    assert (plan.join_s, plan.last_call_s) == (3600.0, 90.0)


def test_our_option_wins_over_torchruns_and_that_over_a_variable(home: Path) -> None:
    words = ("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:7", "--rdzv-conf", "join_timeout=9")
    env = {"HOLDFAST_JOIN_TIMEOUT": "5", "HOLDFAST_LAST_CALL": "4"}
    plan = many(home, *words, env=env).job.spec.nodes
    assert (plan.join_s, plan.last_call_s) == (9.0, 4.0)
    assert many(home, *words, "--join-timeout", "2", env=env).job.spec.nodes.join_s == 2.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rdzv-endpoint", ":7"], "the host is missing"),
        (["--rdzv-endpoint", "127.0.0.1:70000"], "expected HOST:PORT with a port from 0 to 65535"),
        (["--rdzv-endpoint", "nowhere.invalid:7"], "the host name nowhere.invalid cannot be resolved on"),
        (["--rdzv-endpoint", "fd00::2"], r"IPv6 is written \[fd00::1\]:"),
        (["--rdzv-endpoint", "a:7", "--rdzv-backend", "etcd-v2"], "--rdzv-backend etcd-v2: expected one of static"),
        (["--rdzv-endpoint", "127.0.0.1:7", "--node-rank", "2"], "--node-rank 2 with --nnodes 2: expected a number "),
        (["--rdzv-endpoint", "127.0.0.1:7", "--rdzv-conf", "is_host=perhaps"], "`is_host=perhaps`: expected 1 or 0"),
        (["--rdzv-endpoint", "127.0.0.1:7", "--rdzv-conf", "join_timeout"], "`join_timeout`: expected KEY=VALUE"),
        (
            ["--rdzv-endpoint", "127.0.0.1:7", "--rdzv-conf", "join_timeout=0"],
            "expected seconds, or a time such as 5m, 2h or 1d12h, more than 0",
        ),
        (["--rdzv-endpoint", "127.0.0.1:7", "--local-addr", "10.0.0.1"], "can only be reached on its own machine"),
        (["--rdzv-endpoint", "127.0.0.1:7", "--port-range", "9-8"], "expected two ports from 1 to 65535"),
    ],
)
def test_what_cannot_be_right_is_one_message(home: Path, words: list[str], message: str) -> None:
    with pytest.raises(BadUsage, match=message) as wrong:
        many(home, "--nnodes", "2", *words)
    assert wrong.value.hint


def test_a_host_that_cannot_be_resolved_is_no_trouble_for_the_node_that_hosts(home: Path) -> None:
    order = many(home, "--nnodes", "2", "--rdzv-endpoint", "service.invalid:7", "--node-rank", "0").order
    assert (order.hosts, order.hosts_why) == (True, "its --node-rank is 0")


def test_a_node_that_knows_its_place_waits_for_a_name_to_be_resolved(home: Path) -> None:
    found = many(home, "--nnodes", "2", "--rdzv-endpoint", "service.invalid:7", "--node-rank", "1")
    assert not found.order.hosts
    assert any("service.invalid cannot be resolved here: it is tried again" in note for note in found.notes)


def test_a_loopback_endpoint_is_for_runs_on_one_machine_and_one_line_says_so(home: Path) -> None:
    notes = many(home, "--nnodes", "2", "--rdzv-endpoint", "localhost:7").notes
    assert notes == ("the endpoint localhost:7 is this machine's own: other machines cannot join",)


def test_keys_of_the_configuration_are_read_and_strange_ones_are_named() -> None:
    found, strange = rendezvous_conf(typed("--rdzv-conf", "is_host=True, close_timeout=3,keep_alive_interval=5"))
    assert found["is_host"] == "True"
    assert strange == ["close_timeout", "keep_alive_interval"]


def test_two_runs_are_one_job_by_their_id_or_else_by_name_and_script(home: Path) -> None:
    words = ("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:7")
    assert many(home, *words).order.job == "t (t.py)"
    assert many(home, *words, "--rdzv-id", "77").order.job == "--rdzv-id 77"


def test_the_workers_of_a_job_file_are_spread_over_the_nodes(home: Path) -> None:
    def slots(nodes: str, *more: str, count: int = 6) -> int:
        options = replace(typed("--nnodes", nodes, "--rdzv-endpoint", "127.0.0.1:7", *more), job="j.yaml")
        job = JobFile(JobSpec(name="t", roles=(Role(name="worker", count=count, command=("true",)),)), None, ())
        found = over_nodes(options, settings(home, options), job, home, node_range(options))
        assert not found.job.spec.roles[0].per_node
        return found.order.slots

    assert slots("2") == 3
    assert slots("4") == 2
    assert slots("2:3", "--nproc-per-node", "4") == 4
    with pytest.raises(BadUsage, match="its 6 workers do not fit on 2 nodes with 2 each"):
        slots("2:3")


def test_a_range_of_ports_is_two_ports(home: Path) -> None:
    assert port_range(settings(home, typed("--port-range", "30000-30099"))) == (30000, 30099)
    assert port_range(settings(home, typed())) is None


def test_the_key_of_the_state_directory_is_made_once_and_kept(home: Path) -> None:
    words = ("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:7")
    first, second = many(home, *words).order, many(home, *words).order
    assert first.key == second.key and len(first.key) == 32
    assert first.key_from == str(home / "key")
    assert first.key.hex() not in repr(first)
    assert (home / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "options",
    [RunOptions(nnodes="2", rdzv_endpoint="[fe80::1%eth0]:29500"), RunOptions(nnodes="2", master_addr="fe80::1%2")],
)
def test_an_address_with_a_zone_is_refused(options: RunOptions) -> None:
    with pytest.raises(BadUsage, match="means another machine on each node: expected an address that all nodes reach"):
        endpoint(options, "static")
