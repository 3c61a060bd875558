"""Durations and sizes as they are typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import amounts


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90.0),
        ("90", 90.0),
        (" 2.5 ", 2.5),
        ("1e3", 1000.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("5M", 300.0),
        ("10 min", 600.0),
        ("2 hours", 7200.0),
        ("1.5h", 5400.0),
        ("1d12h", 129_600.0),
        ("1d 12h 30m 5s", 131_405.0),
        ("1w", 604_800.0),
        ("500ms", 0.5),
        ("-5m", -300.0),
    ],
)
def test_a_duration_has_units_or_is_in_seconds(text: object, seconds: float) -> None:
    assert amounts.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "m", "5x", "5G", "1h30", "12h1d", "5m5m", "..m", "1.2.3h", "h5", "5 m!", "nan", "inf", True, None, []]
)
def test_no_duration(text: object) -> None:
    assert amounts.seconds(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.1, "0.1s"),
        (30, "30s"),
        (90, "1m30s"),
        (600, "10m"),
        (14_400, "4h"),
        (129_600, "1d12h"),
        (1e6, "11d13h46m40s"),
    ],
)
def test_a_duration_is_shown_as_it_is_typed(seconds: float, text: str) -> None:
    assert amounts.shown(seconds) == text


@given(st.integers(0, 10**8))
def test_what_is_shown_is_read_as_the_same_duration(seconds: int) -> None:
    assert amounts.seconds(amounts.shown(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        (1024, 1024),
        ("1024", 1024),
        ("1K", 1024),
        ("1.5 MiB", 3 << 19),
        ("2GB", 2 << 30),
        ("500g", 500 << 30),
        ("1t", 1 << 40),
        ("1P", 1 << 50),
    ],
)
def test_a_size_has_units_of_1024_or_is_in_bytes(text: object, size_bytes: int) -> None:
    assert amounts.size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "G", "B", "1X", "5h", "1..5G", "inf", "nan", "9" * 400, True, None, 1.5])
def test_no_size(text: object) -> None:
    assert amounts.size_bytes(text) is None
