"""Which lines of a worker are a sign of life, and which only repeat earlier ones."""

from __future__ import annotations

import pytest

from holdfast.observe.repeated_lines import END_BYTES, RepeatedLines


def new_at(*ends: str, only_counts: bool = False) -> float | None:
    """Return when the last new line came, if the worker's output ends so at the times 1, 2, 3 …"""
    lines = RepeatedLines()
    found = None
    for at, end in enumerate(ends, start=1):
        found = lines.new_at(float(at), [b"", end.encode()], only_counts=only_counts)
    return found


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("still alive\n", "still alive\nstill alive\n"),
        ("12:00:01 alive\n", "12:00:02 alive\n"),
        ("[2026-11-26 12:00:01,123] heartbeat 7 of pid 4711\n", "[2026-11-26 12:00:02,124] heartbeat 8 of pid 4711\n"),
        ("gpu 35% mem 20.1GiB\n", "gpu 36% mem 20.2GiB\n"),
        ("\r⠋ waiting 3s", "\r⠙ waiting 4s"),
        ("\x1b[1malive\x1b[0m 0x7f001\n", "alive 0x7f002\n"),
        (f"step 5\nalive 1\n{'alive 1' * 9}\n", "step 5\nalive 2\n"),
        ("loss 0.5\n", "loss 0.4\n"),
        ("37/100\nalive\n", "12/100\nalive\n"),
    ],
)
def test_lines_that_differ_in_numbers_only_are_not_new(first: str, then: str) -> None:
    assert new_at(first, then) == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("step 5\n", "step 5\nstep 6\n"),
        ("epoch 1 batch 9\n", "epoch 2 batch 1\n"),
        ("eval 37/100\n", "eval 38/100\n"),
        ("\r 37%|███ | 370/1000 [00:10<00:17]", "\r 38%|███ | 380/1000 [00:10<00:17]"),
    ],
)
@pytest.mark.parametrize("only_counts", [False, True])
def test_a_count_that_rises_is_new(first: str, then: str, only_counts: bool) -> None:
    assert new_at(first, then, only_counts=only_counts) == 2


def test_a_line_of_another_form_is_new_unless_the_program_reports_its_steps() -> None:
    assert new_at("alive 1\n", "alive 2\nsaving the checkpoint\n") == 2
    assert new_at("alive 1\n", "alive 2\nsaving the checkpoint\n", only_counts=True) == 1


def test_the_first_line_of_a_cut_end_is_not_compared() -> None:
    assert new_at("alive 1\n", f"live\n{'alive 2' + chr(10)}" + "alive 3\n" * END_BYTES) == 1


def test_nothing_printed_is_no_line() -> None:
    assert RepeatedLines().new_at(None, [b""], only_counts=False) is None
