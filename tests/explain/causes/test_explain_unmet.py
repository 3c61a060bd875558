"""A gang that never met: recorded words of torch 2.13 with gloo, and the ranks that the report names."""

from __future__ import annotations

import pytest
from explain_builders import of_files

from builders import T
from holdfast.catalogue.exit_rows import load
from holdfast.explain import explain
from holdfast.explain.logs.rendezvous_lines import meeting_words
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast_testing.lab import starts

MET = "127.0.0.1:42393"


def waits(rank: int, prefix: str = "/default_pg/0//cpu//0") -> str:
    socket = "SocketImpl(fd=3, addr=[::ffff:127.0.0.1]:57324, remote=[::ffff:127.0.0.1]:42393)"
    return (
        f"[W1122 18:32:05.92 socket.cpp:469] [c10d] waitForInput: poll for socket {socket} returned 0, likely a "
        "timeout\n"
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 7, in <module>\n'
        f"torch.distributed.DistStoreError: wait timeout after 8000ms, keys: {prefix}/{rank}\n"
    )


def tries(host: str, port: int = 42393, why: str = "") -> str:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    refused = f"[W1122 18:32:01.1 socket.cpp:764] [c10d] The client socket has failed to connect to {place} ({why}).\n"
    last = f"The client socket has timed out after 8000ms while trying to connect to ({host}, {port})."
    return (refused if why else "") + f"[E1122 18:32:04.108 socket.cpp:1028] [c10d] {last}\n"


def failed(words: str) -> str:
    return f"{words}torch.distributed.DistNetworkError: {words.splitlines()[-1].partition('[c10d] ')[2]}\n"


NO_NAME = (
    "[W1122 18:32:11.33 socket.cpp:764] [c10d] The IPv6 network addresses of (no-such-host.invalid, 36573) cannot be "
    "retrieved (gai error: -2 - Name or service not known).\n"
)
CLIENTS = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 2/3 clients joined.\n"
OWN_WORDS = "TimeoutError: init: 1 of 2 peers did not connect within 8 s\n"
NO_DEVICE = (
    "RuntimeError: [enforce fail at third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find "
    "address for: nope0\n"
)
IN_STORE = (
    "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank: 0, for "
    "key: store_based_barrier_key:1 (world_size=3, num_workers_joined=2, timeout=0:00:08)\n"
)
BLACKHOLE = (
    "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (10.9.8.7, "
    "41491). The client socket has failed to connect to 102.85.0.0:58723 (errno: 22 - Invalid argument).\n"
)
UNIQUE = (
    "torch.distributed.DistBackendError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: "
    "/default_pg/0//cuda//0\n"
)

ACCEPTS = (
    'Traceback (most recent call last):\n  File "/home/me/train.py", line 26, in <module>\n    c=meet()\n'
    '  File "/home/me/train.py", line 18, in meet\n    c,_=s.accept()\n'
    '  File "/usr/lib/python3.11/socket.py", line 294, in accept\n    fd, addr = self._accept()\n'
    "TimeoutError: timed out\n"
)
CONNECTS = (
    'Traceback (most recent call last):\n  File "/home/me/train.py", line 22, in meet\n'
    "    c=socket.create_connection((host, port), timeout=2)\n"
    '  File "/usr/lib/python3.11/socket.py", line 827, in create_connection\n    raise exceptions[0]\n'
    '  File "/usr/lib/python3.11/socket.py", line 812, in create_connection\n    sock.connect(sa)\n'
    "ConnectionRefusedError: [Errno 111] Connection refused\n"
)
OWN_TIME_OUT = CONNECTS.replace("ConnectionRefusedError: [Errno 111] Connection refused", "TimeoutError: timed out")

WHO_NEVER_CAME: list[tuple[str, list[str], list[int], list[str]]] = [
    ("one never comes", [waits(1), "", waits(1)], [1], ["rank 1 never joined", "8.0 s", MET, "rank 1 wrote nothing"]),
    ("one of two never comes", [waits(1), ""], [1], ["rank 1 never joined: rank 0 waited"]),
    ("two of four are missing", [waits(1), "", waits(1), ""], [1, 3], ["ranks 1 and 3 never joined"]),
    ("rank 0 is late", ["", waits(0), waits(0)], [0], ["rank 0 never joined: ranks 1 and 2 waited"]),
    ("rank 0 counts", [CLIENTS, "loading shards\n", waits(0)], [1],
     ["2 of 3 had joined", "wrote last: loading shards"]),
    ("a barrier in the store", [IN_STORE, IN_STORE.replace("rank: 0", "rank: 1"), ""], [2], ["2 of 3 had joined"]),
    ("a program's own words", [OWN_WORDS, "hello\n"], [1], ["rank 1 never joined: rank 0 waited for rank 1"]),
    ("a plain socket", [ACCEPTS, "hello\n"], [1], ["rank 1 never joined: rank 0 waited for rank 1"]),
    ("a plain socket of four", [ACCEPTS, "hello\n", "", ""], [1, 2, 3], ["ranks 1 to 3 never joined: rank 0 waited"]),
    ("a plain socket with a time-out of its own", ["hello\n", OWN_TIME_OUT], [0],
     ["rank 0 never joined: rank 1 waited"]),
    ("a plain socket that nobody opened", ["hello\n", CONNECTS, CONNECTS], [0],
     ["rank 0 never joined: ranks 1 and 2 waited"]),
    ("NCCL", ["", UNIQUE.replace("[2] is", "[1] is"), UNIQUE], [0], ["rank 0 never joined"]),
    ("a wrong address", [waits(1), tries("10.255.255.1"), waits(1)], [1],
     ["rank 1 never reached rank 0: it tried 10.255.255.1 port 42393 (no answer for 8.0 s)", f"waited at {MET}"]),
    ("a wrong port", [CLIENTS, failed(tries("127.0.0.1", 9)), waits(0)], [1], ["it tried 127.0.0.1 port 9"]),
    ("a wrong name", [waits(2), waits(2), NO_NAME + tries("no-such-host.invalid", 36573)], [2],
     ["no-such-host.invalid port 36573 (Name or service not known)"]),
    ("IPv6", [waits(1), failed(tries("100::2", why="errno: 113 - No route to host")), waits(1)], [1],
     ["100::2 port 42393 (No route to host)"]),
    ("a route that leads nowhere, and an address that torch had given back",
     [waits(1), BLACKHOLE,
      waits(1)], [1], ["10.9.8.7 port 41491 (Invalid argument)"]),
    ("a firewall", [waits(1), failed(tries("127.0.0.1")), waits(1)], [1], ["it tried 127.0.0.1 port 42393"]),
    ("no rank reaches rank 0's port", ["", failed(tries("127.0.0.1")), failed(tries("127.0.0.1"))], [0],
     ["rank 0 never opened its port: ranks 1 and 2 tried 127.0.0.1 port 42393 in vain"]),
    ("an interface that is not there", ["", NO_DEVICE, ""], [1], ["rank 1", "interface 'nope0'"]),
    ("a larger world size", ["", waits(3), ""], [1], ["rank 1 waited for rank 3", "at least 4, not 3"]),
    ("another version", [waits(1), waits(0, "/v1/default_pg/0//cpu//0"), waits(1)], [1],
     ["rank 1 waited under '/v1/default_pg/0//cpu//0'", "ranks 0 and 2 under '/default_pg/0//cpu//0'"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "ranks", "reason"), [case[1:] for case in WHO_NEVER_CAME], ids=[case[0] for case in WHO_NEVER_CAME]
)
def test_the_ranks_are_named_that_did_not_come(said: list[str], ranks: list[int], reason: list[str]) -> None:
    report = explained_ranks(said)
    named = [one.rank for one in (report.first, *report.also) if one is not None]
    assert named == ranks
    for part in reason:
        assert part in report.reason


#: How many ranks the job has, files do not tell.
NOT_BY_FILES = {"a larger world size"}


@pytest.mark.parametrize(
    ("said", "ranks", "reason"),
    [case[1:] for case in WHO_NEVER_CAME if case[0] not in NOT_BY_FILES],
    ids=[case[0] for case in WHO_NEVER_CAME if case[0] not in NOT_BY_FILES],
)
def test_logs_alone_name_the_same_ranks(said: list[str], ranks: list[int], reason: list[str]) -> None:
    files = [(f"rank{rank}.log", f"loading\n{text}") for rank, text in enumerate(said)]
    report = of_files(*files, ("launch.log", LAUNCHER))
    assert [one.rank for one in (report.first, *report.also) if one is not None] == ranks
    assert reason[0].replace("rank 1 wrote nothing", "") in report.reason


@pytest.mark.parametrize("said", [
    CONNECTS.replace("/usr/lib/python3.11/socket.py", "/usr/lib/python3.11/http/client.py"),
    CONNECTS.replace("/home/me/train.py", "/x/site-packages/redis/connection.py"),
    f"step 12 loss 0.3\n{CONNECTS}",
    ACCEPTS.replace("TimeoutError: timed out", "OSError: [Errno 24] Too many open files"),
], ids=["http", "redis", "after work", "another error"])  # fmt: skip
def test_a_wait_for_something_else_accuses_no_rank(said: str) -> None:
    report = explained_ranks([said, "hello\n"])
    assert report.first is not None and report.first.rank == 0


def test_a_rank_that_lost_the_store_with_rank_0_had_come() -> None:
    lost = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 7, in <module>\n'
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash?\n"
    )
    clients = CLIENTS.replace("2/3", "2/4")
    files = [("rank0.log", clients), ("rank1.log", "x\n"), ("rank2.log", lost), ("rank3.log", "x\n")]
    report = of_files(*files)
    assert [one.rank for one in (report.first, *report.also) if one is not None] == [1, 3]


def test_a_rank_without_a_log_is_told_as_that() -> None:
    report = of_files(("rank0.log", waits(1)), ("rank2.log", waits(1)))
    assert report.first is not None and report.first.rank == 1
    assert report.reason.endswith("rank 1 has no log here")


def test_no_rank_is_the_first_where_none_reached_the_port() -> None:
    report = explained_ranks([failed(tries("10.0.0.9")) for _ in range(3)])
    assert report.first is None
    assert [one.rank for one in report.also] == [0, 1, 2]
    assert "no rank reached 10.0.0.9 port 42393" in report.reason


def test_a_rank_that_died_of_its_own_cause_is_blamed_for_that() -> None:
    died = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'lr'\n"
    report = explained_ranks([waits(1), died, waits(1)])
    assert report.phrase == "UserException"
    assert report.first is not None and report.first.rank == 1


def test_a_wrong_address_is_told_with_the_one_that_holdfast_set() -> None:
    report = explained_ranks([waits(1), tries("10.255.255.1"), waits(1)])
    assert f"holdfast set {MET} for every rank" in report.solution
    assert report.collateral == (0, 2)
    report = explained_ranks([waits(1), failed(tries("127.0.0.1")), waits(1)])
    assert "nc -vz 127.0.0.1 42393" in report.solution


def test_words_about_anything_else_are_not_read() -> None:
    worker = WorkerEvidence(stderr=LogExcerpt(source="x", text="loss 0.3\nstep 4\n" * 1000))
    assert meeting_words(worker) is None
    assert meeting_words(WorkerEvidence()) is None


def test_what_is_kept_of_hostile_words_is_bounded() -> None:
    flood = "".join(tries(f"10.0.{number // 250}.{number % 250}") for number in range(2000)) + waits(10**5)
    found = meeting_words(WorkerEvidence(stderr=LogExcerpt(source="x", text=flood)))
    assert found is not None
    assert len(found.tried) == 4
    assert found.awaits == 10**5


def test_there_are_twelve_kinds_of_start_that_never_finishes() -> None:
    found = starts()
    assert len({case.name for case in found}) == len(found) >= 12
    known = set(load().by_phrase)
    for case in found:
        assert set(case.phrases) <= known, case.name
        compile(case.script, case.name, "exec")


ADDRESS_OF = {"gpu-1": "10.0.0.1", "gpu-2": "10.0.0.2"}


def test_over_several_nodes_the_rank_s_node_is_named() -> None:
    report = explained_ranks([waits(1), "", waits(1)], nodes=["gpu-1", "gpu-2", "gpu-1"])
    assert "rank 1 on gpu-2 (10.0.0.2) never joined: ranks 0 and 2 waited 8.0 s for rank 1" in report.reason
    assert report.first is not None and report.first.node == "gpu-2"


def test_over_several_nodes_an_address_that_is_not_rank_0_s_is_told_as_that() -> None:
    report = explained_ranks([waits(1), tries("10.9.9.9"), waits(1)], nodes=["gpu-1", "gpu-2", "gpu-1"])
    assert "it tried 10.9.9.9 port 42393" in report.reason
    assert f"holdfast set {MET}" in report.solution
    report = explained_ranks([waits(1), failed(tries("127.0.0.1")), waits(1)], nodes=["gpu-1", "gpu-2", "gpu-1"])
    assert "never reached rank 0's port" in report.reason


LAUNCHER = "srun: launching 3 tasks\n"


def explained_ranks(said: list[str], nodes: list[str] | None = None) -> ExitReport:
    workers = []
    for rank, text in enumerate(said):
        own = "Error" in text
        node = nodes[rank] if nodes else "vm"
        ended = WorkerExit(
            role="worker", rank=rank, node=node, attempt=1, pid=100 + rank, exit_code=1 if own else None,
            signal=None if own else 15, started_at=T - 20, ended_at=T + rank * 0.1 + (0 if own else 5),
            after_stop=not own, last_words=text if own else "",
        )  # fmt: skip
        excerpt = LogExcerpt(source=f"worker-{rank} stderr", text=text)
        workers.append(WorkerEvidence(rank=rank, node=node, exit=ended, stderr=excerpt))
    addresses = ADDRESS_OF if nodes else {}
    evidence = AttemptEvidence(workers=tuple(workers), meeting=MET, stop_asked_at=T + 1, addresses=addresses)
    return explain(evidence)
