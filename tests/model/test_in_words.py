"""Times, durations and ranks in words: one module says them all, and each time names its zone."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.human_format import clock, counted, duration, everyone, ranks

SOME_MOMENT = 1_795_353_601.9  # 2026-11-22 13:20:01.9 UTC


@pytest.mark.parametrize(
    ("offset_s", "words"),
    [
        (0, "2026-11-22 13:20:01 UTC"),
        (3600, "2026-11-22 14:20:01 +01:00"),
        (-5 * 3600, "2026-11-22 08:20:01 -05:00"),
        (5 * 3600 + 1800, "2026-11-22 18:50:01 +05:30"),
        (14 * 3600, "2026-11-23 03:20:01 +14:00"),
    ],
)
def test_a_time_names_its_zone(offset_s: float, words: str) -> None:
    assert clock(SOME_MOMENT, lambda _: offset_s) == words


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_a_time_is_what_the_calendar_says(at: int) -> None:
    then = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=at)
    assert clock(at) == f"{then:%m-%d %H:%M:%S} UTC".join((f"{then.year:04d}-", ""))


@pytest.mark.parametrize("at", [math.inf, -math.inf, math.nan, 1e18, 253_402_300_800.0])
def test_what_no_calendar_has_is_a_bare_number(at: float) -> None:
    assert clock(at) == f"{at:g} s"


def test_a_zone_leads_out_of_no_calendar() -> None:
    assert clock(253_402_300_799.0, lambda _: 3600.0) == "9999-12-31 23:59:59 UTC"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1.0, "0 ms"),
        (0.04, "40 ms"),
        (0.0999, "0.1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7200, "2 h"),
        (18_120, "5 h 2 min"),
        (86_400, "24 h"),
        (100_000, "27 h 46 min"),
        (273_600, "3 d 4 h"),
        (864_000, "10 d"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([], "no rank"),
        ([3], "rank 3"),
        ([2, 0, 1, 5, 5], "ranks 0 to 2 and 5"),
        ([1, 2], "ranks 1 and 2"),
        ([0, 2, 3], "ranks 0, 2 and 3"),
        (range(8), "ranks 0 to 7"),
        ([*range(8), *range(9, 12), 20], "ranks 0 to 7, 9 to 11 and 20"),
        (range(0, 100, 2), "50 ranks (lowest 0, highest 98)"),
    ],
)
def test_ranks(numbers: list[int], words: str) -> None:
    assert ranks(numbers) == words


@pytest.mark.real
@pytest.mark.parametrize(
    ("tz", "words"), [("UTC", "2026-11-22 13:20:01 UTC"), ("America/New_York", "2026-11-22 08:20:01 -05:00")]
)
def test_a_terminal_shows_this_machines_clock(tz: str, words: str) -> None:
    code = f"from holdfast.record.local_time import clock; print(clock({SOME_MOMENT}))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"TZ": tz})
    assert said.stdout.strip() == words


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "worker"), "0 workers"),
        (counted(1, "worker"), "1 worker"),
        (counted(2, "worker"), "2 workers"),
        (counted(1, "process is", "processes are"), "1 process is"),
        (counted(3, "process is", "processes are"), "3 processes are"),
        (everyone(1, "worker"), "the worker"),
        (everyone(2, "worker"), "both workers"),
        (everyone(3, "worker"), "all 3 workers"),
    ],
)
def test_numbers_have_the_right_noun(said: str, expected: str) -> None:
    assert said == expected
