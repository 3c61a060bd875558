"""Of a progress bar, one state a second is shown; usual lines pass at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.progress_bar import BAR_BYTES, BAR_S, ProgressBar


def test_lines_without_a_return_pass_at_once_and_unchanged() -> None:
    bar = ProgressBar()
    for block in (b"one\n", b"two", b" three\nfour\n", b"a prompt: "):
        assert bar.take(block, 0.0) == block
    assert bar.next_wake() is None
    assert bar.release(0.0) == b""


def test_the_first_state_is_shown_at_once_and_then_the_last_one_of_each_second() -> None:
    bar = ProgressBar()
    assert bar.take(b"\r 1%", 10.0) == b"\r 1%"
    assert [bar.take(b"\r%d%%" % percent, 10.1) for percent in range(2, 50)] == [b""] * 48
    assert bar.next_wake() == 10.0 + BAR_S
    assert bar.release(11.0) == b"\r49%"
    assert bar.take(b"\r50%", 11.5) == b""
    assert bar.take(b"\r51%", 12.0) == b"\r51%", "nothing was shown for a second"


def test_a_bar_that_returns_at_its_end_is_thinned_out_too() -> None:
    bar = ProgressBar()
    assert bar.take(b"1%\r", 0.0) == b"1%\r"
    assert bar.take(b"2%\r3%\r", 0.1) == b""
    assert bar.release(1.0) == b"\r3%\r"


def test_a_usual_line_takes_the_waiting_state_with_it() -> None:
    bar = ProgressBar()
    bar.take(b"\r 1%", 0.0)
    assert bar.take(b"\r 2%", 0.1) == b""
    assert bar.take(b"\nepoch 1\n", 0.2) == b"\r 2%\nepoch 1\n"
    assert bar.take(b"\r 9%\r10%\n", 0.3) == b"\r10%\n", "the end of a bar is a line"
    assert bar.next_wake() is None


def test_a_line_end_of_windows_is_no_bar() -> None:
    bar = ProgressBar()
    assert bar.take(b"one\r\ntwo\r\n", 0.0) == b"one\r\ntwo\r\n"
    assert bar.take(b"three\r\n", 0.0) == b"three\r\n"


def test_what_erases_a_longer_state_is_kept() -> None:
    """tqdm(leave=False) writes blanks before it goes on: without them the end of the long line would stay."""
    bar = ProgressBar()
    assert bar.take(b"\rinner 97% a long tail", 0.0) == b"\rinner 97% a long tail"
    assert bar.take(b"\r                     \r", 0.1) == b""
    assert bar.take(b"\repoch 1\n", 0.2) == b"\r                     \repoch 1\n"


def test_bars_below_each_other_take_turns_on_one_line() -> None:
    """tqdm moves with newlines and up again, a write for each; among other workers' lines nothing moves up."""
    bar = ProgressBar()
    shown = bar.take(b"\repoch 0%", 0.0)
    for percent in range(30):
        for block in (b"\n", b"\rinner %d%%" % percent, b"\x1b[A"):
            shown += bar.take(block, 0.1)
    assert shown.count(b"\n") <= 1, shown
    assert b"\x1b" not in shown
    assert bar.release(1.0) == b"\rinner 29%"


def test_the_state_that_waits_is_shown_at_the_end() -> None:
    bar = ProgressBar()
    bar.take(b"\r 1%", 0.0)
    bar.take(b"\r 2%", 0.0)
    assert bar.release(0.1) == b"\r 2%"
    assert bar.release(0.1) == b""


def test_a_bar_without_end_is_not_collected() -> None:
    bar = ProgressBar()
    bar.take(b"\r", 0.0)
    waiting = 0
    for _ in range(1000):
        waiting += 100 - len(bar.take(b"x" * 100, 0.0))
        assert waiting <= BAR_BYTES + 200


@given(st.lists(st.text(alphabet="ab \r\n€", max_size=12).map(str.encode), max_size=12))
def test_every_line_ends_as_its_worker_wrote_it(blocks: list[bytes]) -> None:
    bar = ProgressBar()
    shown = b"".join(bar.take(block, number / 3) for number, block in enumerate(blocks)) + bar.release(100.0)

    def ends(data: bytes) -> list[bytes]:
        lines = data.replace(b"\r\n", b"\n").split(b"\n")
        return [([part for part in line.split(b"\r") if part] or [b""])[-1] for line in lines]

    assert ends(shown) == ends(b"".join(blocks))
    if b"\r" not in b"".join(blocks):
        assert shown == b"".join(blocks)


@pytest.mark.parametrize("cut", range(12))
def test_a_state_may_come_in_pieces(cut: int) -> None:
    bar = ProgressBar()
    bar.take(b"\r 1%", 0.0)
    state = "\r 50% ███".encode()
    assert bar.take(state[:cut], 0.1) + bar.take(state[cut:], 0.2) == b""
    assert bar.release(1.0) == state
