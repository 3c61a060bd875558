"""The first page: the last day in one sentence, and one row for each kind of failure that is still open."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from web_site import environment, run, script

from holdfast.model.human_format import duration
from holdfast.web.attention import DAY_S, AttentionRow
from holdfast.web.front_page import HOUR_S, HOURS, DaySummary, FrontPage, Hour, read
from holdfast.web.page_parts import Home, PageRequest
from holdfast.web.web_job_page import read as job_page

FAILS = """
    import os
    if not os.path.exists({wanted!r}):
        columns = {{}}
        columns["warmup"]
"""


def now_page(home: Path, now: float | None = None) -> FrontPage:
    return read(PageRequest((Home("k", home, True),), time.time() if now is None else now, {}, {}))


def rows_of(home: Path) -> dict[str, AttentionRow]:
    return {row.name: row for row in now_page(home).attention}


@pytest.mark.real
def test_equal_failures_are_one_row_until_the_same_program_succeeds(tmp_path: Path) -> None:
    home, ready = tmp_path / "home", tmp_path / "ready"
    program = script(tmp_path, FAILS.format(wanted=str(ready)), "train.py")
    for _ in range(2):
        assert run(home, program, "--name", "bert", "--max-restarts", "0") != 0
    [row] = now_page(home).attention
    assert (row.kind, row.name, row.cause, row.count) == ("failed", "bert", "KeyError: 'warmup'", 2)
    assert (row.where, row.phrase, row.fault) == ("train.py:5", "UserException", "workload")
    assert row.culprit == "ranks 0 and 1" and row.fix and row.lost_s > 0 and len(row.jobs) == 2
    # The same name alone is another program, and so is the same file with another argument.
    other = script(tmp_path, "print('done')", "other.py")
    assert run(home, other, "--name", "bert") == 0
    assert now_page(home).attention == (row,)
    ready.touch()
    words = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--nproc-per-node", "2", "--name", "bert"]
    subprocess.run([*words, str(program), "--lr", "1"], env=environment(home), timeout=120, check=True)
    assert now_page(home).attention == (row,)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    subprocess.run([*words, str(program)], cwd=elsewhere, env=environment(home), timeout=120, check=True)
    assert now_page(home).attention == (row,)
    assert run(home, program, "--name", "renamed") == 0
    page = now_page(home)
    assert page.attention == () and page.title == "Now"
    assert (page.day.runs, page.day.failed, page.day.recovered) == (6, 2, 0)
    assert now_page(home, time.time() + DAY_S + 60).day == DaySummary(unit="worker")


@pytest.mark.real
def test_a_time_limit_and_a_check_have_their_reason_and_fix_and_a_check_that_passes_leaves(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = script(tmp_path, "import time\ntime.sleep(60)", "train.py")
    assert run(home, program, "--name", "long", "--time-limit", "1s") != 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = [sys.executable, "-m", "holdfast", "run", "--checks", "ports", "--master-port", port]
        words += ["--max-restarts", "0"]
        done = subprocess.run(
            [*words, "--name", "checked", str(program)],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    rows = rows_of(home)
    assert rows["long"].phrase == "TimeLimitReached" and rows["long"].reason and rows["long"].fix
    assert rows["checked"].phrase == "CheckFailed", done.stderr
    assert rows["checked"].reason and rows["checked"].fix
    quick = script(tmp_path, "print('done')", "quick.py")
    subprocess.run([*words, str(quick)], env=environment(home), capture_output=True, timeout=120, check=True)
    assert [*rows_of(home)] == ["long"]


@pytest.mark.real
def test_a_job_that_holdfast_restarted_with_success_has_recovered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = script(tmp_path, "import os\nassert os.environ['HOLDFAST_ATTEMPT'] == '2'", "train.py")
    assert run(home, program, "--same-failure", "0") == 0
    page = now_page(home)
    assert (page.day.runs, page.day.failed, page.day.recovered, page.attention) == (1, 0, 1, ())
    assert "1 recovered by itself" in page.sentence and page.day.lost_h > 0
    assert [(hour.began, hour.failures) for hour in page.hours if hour.began or hour.failures] == [(1, 1)]


def test_the_strip_has_a_column_for_each_hour() -> None:
    now = 1_795_000_000.0
    hours = read(PageRequest((), now, {}, {})).hours
    assert len(hours) == HOURS and hours[-1].at <= now < hours[-1].at + HOUR_S
    assert {later.at - before.at for before, later in pairwise(hours)} == {HOUR_S}
    assert set(hours) == {Hour(at=hour.at) for hour in hours}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "Last 24 h: 0 runs, 0 failed, 0 recovered by themselves, 0 ms of worker time lost, 0 running, 0 waiting."),
        (
            {"runs": 14, "failed": 9, "recovered": 3, "lost_h": 4.21, "unit": "device", "running": 1, "waiting": 2},
            "Last 24 h: 14 runs, 9 failed, 3 recovered by themselves, 4.2 device hours lost, 1 running, 2 waiting.",
        ),
    ],
)
def test_the_day_in_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert DaySummary(**fields).sentence == sentence
    assert duration(DAY_S) in sentence


@pytest.mark.real
def test_the_page_of_a_running_job_has_its_progress_limit_and_last_lines(tmp_path: Path) -> None:
    home, go_on = tmp_path / "home", tmp_path / "go-on"
    program = script(
        tmp_path,
        f"""
        import os, time, holdfast
        for step in range(3):
            holdfast.progress(step)
            print(f"step {{step}} of rank {{os.environ['RANK']}}", flush=True)
        while not os.path.exists({str(go_on)!r}):
            time.sleep(0.1)
        """,
        "train.py",
    )
    words = [sys.executable, "-m", "holdfast", "run", "--no-checks", "--nproc-per-node", "2", "--time-limit", "300"]
    job = subprocess.Popen([*words, str(program)], env=environment(home), stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        page = None
        while page is None or page.running is None or len(page.running.lines) < 3:
            assert time.monotonic() < until, page
            time.sleep(0.2)
            if not (running := now_page(home).running):
                continue
            ask = PageRequest((Home("k", home, True),), time.time(), {"job": running[0].id}, {"rank": "1"})
            page = job_page(ask)
        assert "step 2" in page.running.progress and page.headline == "Attempt 1 is RUNNING"
        assert (page.running.rank, page.running.ranks) == (1, (0, 1))
        assert page.running.lines == tuple(f"step {step} of rank 1" for step in range(3))
        assert page.running.limit_at == pytest.approx(page.created + 300)
        assert [(row.state, row.well, row.ranks) for row in page.running.nodes] == [("2 up", True, "ranks 0 and 1")]
        assert page.running.nodes[0].last_output == pytest.approx(time.time(), abs=300)
        assert page.next_failure.startswith("A failure of the program costs restart 1 of 3")
        assert page.running.href == f"/job/{page.id}/1/1"
        for asked in ("7", "x", "\u0663", "-1", "9" * 40):
            found = job_page(ask._replace(query={"rank": asked})).running
            assert found is not None and found.rank == 0
    finally:
        go_on.touch()
        assert job.wait(timeout=60) == 0
    assert job_page(ask).running is None
