"""Logs of a job on several nodes that share no file: read and followed from each of them, by time."""

from __future__ import annotations

import json
from functools import partial

import pytest

from drilling import ClusterOf
from netns import Started

pytestmark = [pytest.mark.real, pytest.mark.drill]


TURNS = """
import os, pathlib, sys, time
rank, ranks, attempt = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["HOLDFAST_ATTEMPT"]
out, log = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["HOLDFAST_LOGS"], "stdout.log")
for turn in range(4):
    before = (rank - 1) % ranks
    while (rank or turn) and not (out / f"{attempt}-{turn if rank else turn - 1}-{before}").exists():
        time.sleep(0.005)
    line = f"attempt {attempt} turn {turn} of rank {rank}"
    print(line, flush=True)
    while line not in log.read_text():  # a line has the time at which its agent read it
        time.sleep(0.005)
    (out / f"{attempt}-{turn}-{rank}").write_text("")
while not (out / f"end-{attempt}").exists():
    time.sleep(0.01)
print(f"rank {rank} ends attempt {attempt}")
sys.exit(int(attempt == "1" and rank == 2))
"""


def in_order(attempt: int, ranks: int) -> list[str]:
    return [f"attempt {attempt} turn {turn} of rank {rank}" for turn in range(4) for rank in range(ranks)]


def test_each_node_reads_and_follows_the_logs_of_all_by_time(cluster: ClusterOf) -> None:
    job = cluster(3)
    script = job.out / "turns.py"
    script.write_text(TURNS)
    job.run_all("--nnodes", "3", "--name", "turns", script=[script, job.out])
    job.wait((job.out / "1-3-2").exists, "all turns of attempt 1 are over")

    def lines(number: int, *words: str) -> list[str]:
        read = job.holdfast(job.net[number], "logs", "turns", "--stdout", *words)
        assert read.wait() == 0, read.err
        return read.out.splitlines()

    def all_lines(number: int) -> bool:
        return len(lines(number)) == 12

    def has_read(follower: Started) -> bool:
        return len(follower.out.splitlines()) == 12

    for number in (1, 3):
        job.wait(partial(all_lines, number), "all lines are in the logs")
        assert [line.partition("] ")[2] for line in lines(number)] == in_order(1, 3)
    fourth = json.loads(lines(2, "--json", "--grep", "turn 1 of rank 0")[0])
    since = lines(2, "--grep", "turn 1 of rank 0", "-t", "--utc")[0].partition(" [")[0]
    assert fourth["at"] > 0 and len(lines(3, "--since", since)) == 9
    paths = lines(2, "--path")
    assert [path.partition("/")[0] for path in paths] == ["node1:", "", "node3:"]

    followers = [job.holdfast(job.net[number], "logs", "turns", "--stdout", "-f") for number in (1, 2)]
    for follower in followers:
        job.wait(partial(has_read, follower), "it has read along")
    (job.out / "end-1").write_text("")
    job.wait((job.out / "2-3-2").exists, "all turns of attempt 2 are over")
    (job.out / "end-2").write_text("")
    assert job.end() == {1: 0, 2: 0, 3: 0}
    for follower in followers:
        assert follower.wait() == 0, follower.err
        said = [line.partition("] ")[2] for line in follower.out.splitlines()]
        assert said[:12] == in_order(1, 3)
        assert sorted(said[12:]) == sorted(
            [*(f"rank {rank} ends attempt {attempt}" for rank in range(3) for attempt in (1, 2)), *in_order(2, 3)]
        ), follower.err

    after = job.holdfast(job.net[1], "logs", "turns", "--rank", "2", "--attempt", "1", "--stdout", "--since", since)
    assert after.wait() == 0, "the owner's node has the failed rank's log, with its times"
    assert "attempt 1 turn 3 of rank 2" in after.out
