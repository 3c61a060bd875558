"""Logs that are put aside at a size: at the ends of lines, so many of them, and read as one by every reader."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.model.log_time_format import times_name
from holdfast.node.explain_files import excerpt
from holdfast.observe.log_file import LogFile, Rotation
from holdfast.record.rotated_logs import older, pieces, tail_mark
from holdfast.report.log_files import LogPart, copy

LINE_COUNT = 5000
WRITES_LINES = f"""
import sys
for number in range({LINE_COUNT}):
    print(f"line {{number:06d}} " + "x" * 40, flush=number % 7 == 0)
"""


def write_blocks(path: Path, blocks: list[bytes], most_bytes: int, kept: int) -> list[str]:
    said: list[str] = []
    rotation = Rotation(most_bytes=most_bytes, kept=kept)
    log = LogFile(path, "w", lambda text, about: said.append(text), shown=False, now=0.0, rotation=rotation)
    for block in blocks:
        log.write(block, 0.0)
    log.close()
    return said


def whole_log(path: Path) -> bytes:
    with pieces(path) as found:
        return b"".join(file.read() for _, file in found)


@given(st.lists(st.binary(max_size=300).map(lambda block: block.replace(b"\r", b"\n")), max_size=30))
def test_no_byte_is_lost_and_the_pieces_are_in_order(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "stdout.log"
    assert write_blocks(path, blocks, 100, 500) == []
    assert whole_log(path) == b"".join(blocks)


def test_a_log_is_put_aside_at_the_end_of_a_line_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    write_blocks(path, [f"line {number:03d}\n".encode() for number in range(100)], 95, 3)
    names = ["stdout.log", *(f"stdout.log.{n}" for n in (1, 2, 3))]
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted([*names, *map(times_name, names)])
    for found in tmp_path.glob("*.log*"):
        assert found.stat().st_size <= 95
        assert found.read_bytes().endswith(b"\n")
    assert whole_log(path).splitlines()[-1] == b"line 099"


def test_with_none_kept_the_disk_holds_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    write_blocks(path, [b"0123456789\n"] * 50, 100, 0)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["stdout.log", "stdout.times"]
    assert path.stat().st_size <= 100


def test_a_line_longer_than_the_limit_stays_whole_as_long_as_twice_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    write_blocks(path, [b"short\n", b"y" * 60, b"y" * 60 + b"\nnext\n"], 100, 9)
    assert any(b"y" * 120 + b"\n" in found.read_bytes() for found in tmp_path.iterdir())
    assert whole_log(path) == b"short\n" + b"y" * 120 + b"\nnext\n"


def test_the_last_lines_are_found_over_pieces(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    lines = [f"line {number:03d}\n".encode() for number in range(100)]
    write_blocks(path, lines, 95, 50)
    part = LogPart(attempt=1, role="worker", rank=0, stream="stdout", path=str(path))
    for count in (0, 1, 4, 25, 99, 100, 200):
        told: list[bytes] = []
        copy(part, told.append, since=tail_mark(path, count), prefixed=False)
        assert b"".join(told) == b"".join(lines[max(0, 100 - count) :]), count


def test_a_reader_that_goes_on_misses_nothing_that_was_put_aside_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    part = LogPart(attempt=1, role="worker", rank=0, stream="stdout", path=str(path))
    told: list[bytes] = []
    log = LogFile(path, "w", lambda text, about: None, shown=False, now=0.0, rotation=Rotation(most_bytes=95, kept=50))
    since = None
    for number in range(200):
        log.write(f"line {number:03d}\n".encode(), 0.0)
        if number % 37 == 0:
            since = copy(part, told.append, since=since, prefixed=False)
    log.close()
    copy(part, told.append, since=since, prefixed=False)
    assert b"".join(told) == b"".join(f"line {number:03d}\n".encode() for number in range(200))


def test_what_a_worker_died_of_is_read_over_the_border(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    trace = b'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    go()\n'
    write_blocks(path, [b"x\n" * 40, trace, b"ValueError: no such step\n"], 180, 3)
    assert b"Traceback" not in path.read_bytes()
    text = excerpt(path, "worker-0 stderr").text
    assert text.endswith((trace + b"ValueError: no such step\n").decode())


def test_a_reader_misses_no_file_while_a_rotation_renames_them(tmp_path: Path) -> None:
    """A rotation renames the oldest file first, so that one number after the other is free for a moment."""
    log = tmp_path / "stdout.log"
    names = [log, *(Path(older(log, number)) for number in range(1, 6))]
    for free in range(len(names)):
        for name in names:
            name.unlink(missing_ok=True)
        there = [name for name in names if name != names[free]]
        for name in there:
            name.write_text(name.name)
        with pieces(log) as found:
            assert [file.read().decode() for _, file in found] == [name.name for name in reversed(there)]


@pytest.mark.real
def test_a_run_keeps_its_logs_within_limits_and_logs_prints_all_that_is_kept(holdfast: Holdfast) -> None:
    ran = holdfast.run("--log-size", "20K", "--log-kept", "100", "--redirects", "3", holdfast.script(WRITES_LINES))
    assert ran.status == 0
    directory = ran.job_dir / "attempt-1/worker-0"
    sizes = [path.stat().st_size for path in directory.glob("stdout.log*")]
    assert len(sizes) > 5
    assert max(sizes) <= 20 << 10
    shown = holdfast("logs", "--stdout", ran.job_dir.name).out.splitlines()
    assert [line[:11] for line in shown] == [f"line {number:06d}" for number in range(LINE_COUNT)]
    assert holdfast("logs", "--stdout", "--tail", "700", ran.job_dir.name).out.splitlines() == shown[-700:]


@pytest.mark.real
def test_so_many_logs_are_kept(holdfast: Holdfast) -> None:
    ran = holdfast.run("--log-size", "20K", "--log-kept", "2", "--redirects", "3", holdfast.script(WRITES_LINES))
    names = sorted(path.name for path in (ran.job_dir / "attempt-1/worker-0").glob("stdout.log*"))
    assert names == ["stdout.log", "stdout.log.1", "stdout.log.2"]


@pytest.mark.real
def test_following_a_log_sees_every_line_of_it(holdfast: Holdfast) -> None:
    script = holdfast.script(f"import time\ntime.sleep(1.5)\n{WRITES_LINES}")
    running = holdfast.start("run", "--no-checks", "--log-size", "20K", "--log-kept", "100", "--redirects", "3", script)
    while not list(holdfast.home.glob("jobs/*/attempt-1/worker-0/stdout.log")):
        assert running.poll() is None
    [job] = [path.name for path in (holdfast.home / "jobs").iterdir() if path.is_dir()]
    followed = holdfast("logs", "--follow", "--stdout", "--rank", "0", job, timeout_s=60)
    assert holdfast.finish(running).status == 0
    assert [line[:11] for line in followed.out.splitlines()] == [f"line {number:06d}" for number in range(LINE_COUNT)]


@pytest.mark.real
@pytest.mark.skipif(shutil.which("tail") is None, reason="there is no tail here")
def test_a_shipper_that_follows_names_loses_nothing_across_rotations(holdfast: Holdfast) -> None:
    """GNU tail reads a file to its end before it goes on with the one that has taken its name."""
    ships = 'f=$HOLDFAST_ATTEMPT_LOGS/worker-0/stdout.log; tail -n +1 -F "$f" > shipped 2> notes & p=$!; '
    ships += "trap 'sleep 1; kill $p; exit 0' TERM; wait"
    worker = f"import time\ntime.sleep(0.5)\nfor n in range({LINE_COUNT}):\n"
    worker += "    print(f'line {n:06d} ' + 'x' * 40, flush=True)\n    time.sleep(0.0005)\n"
    job = {
        "name": "ship",
        "roles": {"worker": {"count": 1, "command": [sys.executable, str(holdfast.script(worker))]}},
        "plugins": {"daemons": {"shipper": {"command": ["bash", "-c", ships]}}},
    }
    path = holdfast.dir / "job.yaml"
    path.write_text(json.dumps(job))
    ran = holdfast.run("--log-size", "64K", "--log-kept", "3", "--redirects", "3", "--job", path, timeout_s=60)
    assert ran.status == 0
    assert len(list((ran.job_dir / "attempt-1/worker-0").glob("stdout.log.*"))) == 3
    shipped = (holdfast.dir / "shipped").read_text().splitlines()
    assert [line[:11] for line in shipped] == [f"line {number:06d}" for number in range(LINE_COUNT)]


@pytest.mark.real
def test_the_logs_of_so_many_attempts_are_kept(holdfast: Holdfast) -> None:
    script = holdfast.script("import os, sys\nn = int(os.environ['HOLDFAST_ATTEMPT'])\nsys.exit(n % 4)\n")
    ran = holdfast.run("--max-restarts", "5", "--log-attempts", "2", script)
    assert ran.status == 0
    assert sorted(path.name for path in ran.job_dir.glob("attempt-*")) == ["attempt-3", "attempt-4"]


@pytest.mark.real
def test_a_size_that_is_none_is_refused(holdfast: Holdfast) -> None:
    ran = holdfast.run("--log-size", "90%", holdfast.script("print()"))
    assert ran.status == 2
    assert "--log-size: expected bytes, or a size such as 500M, 16GiB or 1.5T, got '90%'" in ran.err


@pytest.mark.real
@pytest.mark.drill
def test_the_logs_of_a_job_over_nodes_are_put_aside_too(cluster: object) -> None:
    job = cluster(2)  # type: ignore[operator]  # a fixture of the drills
    script = job.out / "writes.py"
    script.write_text(WRITES_LINES)
    job.run_all("--nnodes", "2", "--log-size", "20K", "--log-kept", "100", "--redirects", "3", script=(script,))
    assert job.end() == {1: 0, 2: 0}
    for number in (1, 2):
        [log] = job.net[number].home.glob(f"jobs/*/attempt-1/worker-{number - 1}/stdout.log")
        assert log.with_name("stdout.log.1").exists()
        assert len(whole_log(log).splitlines()) == LINE_COUNT
