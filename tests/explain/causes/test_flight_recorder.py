"""Dumps of PyTorch's flight recorder: read without unpickling, and who did not join by them.

`data/flight` has two dumps of a real gloo group of torch 2.13, of which rank 2 did not join the third collective.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.explain import explain
from holdfast.explain.causes.missing_in_collective import missing
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.flight_records import FlightDump
from holdfast.observe.flight_dumps import flight, prefixes, read_flights
from holdfast.observe.plain_pickle import MOST_BYTES, plain_pickle
from holdfast.untrusted import Malformed
from places import DATA

FLIGHT = DATA / "flight"
USER_FRAME = {"name": "step", "filename": "/home/me/train.py", "line": 20}
TORCH_FRAME = {"name": "all_reduce", "filename": "/v/lib/python3.11/site-packages/torch/distributed/d.py", "line": 2810}


def entry(number: int, name: str = "nccl:all_reduce", *, done: bool = True, group: str = "0", **more: Any) -> Any:
    return {
        "record_id": number, "pg_id": 0, "process_group": (group, "default_pg" if group == "0" else f"tensor_{group}"),
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": name,
        "time_created_ns": 1_795_373_576_024_326_035 + number, "input_sizes": [[4, 10]], "input_dtypes": ["Float"],
        "output_sizes": [[4, 10]], "output_dtypes": ["Float"], "state": "completed" if done else "started",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": done, "timeout_ms": 600000,
        "is_p2p": False, "frames": [TORCH_FRAME, USER_FRAME],
    } | more  # fmt: skip


def dump(entries: list[Any], world: int = 4, **groups: str) -> dict[str, Any]:
    """The structure that torch documents for its dumps (version 2.x)."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    config |= {name.removeprefix("g"): {"name": name, "desc": "", "ranks": ranks} for name, ranks in groups.items()}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}


def flights(*entries: list[Any] | None, world: int = 4) -> list[FlightDump]:
    return [
        flight(pickle.dumps(dump(of_rank, world), protocol=2), rank)
        for rank, of_rank in enumerate(entries)
        if of_rank is not None
    ]


THIRD_UNDONE = [entry(1), entry(2), entry(3, done=False)]


def test_a_real_dump_tells_the_last_collective_and_the_one_that_waits() -> None:
    for rank in (0, 1):
        found = flight((FLIGHT / f"gloo_rank_{rank}").read_bytes(), rank)
        (group,) = found.groups
        assert (group.group, group.ranks) == ("default_pg", (0, 1, 2))
        assert group.last == group.waits
        assert group.waits is not None
        assert (group.waits.number, group.waits.name, group.waits.sizes) == (3, "gloo:all_reduce", "[[8]] Float")
        assert group.waits.place == "train1.py:15"


def test_of_a_real_group_the_rank_without_a_dump_did_not_join() -> None:
    found = missing([flight((FLIGHT / f"gloo_rank_{rank}").read_bytes(), rank) for rank in (0, 1)])
    assert found is not None
    assert found.ranks == (2,)
    assert "ranks 0 and 1 wait in gloo:all_reduce number 3 of default_pg, called at train1.py:15" in found.why


def test_the_rank_whose_last_number_is_lower_did_not_join() -> None:
    found = missing(flights(THIRD_UNDONE, THIRD_UNDONE, [entry(1), entry(2)], THIRD_UNDONE))
    assert found is not None
    assert found.ranks == (2,)
    assert found.why.startswith("rank 2 never joined nccl:all_reduce number 3 of default_pg, in which ranks 0, 1 and 3")
    assert "the last of rank 2 is nccl:all_reduce number 2 (called at train.py:20)" in found.why


def test_a_rank_that_called_another_collective_is_named() -> None:
    other = [entry(1), entry(2), entry(3, "nccl:broadcast", done=False)]
    found = missing(flights(THIRD_UNDONE, other, THIRD_UNDONE, THIRD_UNDONE))
    assert found is not None
    assert found.ranks == (1,)
    assert "rank 1 called nccl:broadcast" in found.why
    shapes = [entry(1), entry(2), entry(3, done=False, input_sizes=[[5, 10]])]
    found = missing(flights(THIRD_UNDONE, THIRD_UNDONE, THIRD_UNDONE, shapes))
    assert found is not None
    assert found.ranks == (3,)
    assert "[[5, 10]] Float" in found.why


def test_where_all_wait_alike_or_all_is_done_no_rank_is_named() -> None:
    assert missing(flights(THIRD_UNDONE, THIRD_UNDONE, THIRD_UNDONE, THIRD_UNDONE)) is None
    assert missing(flights([entry(1)], [entry(1)], [entry(1)], [entry(1)])) is None
    assert missing([]) is None


def test_a_rank_that_waits_in_another_group_is_late_because_of_that_one() -> None:
    """Rank 1 is missing in the first group since it waits in the second, where rank 3 is missing."""
    tensor = [entry(1, group="7"), entry(2, group="7", done=False)]
    first = [entry(1), entry(2)]
    found = missing(flights(THIRD_UNDONE, [*first, *tensor], None, [*first, entry(1, group="7")]))
    assert found is not None
    assert found.ranks == (3,)
    assert "of tensor_7" in found.why
    found = missing(flights(THIRD_UNDONE, [*first, *tensor], None, [*THIRD_UNDONE, entry(1, group="7")]))
    assert found is not None
    assert found.ranks == (1, 3)
    assert found.why.startswith("groups wait for each other")


def test_the_json_form_says_the_same() -> None:
    told = dump(THIRD_UNDONE)
    text = json.dumps(told).encode()
    assert flight(text, 0).groups == flight(pickle.dumps(told, protocol=2), 0).groups


def test_the_report_names_the_rank_that_did_not_join() -> None:
    words = (
        "[rank0]:[E1122 18:31:39 ProcessGroupNCCL.cpp:633] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=40, NumelOut=40, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out.\n"
    )
    workers = []
    for rank in range(4):
        ended = WorkerExit(
            role="worker", rank=rank, node="vm", attempt=1, pid=100 + rank, signal=6, started_at=1.0,
            ended_at=700.0 + rank / 10, last_words=words,
        )  # fmt: skip
        excerpt = LogExcerpt(source=f"worker-{rank} stderr", text=words)
        workers.append(WorkerEvidence(rank=rank, node="vm", exit=ended, stderr=excerpt))
    found = tuple(flights(THIRD_UNDONE, THIRD_UNDONE, [entry(1), entry(2)], THIRD_UNDONE))
    report = explain(AttemptEvidence(workers=tuple(workers), flights=found))
    assert report.phrase == "CollectiveTimeout"
    assert report.first is not None and report.first.rank == 2
    assert "rank 2 never joined nccl:all_reduce number 3" in report.reason
    (item,) = [item for item in report.evidence if item.source == "flight recorder"]
    assert "rank 0: default_pg: nccl:all_reduce number 3, started" in item.text


# ---------------------------------------------------------------------------------------------- files


def test_dumps_are_looked_for_where_torch_writes_them(tmp_path: Path) -> None:
    others = ("/tmp/hccl_trace_rank_", "/tmp/.cache/torchcomm_fr_trace_")
    assert prefixes({"TORCH_FR_DUMP_TEMP_FILE": "/a/x_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/y_"}) == (
        "/a/x_",
        *others,
    )
    assert prefixes({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/y_"}) == ("/b/y_", *others)
    assert prefixes({"TORCH_HCCL_DEBUG_INFO_TEMP_FILE": "/c/z_"})[-2] == "/c/z_"
    assert prefixes({"HOME": "/home/me"})[0] == "/home/me/.cache/torch/comm_lib_trace_rank_"
    (tmp_path / "fr_0").write_bytes(pickle.dumps(dump(THIRD_UNDONE), protocol=2))
    (tmp_path / "fr_1").write_bytes(b"half a dum")
    os.mkfifo(tmp_path / "fr_2")
    given = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "fr_")}
    assert [one.rank for one in read_flights(given, tmp_path, [0, 1, 2, 3], 0.0)] == [0]


#: Entries as torch before 2.4 wrote them, and torch_npu does: one number, no name of the group, no `retired`.
OLD_ENTRIES = [
    {
        "pg_id": 0, "seq_id": number, "profiling_name": "hccl:all_reduce", "time_created_us": 17 * 10**11 + number,
        "input_sizes": [[4]], "output_sizes": [[4]], "state": "completed" if done else "scheduled",
        "frames": [TORCH_FRAME, USER_FRAME],
    }
    for number, done in ((1, True), (2, False))
]  # fmt: skip


@pytest.mark.parametrize(
    "whole", [OLD_ENTRIES, {"version": "1.1", "entries": OLD_ENTRIES}], ids=["entries alone", "with a version"]
)
@pytest.mark.parametrize("written", [pickle.dumps, lambda told: json.dumps(told).encode()], ids=["pickle", "json"])
def test_dumps_of_older_versions_and_of_ascend_are_read(whole: Any, written: Any, tmp_path: Path) -> None:
    (tmp_path / "hccl_1").write_bytes(
        written(whole) if written is not pickle.dumps else pickle.dumps(whole, protocol=2)
    )
    [found] = read_flights({"TORCH_HCCL_DEBUG_INFO_TEMP_FILE": "hccl_"}, tmp_path, [1], 0.0)
    [group] = found.groups
    assert group.waits is not None
    assert (group.waits.number, group.waits.name, group.waits.place) == (2, "hccl:all_reduce", "train.py:20")


def test_a_dump_of_an_earlier_attempt_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "fr_0").write_bytes(pickle.dumps(dump(THIRD_UNDONE), protocol=2))
    os.utime(tmp_path / "fr_0", (1000.0, 1000.0))
    given = {"TORCH_FR_DUMP_TEMP_FILE": "fr_"}
    assert read_flights(given, tmp_path, [0], 1001.0) == ()
    assert len(read_flights(given, tmp_path, [0], 999.0)) == 1


# ---------------------------------------------------------------------------------------------- pickles


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/was-here",)


HOSTILE_DUMPS = [
    ("a call", pickle.dumps(Evil())),
    ("a class", pickle.dumps(Evil)),
    ("an old pickle", pickle.dumps([1, 2], protocol=0)),
    ("nothing", b""),
    ("no end", pickle.dumps([1, 2])[:-1]),
    ("a text longer than the file", b"\x80\x02X\xff\xff\xff\x7fabc."),
    ("a number of 255 bytes", b"\x80\x02\x8a\xff" + b"\x01" * 255 + b"."),
    ("a memo that is not there", b"\x80\x02h\x07."),
    ("a list as a key", b"\x80\x02}]K\x01s."),
    ("an append to nothing", b"\x80\x02K\x01a."),
    ("marks alone", b"\x80\x02" + b"(" * 1000 + b"."),
    ("a tuple of a mark", b"\x80\x02(\x85."),
    ("two values", b"\x80\x02K\x01K\x02."),
    ("an odd number of items", b"\x80\x02}(K\x01u."),
]


@pytest.mark.parametrize("data", [case[1] for case in HOSTILE_DUMPS], ids=[case[0] for case in HOSTILE_DUMPS])
def test_all_else_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        plain_pickle(data)


def test_a_memo_s_index_takes_no_memory() -> None:
    assert plain_pickle(b"\x80\x02K\x05r" + struct.pack("<I", 2**32 - 1) + b".") == 5


def test_a_dump_that_is_too_large_is_refused() -> None:
    with pytest.raises(Malformed, match="more than"):
        plain_pickle(bytes(MOST_BYTES + 1))


PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    | st.tuples(inner, inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN_VALUES, st.sampled_from([2, 3, 4, 5]))
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    out = io.BytesIO()
    pickle.Pickler(out, protocol=protocol).dump(value)
    assert plain_pickle(out.getvalue()) == value


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for given_bytes in (data, b"\x80\x02" + data, b"{" + data):
        try:
            flight(given_bytes, 0)
        except Malformed:
            continue


@given(PLAIN_VALUES)
def test_no_entries_break_the_reader(value: Any) -> None:
    told = {"entries": [value, {"process_group": value, "frames": value, "input_sizes": value, "retired": value}]}
    told["pg_config"] = value
    flight(pickle.dumps(told, protocol=4), 0)


RECORDS = """
import os, threading, time
from datetime import timedelta
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
rank = os.environ["RANK"]
def write():
    open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "wb").write(c10d._dump_fr_trace())
dist.init_process_group("gloo", timeout=timedelta(seconds=4))
dist.all_reduce(torch.ones(4))
threading.Timer(2, write).start()
if rank == "1":
    time.sleep(600)
dist.all_reduce(torch.ones(8))
"""


@pytest.mark.real
@pytest.mark.torch
def test_a_real_group_s_dumps_name_the_rank_that_did_not_join(holdfast: Holdfast, tmp_path: Path) -> None:
    import torch

    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this torch records no collectives of gloo")
    ran = holdfast.run(
        *("--nproc-per-node", "3", "--max-restarts", "0", "--grace", "1", holdfast.script(RECORDS)),
        timeout_s=120,
        TORCH_FR_BUFFER_SIZE="100",
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "fr_"),
    )
    assert ran.report["first"]["rank"] == 1
    assert "rank 1 never joined gloo:all_reduce number 2 of default_pg" in ran.report["reason"]
