"""Times that a person reads: on this machine's clock with the offset, or in UTC; how long ago, where that helps."""

from __future__ import annotations

import time

import pytest

from conftest import Holdfast
from holdfast.record.local_time import ago, clock

SUMMER, WINTER = 1_790_000_000.0, 1_795_000_000.0
"""2026-09-21 and 2026-11-18."""


def ended_job(holdfast: Holdfast) -> None:
    assert holdfast.run(holdfast.script("print('done')")).status == 0


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("Asia/Tokyo", "+09:00"), ("America/St_Johns", "-03:30"), ("UTC", "UTC"), ("Nowhere/Else", "UTC")],
)
def test_a_list_has_the_offset_of_this_machines_zone(holdfast: Holdfast, zone: str, offset: str) -> None:
    ended_job(holdfast)
    assert f" {offset} " in holdfast("jobs", TZ=zone, COLUMNS="200").out.splitlines()[1]


@pytest.mark.parametrize("verb", [("jobs",), ("show",), ("logs", "--timestamps")])
def test_utc_is_printed_where_it_is_asked_for(holdfast: Holdfast, verb: tuple[str, ...]) -> None:
    ended_job(holdfast)
    local = holdfast(*verb, TZ="Asia/Tokyo", COLUMNS="200").out
    assert " UTC" not in local
    told = holdfast(*verb, "--utc", TZ="Asia/Tokyo", COLUMNS="200").out
    assert "+09:00" not in told
    assert verb == ("show",) or ("+09:00" in local and " UTC" in told)


def test_a_wrong_value_of_the_variable_is_named_and_costs_nothing(holdfast: Holdfast) -> None:
    ended_job(holdfast)
    listed = holdfast("jobs", HOLDFAST_UTC="maybe", TZ="Asia/Tokyo", COLUMNS="200")
    assert listed.status == 0 and "+09:00" in listed.out
    assert listed.err == (
        "holdfast: HOLDFAST_UTC: expected true or false, got 'maybe'; times are in this machine's zone\n"
        "  try: unset HOLDFAST_UTC\n"
    )
    started = holdfast("run", holdfast.script("print('done')"), HOLDFAST_UTC="maybe")
    assert started.status == 2 and "HOLDFAST_UTC: expected true or false, got 'maybe'" in started.err


def test_check_takes_the_zone_too(holdfast: Holdfast) -> None:
    assert holdfast("check", "--utc", "clock").status == 0


def test_utc_changes_no_json(holdfast: Holdfast) -> None:
    ended_job(holdfast)
    assert holdfast("jobs", "--json", "--utc", TZ="Asia/Tokyo").out == holdfast("jobs", "--json", TZ="UTC").out


def test_the_offset_is_that_of_the_day_and_not_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert (clock(SUMMER)[-6:], clock(WINTER)[-6:]) == ("+02:00", "+01:00")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("age_s", "told"), [(0.2, "0.2 s ago"), (200, "3 min ago"), (7300, "2 h ago"), (-5, "0 ms ago")]
)
def test_an_age_has_one_unit(age_s: float, told: str) -> None:
    assert ago(1000.0 - age_s, 1000.0) == told
