"""Which failures are the same: the signal or status, the place, the collective, and the text without what varies."""

from __future__ import annotations

import pytest
from explain_builders import dead, seen, trace

from holdfast.explain import explain
from holdfast.explain.causes.fingerprint import normalized

WATCHDOG_OF_1 = (
    "[rank1]:[E1122 09:14:39.123 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for {ran} milliseconds before "
    "timing out."
)


def print_of(words: str, **how: object) -> str:
    return explain(seen(dead(0, words, **how))).fingerprint  # type: ignore[arg-type]  # `how` is for one exit


def watchdog(seq: int = 1523, op: str = "ALLREDUCE", ran: int = 600043) -> str:
    return print_of(WATCHDOG_OF_1.format(seq=seq, op=op, ran=ran), signal=6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("object at 0x7f3a2b", "object at 0x7f9911"),
        ("pid 123 died", "pid 4711 died"),
        ("rank 3 is late", "rank 0 is late"),
        ("2026-11-22 12:00:01 no token", "2026-11-23 08:10:55 no token"),
        ("ran for 600043 ms", "ran for 600101 ms"),
        ("no answer after 12.5 s", "no answer after 3.1 s"),
        ("tried 2.50 GiB of 79.15 GiB", "tried 2.25 GiB of 79.15 GiB"),
        ("/tmp/tmpab12/x.pt is gone", "/tmp/tmpzz99/y.pt is gone"),
        ("10.0.0.2:43251 hung up", "10.0.0.7:51000 hung up"),
        ("sample 482131", "sample 9917222"),
        ("id 3f2b8c1e-1111-2222-3333-444455556666", "id 00000000-aaaa-2222-3333-444455556666"),
    ],
)
def test_what_varies_by_itself_is_no_difference(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("not yet 1", "not yet 2"), ("shard 17", "shard 18"), ("no file a.bin", "no file b.bin"), ("Errno 5", "Errno 28")],
)
def test_a_small_number_or_another_name_is_a_difference(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


def test_other_words_of_one_exception_are_another_failure() -> None:
    assert print_of(trace("ValueError: not yet 1")) != print_of(trace("ValueError: not yet 2"))
    assert print_of(trace("ValueError: not yet 1")) == print_of(trace("ValueError: not yet 1"))


def test_another_signal_or_status_is_another_failure() -> None:
    assert print_of("", signal=9) != print_of("", signal=10)
    assert print_of("", code=7) != print_of("", code=8)
    assert print_of("", code=7) == print_of("", code=7)


def test_a_bare_status_is_told_apart_by_its_last_line_unless_that_counts() -> None:
    assert print_of("no token\n", code=7) != print_of("no route\n", code=7)
    assert print_of("step 12\n", code=7) == print_of("step 40\n", code=7)


def test_a_collective_is_known_by_its_name_and_number() -> None:
    assert watchdog() == watchdog(ran=600101)
    assert watchdog() != watchdog(seq=1524)
    assert watchdog() != watchdog(op="BROADCAST")
    assert "ALLREDUCE 1523" in watchdog()


def test_a_port_tells_one_rendezvous_from_the_next() -> None:
    said = "The server socket has failed to bind to [::]:{} (errno: 98 - Address already in use)."
    assert print_of(trace(f"RuntimeError: {said.format(29511)}")) != print_of(
        trace(f"RuntimeError: {said.format(29512)}")
    )
