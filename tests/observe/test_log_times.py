"""The times of log lines: kept beside the log without harm to it, and what `holdfast logs` makes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.model.log_time_format import RECORD_BYTES, record, records
from holdfast.observe.log_file import FREE_BYTES, Rotation
from holdfast.record.job_directory import JobPlace, claim
from holdfast.record.state_directory import job_dir
from holdfast.record.timed_logs import has_times, read_on, since_mark
from holdfast.report.log_files import LogPart
from holdfast.report.merged_logs import LogCursor, LogLineFilter, Printer, merge, pattern_of
from log_writing import Wrote, write_log

#: A Python that imports what this one does.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
PATTERNS = ["a", "^b", "c$", "^$", "[^a]b", "a*", r"\Aa"]


def lines_with_times(path: Path, size: int = 1 << 20) -> Wrote:
    """Each line with its time; parts of a line joined."""
    found: Wrote = []
    mark = None
    while True:
        spans, mark = read_on(path, mark, size, whole_lines=False)
        if not spans:
            return found
        for span in spans:
            assert span.at is not None
            for line in span.data.splitlines(keepends=True):
                if found and not found[-1][1].endswith(b"\n"):
                    found[-1] = (found[-1][0], found[-1][1] + line)
                else:
                    found.append((span.at, line))


@given(st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=25), st.sampled_from([1, 3, 8, 1 << 20]))
def test_every_line_has_the_time_of_its_first_byte(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes], size: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "stdout.log"
    wrote = [(100.0 + number, block) for number, block in enumerate(blocks)]
    write_log(path, wrote)
    assert path.read_bytes() == b"".join(blocks)
    expected: Wrote = []
    for at, block in wrote:
        for byte in block:
            if not expected or expected[-1][1].endswith(b"\n"):
                expected.append((at, b""))
            expected[-1] = (expected[-1][0], expected[-1][1] + bytes([byte]))
    assert lines_with_times(path, size) == expected


def test_times_follow_a_log_that_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    wrote = [(100.0 + n, b"line %03d\n" % n) for n in range(60)]
    write_log(path, wrote, Rotation(most_bytes=95, kept=2))
    assert lines_with_times(path) == wrote[-len(lines_with_times(path)) :] and len(lines_with_times(path)) > 20
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path, copied)
    assert lines_with_times(copied / "stdout.log") == lines_with_times(path)


def test_a_job_that_is_killed_keeps_all_times_and_goes_on_behind_half_a_record(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    kill = "import os; os.kill(os.getpid(), 9)"
    code = f"from test_log_times import *; write_log(Path({str(path)!r}), [(5.0, b'a\\n'), (6.0, b'b\\n')]); {kill}"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=False, timeout=60)
    assert lines_with_times(path) == [(5.0, b"a\n"), (6.0, b"b\n")]
    with path.with_name("stdout.times").open("ab") as times:
        times.write(b"half")
    assert lines_with_times(path) == [(5.0, b"a\n"), (6.0, b"b\n")]
    write_log(path, [(7.0, b"c\n")])
    assert lines_with_times(path)[-1] == (7.0, b"c\n")


def test_a_disk_that_takes_no_times_harms_no_log(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.with_name("stdout.times").mkdir()
    log = write_log(path, [(1.0, b"one\n"), (2.0, b"two\n")])
    assert (path.read_bytes(), log.lost_bytes) == (b"one\ntwo\n", 0)
    assert not has_times(path)
    path.with_name("stdout.times").rmdir()
    write_log(path, [(3.0, b"three\n")])
    spans, _ = read_on(path, None, 1000, whole_lines=False)
    assert [(span.at, span.data) for span in spans] == [(None, b"one\ntwo\n"), (3.0, b"three\n")]


def test_times_take_a_bounded_part_of_what_the_log_takes(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    write_log(path, [(n * 0.002, b"x\n") for n in range(20_000)])
    most = FREE_BYTES + path.stat().st_size // 8 + RECORD_BYTES * (40 / 0.1)
    assert FREE_BYTES < path.with_name("stdout.times").stat().st_size < most


@given(st.integers(0, (1 << 48) - 1), st.floats(0, 1e11))
def test_a_record_says_what_went_in(at: int, now: float) -> None:
    [(byte, moment)] = records(record(at, now))
    assert byte == at and 0 <= now - moment < 0.00101


def part_of(path: Path, rank: int) -> LogPart:
    return LogPart(attempt=1, role="w", rank=rank, stream="stdout", path=str(path))


def lines_merged(logs: list[LogPart], wish: LogLineFilter, block: int = 4096) -> bytes:
    out = bytearray()
    printer = Printer(out.extend, prefixed=len(logs) > 1)
    merge([LogCursor(log, wish, block) for log in logs], printer.put)
    printer.end()
    return bytes(out)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9)), max_size=9), min_size=2, max_size=4),
    st.sampled_from([4, 16, 4096]),
)
def test_merged_logs_are_in_the_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, logs: list[list[tuple[int, bytes]]], block: int
) -> None:
    where = tmp_path_factory.mktemp("logs")
    every = []
    for rank, wrote in enumerate(logs):
        lines = [(1.0 + at, text.replace(b"\n", b"") + b"\n") for at, text in sorted(wrote, key=lambda one: one[0])]
        write_log(where / str(rank) / "stdout.log", lines)
        every += [(at, rank, line) for at, line in lines]
    every.sort(key=lambda one: one[:2])
    parts = [part_of(where / str(rank) / "stdout.log", rank) for rank in range(len(logs))]
    assert lines_merged(parts, LogLineFilter(), block) == b"".join(
        b"[w-%d stdout] " % rank + line for _, rank, line in every
    )


@given(
    st.lists(st.text("abc", max_size=4), max_size=30), st.sampled_from(["a", "^b", "c$", "^$", "[^a]b", "a*", r"\Aa"])
)
def test_the_search_finds_each_line_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], pattern: str
) -> None:
    import re

    path = tmp_path_factory.mktemp("logs") / "stdout.log"
    text = "".join(f"{line}\n" for line in lines)
    write_log(path, [(1.0, text.encode())])
    found = [line for line in lines if re.search(pattern, line)]
    for tail in (None, 0, 2):
        wish = LogLineFilter(pattern=pattern_of(pattern), tail=tail)
        expected = found if tail is None else found[len(found) - min(tail, len(found)) :]
        assert lines_merged([part_of(path, 0)], wish).decode() == "".join(f"{line}\n" for line in expected)


def test_a_window_of_time(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    write_log(path, [(10.0 * n, b"line %d\n" % n) for n in range(1, 6)])
    log = [part_of(path, 0)]
    assert lines_merged(log, LogLineFilter(since=20.0, until=40.0)) == b"line 2\nline 3\n"
    assert lines_merged(log, LogLineFilter(since=15.0, tail=2)) == b"line 4\nline 5\n"
    assert lines_merged(log, LogLineFilter(until=40.0, tail=1)) == b"line 3\n"
    assert lines_merged(log, LogLineFilter(since=99.0)) == b""
    inode, at = since_mark(path, 30.0)
    assert (inode, at) == (path.stat().st_ino, 14)


def test_a_large_log_is_merged_within_bounds(tmp_path: Path) -> None:
    """400 MB, one line of which has 100 MB, with 200 MiB of address space beyond what Python has."""
    paths = [tmp_path / str(rank) / "stdout.log" for rank in (0, 1)]
    block = b"step 1 loss 0.25\n" * 50_000
    for path in paths:
        write_log(path, [(float(n), block) for n in range(1, 121)])
    write_log(paths[0], [(500.0 + n, b"x" * 1_000_000) for n in range(100)])
    code = f"""
import resource
from test_log_times import *
from holdfast.report.merged_logs import block_bytes
have = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (have + (200 << 20),) * 2)
total = 0
def count(data):
    global total
    total += len(data)
printer = Printer(count, prefixed=True)
parts = [part_of(Path(path), rank) for rank, path in enumerate({[str(path) for path in paths]!r})]
merge([LogCursor(part, LogLineFilter(), block_bytes(2)) for part in parts], printer.put)
printer.end()
print(total)
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    lines = 2 * 120 * 50_000
    lead = len(b"[w-0 stdout] ")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == lines * (17 + lead) + 100_000_000 + lead + 1


@pytest.mark.real
def test_a_job_shows_its_lines_by_time_with_all_that_can_be_asked(holdfast: Holdfast) -> None:
    script = holdfast.script(
        """
import os, pathlib, time
rank, attempt = int(os.environ["RANK"]), os.environ["HOLDFAST_ATTEMPT"]
[logs] = pathlib.Path(os.environ["HOLDFAST_HOME"]).glob(f"jobs/*/attempt-{attempt}")
for step in range(3):
    before = f"a{attempt} r1 s{step - 1}" if rank == 0 else f"a{attempt} r0 s{step}"
    while step + rank and before not in (logs / f"worker-{1 - rank}/stdout.log").read_text():
        time.sleep(0.01)
    time.sleep(0.01)
    print(f"a{attempt} r{rank} s{step}", flush=True)
if rank == 0 and attempt == "1":
    os.kill(os.getpid(), 11)
"""
    )
    ran = holdfast.run("--nproc-per-node", "2", "--max-restarts", "1", "--redirects", "3", script)
    assert ran.status == 0, ran.err
    order = [f"[worker-{rank} stdout] a2 r{rank} s{step}" for step in range(3) for rank in range(2)]
    assert [line for line in holdfast("logs").out.splitlines() if "a2" in line] == order
    found = holdfast("logs", "--since", "1h", "--grep", "r1 s0", "--timestamps").out.splitlines()
    assert [line.split("[", 1)[1] for line in found] == [f"attempt {n} worker-1 stdout] a{n} r1 s0" for n in (1, 2)]
    assert found == sorted(found) and found[0].startswith("20")
    [line] = holdfast("logs", "--grep", "s1", "--rank", "1", "--json").out.splitlines()
    assert {**json.loads(line), "at": 0} == {
        "schema": "holdfast.log_line/1",
        "at": 0,
        "attempt": 2,
        "role": "worker",
        "rank": 1,
        "stream": "stdout",
        "line": "a2 r1 s1",
        "cut": False,
    }
    paths = holdfast("logs", "--path", "--rank", "0").out.splitlines()
    assert [Path(path).name for path in paths] == ["stdout.log", "stderr.log"] and all(map(os.path.exists, paths))
    assert "no line of its logs fits" in holdfast("logs", "--until", "1d").err


@pytest.fixture
def old_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobPlace]:
    """Its logs have no times."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    place = claim(tmp_path / "home", name="old", now=1000.0)
    for rank in (0, 1):
        log = job_dir(place.home, place.job_id) / f"attempt-1/worker-{rank}/stdout.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"one of {rank}\ntwo of {rank}\n")
    place.lock.release()
    yield place


def test_a_job_of_an_earlier_version_is_printed_by_file_and_says_why(
    old_job: JobPlace, capfd: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli import main

    def typed(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["logs", "old", *words])
        assert isinstance(stop.value.code, int)
        return (stop.value.code, *capfd.readouterr())

    status, out, err = typed()
    assert (status, out.splitlines()[:2]) == (0, ["[worker-0 stdout] one of 0", "[worker-0 stdout] two of 0"])
    assert "have no times" in err and "one log after the other" in err
    assert typed("--rank", "1", "--timestamps", "--grep", "two")[1] == "- two of 1\n"
    status, out, err = typed("--since", "1h")
    assert (status, out) == (2, "") and "have no times" in err
    assert typed("--follow", "--until", "1h")[0] == 2
