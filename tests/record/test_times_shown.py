"""Times that a person reads: on this machine's clock with the offset, or in UTC; how long ago, where that helps."""

from __future__ import annotations

import subprocess
import time

import pytest

from conftest import Holdfast
from holdfast.record.local_time import ago, clock
from typed_here import typed

#: 2026-09-21 and 2026-11-18.
SUMMER, WINTER = 1_790_000_000.0, 1_795_000_000.0


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Holdfast:
    """A job that has ended."""
    holdfast = Holdfast(tmp_path_factory.mktemp("times"))
    assert holdfast.run(holdfast.script("print('done')")).status == 0
    return holdfast


def typed_there(ended: Holdfast, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return typed(*words, cwd=ended.dir, env={**ended.env, **env})


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("Asia/Tokyo", "+09:00"), ("America/St_Johns", "-03:30"), ("UTC", "UTC"), ("Nowhere/Else", "UTC")],
)
def test_a_list_has_the_offset_of_this_machines_zone(finished_job: Holdfast, zone: str, offset: str) -> None:
    assert f" {offset} " in typed_there(finished_job, "jobs", TZ=zone, COLUMNS="200").stdout.splitlines()[1]


@pytest.mark.parametrize("verb", [("jobs",), ("show",), ("logs", "--timestamps")])
def test_utc_is_printed_where_it_is_asked_for(finished_job: Holdfast, verb: tuple[str, ...]) -> None:
    local = typed_there(finished_job, *verb, TZ="Asia/Tokyo", COLUMNS="200").stdout
    assert " UTC" not in local
    utc = typed_there(finished_job, *verb, "--utc", TZ="Asia/Tokyo", COLUMNS="200").stdout
    assert "+09:00" not in utc
    assert verb == ("show",) or ("+09:00" in local and " UTC" in utc)


def test_a_wrong_value_of_the_variable_is_named_and_costs_nothing(finished_job: Holdfast) -> None:
    listed = typed_there(finished_job, "jobs", HOLDFAST_UTC="maybe", TZ="Asia/Tokyo", COLUMNS="200")
    assert listed.returncode == 0 and "+09:00" in listed.stdout
    assert listed.stderr == (
        "holdfast: HOLDFAST_UTC: expected true or false, got 'maybe'; times are in this machine's zone\n"
        "  try: unset HOLDFAST_UTC\n"
    )
    started = finished_job("run", finished_job.dir / "job.py", HOLDFAST_UTC="maybe")
    assert started.status == 2 and "HOLDFAST_UTC: expected true or false, got 'maybe'" in started.err


def test_check_takes_the_zone_too(finished_job: Holdfast) -> None:
    assert typed_there(finished_job, "check", "--utc", "clock").returncode == 0


def test_utc_changes_no_json(finished_job: Holdfast) -> None:
    assert (
        typed_there(finished_job, "jobs", "--json", "--utc", TZ="Asia/Tokyo").stdout
        == typed_there(finished_job, "jobs", "--json").stdout
    )


def test_the_offset_is_that_of_the_day_and_not_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert (clock(SUMMER)[-6:], clock(WINTER)[-6:]) == ("+02:00", "+01:00")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("age_s", "words"), [(0.2, "0.2 s ago"), (200, "3 min ago"), (7300, "2 h ago"), (-5, "0 ms ago")]
)
def test_an_age_has_one_unit(age_s: float, words: str) -> None:
    assert ago(1000.0 - age_s, 1000.0) == words
