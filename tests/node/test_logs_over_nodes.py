"""`holdfast logs` of a job over nodes: lines of all ranks by time, wherever the command is typed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from conftest import wait_for
from holdfast.model.log_time_format import records
from holdfast.node.agent.log_requests import MOST_TIMES, LogReader
from holdfast.observe.log_file import Rotation
from holdfast.reactor import Reactor
from holdfast.wire.node_messages import LogFrom, LogPiece, LogRead, LogStream, ReadLog
from log_writing import write_log
from pair_of_nodes import Pair, pair

__all__ = ["pair"]  # a fixture

PRINTS_IN_TURN = """
wait_for("go")
for turn in range(3):
    wait_for(f"turn-{turn}-{rank}")
    print(f"turn {turn} of rank {rank}", flush=True)
    pathlib.Path(f"done-{turn}-{rank}").write_text("x")
wait_for("end")
"""
TURNS_BY_TIME = [f"turn {turn} of rank {rank}" for turn in range(3) for rank in (1, 0)]


def in_turn(pair: Pair) -> None:
    """Each rank prints when the other one has: rank 1 first."""
    pair.go()
    for turn in range(3):
        for rank in (1, 0):
            pair.go(f"turn-{turn}-{rank}")
            wait_for(pair.holdfast.dir / f"done-{turn}-{rank}")


def end_pair(pair: Pair) -> None:
    pair.go("end")
    assert [ran.status for ran in pair.finish()] == [0, 0]


@pytest.mark.real
def test_lines_of_all_nodes_come_by_time_with_all_that_can_be_asked(pair: Pair) -> None:
    pair.start(PRINTS_IN_TURN)
    in_turn(pair)
    for home in (pair.a, pair.b):
        said = pair.until("turn 2 of rank 0", home, "logs", "pair", "--stdout", "--grep", "^turn")
        assert [line.partition("] ")[2] for line in said.out.splitlines()] == TURNS_BY_TIME, said.err
        lines = [json.loads(line) for line in pair.on(home, "logs", "pair", "--json", "-g", "^turn").out.splitlines()]
        assert [line["line"] for line in lines] == TURNS_BY_TIME
        assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
        since, until = lines[2]["at"], lines[4]["at"]
        for rank in (0, 1):
            one = ("logs", "pair", "--rank", str(rank), "--stdout")
            window = pair.on(home, *one, "--since", stamped(since), "--until", stamped(until), "-t")
            assert window.out.splitlines() == [
                f"{stamped(line['at'])} {line['line']}" for line in lines[2:4] if line["rank"] == rank
            ], window.err
            last = pair.on(home, *one, "--tail", "1")
            assert last.out == f"turn 2 of rank {rank}\n"
    far = pair.on(pair.b, "logs", "pair", "--path").out.splitlines()
    assert far[0].startswith(f"{pair.nodes[0]}:{pair.a}/jobs/") and far[0].endswith("/worker-0/stdout.log")
    assert [Path(path).is_file() for path in far[2:]] == [True, True]
    files = json.loads(pair.on(pair.a, "logs", "pair", "--path", "--json").out)["files"]
    assert [(file["rank"], file["node"]) for file in files] == [(0, None)] * 2 + [(1, pair.nodes[1])] * 2
    end_pair(pair)


def stamped(at: float) -> str:
    from holdfast.report.merged_logs import stamp

    return stamp(at)


@pytest.mark.real
def test_all_ranks_are_followed_from_either_node_over_attempts_until_the_job_ends(pair: Pair) -> None:
    rest = PRINTS_IN_TURN.replace('wait_for("end")', 'wait_for(f"end-{attempt}")')
    pair.start(rest + 'print("the end of", attempt)\nsys.exit(int(attempt == "1" and rank == "1"))\n')
    followers = [
        pair.holdfast.start("logs", "pair", "--stdout", "-f", HOLDFAST_HOME=str(home)) for home in (pair.a, pair.b)
    ]
    for follower in followers:
        assert follower.stdout is not None
        firsts = {follower.stdout.readline()[-20:-1] for _ in range(2)}
        assert firsts == {"rank 0 of attempt 1", "rank 1 of attempt 1"}
    in_turn(pair)
    pair.go("end-1")
    wait_for(pair.holdfast.dir / "up-0-2")
    pair.go("end-2")
    assert [ran.status for ran in pair.finish()] == [0, 0]
    for follower in followers:
        ran = pair.holdfast.finish(follower)
        assert ran.status == 0, ran.err
        said = [
            line.removeprefix("[worker-0 stdout] ").removeprefix("[worker-1 stdout] ") for line in ran.out.splitlines()
        ]
        for rank in (0, 1):  # what comes meanwhile comes as it arrives from each node
            own = [line for line in said if line.startswith("turn") and line.endswith(f"of rank {rank}")]
            assert own == [line for line in TURNS_BY_TIME if line.endswith(str(rank))] * 2
        wanted = [*TURNS_BY_TIME, *TURNS_BY_TIME, "the end of 1", *["the end of 2"] * 2]
        wanted += [f"rank {rank} of attempt 2" for rank in (0, 1)]
        said.remove("the end of 1") if said.count("the end of 1") == 2 else None
        assert sorted(said) == sorted(wanted), ran.err


@pytest.mark.real
def test_what_a_rank_writes_last_is_followed_whole_however_much_it_is(pair: Pair) -> None:
    rest = """
wait_for("go")
if rank == "1":
    for number in range(40_000):
        print(f"{number:99}")
"""
    pair.start(rest)
    readers = []
    for home, words in ((pair.a, ["--rank", "1"]), (pair.b, [])):
        out = pair.holdfast.dir / f"read-{home.name}"
        follower = pair.holdfast.start("logs", "pair", "--stdout", "-f", *words, HOLDFAST_HOME=str(home))
        assert follower.stdout is not None
        assert "of attempt 1" in follower.stdout.readline()
        # The end of a job waits two seconds for its readers, and for a pipe that is full no longer.
        tee = subprocess.Popen(["tee", out], stdin=follower.stdout, stdout=subprocess.DEVNULL)
        follower.stdout.close()
        readers.append((tee, out, follower))
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]
    for reader, out, follower in readers:
        assert (reader.wait(30), follower.wait(30)) == (0, 0)
        assert follower.stderr is not None
        follower.stderr.close()
        numbers = [line.split()[-1] for line in out.read_text().splitlines() if "attempt" not in line]
        assert numbers == [str(number) for number in range(40_000)]


@pytest.mark.real
def test_a_reader_that_is_too_slow_for_the_end_of_a_job_learns_that_something_is_missing(pair: Pair) -> None:
    pair.start('wait_for("go")\nprint("x" * 3_000_000) if rank == "1" else None\n')
    follower = pair.holdfast.start("logs", "pair", "--stdout", "-f", HOLDFAST_HOME=str(pair.b))
    assert follower.stdout is not None
    assert "of attempt 1" in follower.stdout.readline()
    pair.go()
    assert [ran.status for ran in pair.finish()] == [0, 0]
    assert "the logs of rank 1 were not read to their ends" in pair.holdfast.finish(follower).err


@pytest.mark.real
def test_an_owner_that_does_not_answer_leaves_the_logs_that_lie_here(pair: Pair) -> None:
    pair.start('wait_for("end")\n')
    pair.until("a word of rank 1", pair.b, "logs", "pair")
    kept = pair.key.read_bytes()
    pair.key.unlink()
    ran = pair.on(pair.b, "logs", "pair", "--stdout")
    assert (ran.status, ran.out) == (0, "rank 1 of attempt 1\n")
    assert "no job key" in ran.err and "only the logs on this machine follow" in ran.err
    pair.key.write_bytes(kept)
    end_pair(pair)


@pytest.mark.real
def test_after_the_job_the_owners_node_names_the_nodes_of_the_other_logs(pair: Pair) -> None:
    pair.start('wait_for("end")\n')
    none = pair.on(pair.b, "logs", "pair", "--attempt", "9", "--rank", "1")
    assert "there is no attempt 9: the last one is 1" in none.err
    end_pair(pair)
    there = pair.nodes[1]
    ran = pair.on(pair.a, "logs", "pair", "--stdout")
    assert ran.out == "rank 0 of attempt 1\n"
    assert f"the logs of other nodes are there: rank 1 on {there}\n  logs       ssh {there} holdfast logs" in ran.err
    ran = pair.on(pair.a, "logs", "pair", "--rank", "1")
    assert (ran.status, f"it ran on {there}, and a log stays on its rank's node" in ran.err) == (2, True)
    assert pair.on(pair.b, "logs", "pair", "--stdout").out == "rank 1 of attempt 1\n"


# ---------------------------------------------------------------------------------------------- the node's part


def read_piece(reader: LogReader, said: list[LogRead], where: LogFrom, attempt: int = 1) -> LogPiece:
    reader.read(ReadLog(id=len(said) + 1, rank=3, attempt=attempt, streams=(where,)))
    [piece] = said[-1].pieces
    return piece


@pytest.fixture
def log_of_rank_3(tmp_path: Path) -> Path:
    path = tmp_path / "attempt-1" / "worker-3" / "stdout.log"
    path.parent.mkdir(parents=True)
    return path


def test_a_piece_has_the_times_of_its_lines_over_logs_that_were_put_aside(tmp_path: Path, log_of_rank_3: Path) -> None:
    write_log(
        log_of_rank_3, [(100.0 + n, b"line %d of rank 3\n" % n) for n in range(9)], Rotation(most_bytes=40, kept=3)
    )
    assert log_of_rank_3.with_name("stdout.log.2").exists()
    said: list[LogRead] = []
    reader = LogReader(Reactor(time.monotonic), tmp_path, "n0", said.append)
    place = read_piece(reader, said, LogFrom(stream=LogStream.STDOUT, timed=True, most=0))
    assert (place.has_times, place.data, len(place.files)) == (True, b"", 4)
    found, where = [], LogFrom(stream=LogStream.STDOUT, timed=True, since=103.0)
    while (piece := read_piece(reader, said, where)).data:
        times = records(piece.times)
        ends = [at for at, _ in times[1:]] + [len(piece.data)]
        found += [(moment, piece.data[at:end]) for (at, moment), end in zip(times, ends, strict=True)]
        where = LogFrom(stream=LogStream.STDOUT, timed=True, file=piece.file, at=piece.at + len(piece.data))
    assert found == [(100.0 + number, b"line %d of rank 3\n" % number) for number in range(3, 9)]


def test_a_piece_has_a_limit_in_times_too(tmp_path: Path, log_of_rank_3: Path) -> None:
    write_log(log_of_rank_3, [(100.0 + number, b"\n") for number in range(2 * MOST_TIMES)])
    said: list[LogRead] = []
    reader = LogReader(Reactor(time.monotonic), tmp_path, "n0", said.append)
    first = read_piece(reader, said, LogFrom(stream=LogStream.STDOUT, timed=True))
    assert len(first.data) == MOST_TIMES
    second = read_piece(reader, said, LogFrom(stream=LogStream.STDOUT, timed=True, file=first.file, at=MOST_TIMES))
    assert records(second.times)[0] == (0, 100.0 + MOST_TIMES)


def test_a_line_without_its_end_waits_for_it_while_the_attempt_goes_on(tmp_path: Path, log_of_rank_3: Path) -> None:
    log_of_rank_3.write_bytes(b"whole\npar")
    said: list[LogRead] = []
    reader = LogReader(Reactor(time.monotonic), tmp_path, "n0", said.append)
    where = LogFrom(stream=LogStream.STDOUT, timed=True, whole=True)
    assert read_piece(reader, said, where).data == b"whole\n"
