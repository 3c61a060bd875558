"""Tracebacks of several ranks: what is shown when, and what is folded. Pure: no process, no clock."""

from __future__ import annotations

from holdfast.observe.traceback_fold import HELD_BYTES, LOSS_S, WAIT_S, FoldedLine, HeldStream, Shown, TracebackFold

RESET = "ConnectionResetError: Connection closed by peer"


class Terminal:
    """What a terminal shows of the ranks' stderr, as text."""

    def __init__(self, ranks: int = 4, **whole: bool) -> None:
        self.fold = TracebackFold(lambda exception: "Connection" in exception)
        self.streams = [HeldStream(rank, "[worker-", lambda: whole.get("whole", True)) for rank in range(ranks)]
        self.lines: list[str] = []

    def show(self, shown: list[Shown]) -> None:
        for each in shown:
            if isinstance(each, FoldedLine):
                self.lines.append(f"{[stream.rank for stream in each.streams]} {each.text}")
            else:
                stream, lines = each
                self.lines += [f"{stream.rank}: {line.decode().rstrip(chr(10))}" for line in lines]

    def take(self, rank: int, text: str, now: float = 0.0) -> None:
        self.show(self.fold.take(self.streams[rank], [line.encode() for line in text.splitlines(keepends=True)], now))

    def tick(self, now: float) -> list[str]:
        """What has been shown since, up to this time."""
        self.show(self.fold.tick(now))
        return self.new()

    def end(self, *ranks: int) -> list[str]:
        for rank in ranks:
            self.show(self.fold.end(self.streams[rank]))
        return self.new()

    def finish(self) -> list[str]:
        self.show(self.fold.finish())
        return self.new()

    def new(self) -> list[str]:
        new, self.lines = self.lines, []
        return new


def traceback(exception: str, line: int = 7, tag: str = "") -> str:
    text = (
        f'Traceback (most recent call last):\n  File "/a/train.py", line {line}, in <module>\n    main()\n{exception}\n'
    )
    return "".join(f"{tag}{each}" for each in text.splitlines(keepends=True))


def whole(rank: int, text: str) -> list[str]:
    return [f"{rank}: {line}" for line in text.splitlines()]


def same(ranks: list[int], exception: str, first: int) -> str:
    return f"{ranks} {exception} (the same traceback as rank {first}; whole text in the logs)"


def after(ranks: list[int], exception: str, cause: str = "the exit of rank 1") -> str:
    return f"{ranks} {exception} (after {cause}; whole text in the logs)"


def test_the_same_traceback_of_several_ranks_is_printed_once_with_the_ranks() -> None:
    terminal = Terminal()
    for rank in (2, 0, 1, 3):
        terminal.take(rank, traceback("ValueError: 12 does not divide 770"))
    assert terminal.new() == []
    assert terminal.fold.next_wake() == WAIT_S
    assert terminal.tick(WAIT_S) == [
        *whole(2, traceback("ValueError: 12 does not divide 770")),
        same([0, 1, 3], "ValueError: 12 does not divide 770", 2),
    ]
    assert terminal.fold.next_wake() is None


def test_a_new_traceback_is_shown_as_soon_as_its_worker_has_ended() -> None:
    terminal = Terminal()
    terminal.take(1, traceback("KeyError: 'warmup'"))
    assert terminal.end(0) == []
    assert terminal.end(1) == whole(1, traceback("KeyError: 'warmup'"))
    terminal.take(3, traceback("KeyError: 'warmup'"), 0.5)
    assert terminal.end(3, 2) == [], "others may have the same"
    assert terminal.finish() == [same([3], "KeyError: 'warmup'", 1)]


def test_connections_lost_after_an_exit_are_one_line_of_all_ranks_whatever_their_frames() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback(RESET, line=3))
    terminal.take(3, traceback(RESET))
    terminal.take(2, traceback("ConnectionResetError: [Errno 104] Connection reset by peer"))
    assert terminal.end(0, 2, 3) == []
    assert terminal.finish() == [after([0, 3, 2], RESET)]


def test_other_types_of_lost_connections_have_a_line_each() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback(RESET))
    terminal.take(2, traceback("torch.distributed.ConnectionGone: bye"))
    assert terminal.tick(WAIT_S) == [after([0], RESET), after([2], "torch.distributed.ConnectionGone: bye")]


def test_an_exit_that_is_known_later_still_explains_a_lost_connection() -> None:
    terminal = Terminal()
    terminal.take(0, traceback(RESET))
    assert terminal.end(0) == [], "a lost connection waits for its cause"
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    assert terminal.tick(WAIT_S) == [after([0], RESET)]


def test_a_lost_connection_without_an_exit_is_shown_whole() -> None:
    """A database, a hub: no rank has failed before."""
    terminal = Terminal()
    terminal.take(0, traceback(RESET))
    terminal.take(2, traceback(RESET), 0.3)
    assert terminal.tick(WAIT_S) == whole(0, traceback(RESET))
    assert terminal.tick(WAIT_S + 0.3) == [same([2], RESET, 0)]


def test_the_rank_that_is_named_as_the_cause_is_not_folded_into_its_own_exit() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.fold.lose("the stop", None, 0.1)
    terminal.take(1, traceback(RESET))
    terminal.take(2, traceback(RESET))
    assert terminal.tick(WAIT_S) == [*whole(1, traceback(RESET)), after([2], RESET)]


def test_a_connection_lost_long_after_an_exit_has_another_cause() -> None:
    """The completion policy lets the others go on without that rank."""
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    late = LOSS_S + 1
    terminal.take(0, traceback(RESET), late)
    assert terminal.tick(late + WAIT_S) == whole(0, traceback(RESET))
    terminal.fold.lose("the exit of rank 3", 3, late + 5)
    terminal.take(2, traceback(RESET, line=9), late + 5)
    assert terminal.finish() == [after([2], RESET, "the exit of rank 3")]


def test_an_error_of_its_own_is_whole_also_after_an_exit() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback("MemoryError"))
    assert terminal.end(0) == whole(0, traceback("MemoryError"))


def test_exceptions_that_differ_below_the_same_frames_keep_their_text() -> None:
    terminal = Terminal()
    for rank, sample in ((0, 37), (1, 37), (2, 41)):
        terminal.take(rank, traceback(f"ValueError: bad sample {sample}"))
    assert terminal.tick(WAIT_S)[4:] == [
        same([1], "ValueError: bad sample 37", 0),
        same([2], "ValueError: bad sample 41", 0),
    ]


def test_other_frames_are_another_traceback() -> None:
    terminal = Terminal()
    terminal.take(0, traceback("ValueError: x", line=7))
    terminal.take(1, traceback("ValueError: x", line=8))
    assert len(terminal.tick(WAIT_S)) == 8


def test_rank_number_address_port_and_pid_make_no_difference() -> None:
    terminal = Terminal()
    for rank in range(3):
        exception = f"RuntimeError: rank {rank} (pid {700 + rank}) at 127.0.0.1:{40000 + rank}: <Model at 0x7f{rank}a>"
        terminal.take(rank, traceback(exception, tag=f"[rank{rank}]: "))
    shown = terminal.tick(WAIT_S)
    assert shown[:4] == whole(
        0,
        traceback("RuntimeError: rank 0 (pid 700) at 127.0.0.1:40000: <Model at 0x7f0a>", tag="[rank0]: "),
    )
    assert shown[4:] == [same([1, 2], "RuntimeError: rank 1 (pid 701) at 127.0.0.1:40001: <Model at 0x7f1a>", 0)]


def test_a_message_of_several_lines_is_part_of_the_traceback() -> None:
    """torch tags each of its lines; without the tag they are compared with those behind the first traceback."""
    for tag in ("[rank{}]: ", ""):
        terminal = Terminal()
        for rank in range(3):
            text = traceback("CudaError: no kernel\nFor debugging use CUDA_LAUNCH_BLOCKING=1.\n", tag=tag.format(rank))
            terminal.take(rank, text)
        shown = terminal.tick(WAIT_S)
        assert shown[5:][-1] == same([1, 2], "CudaError: no kernel", 0)
        assert sum("CUDA_LAUNCH_BLOCKING" in line for line in shown) == 1


def test_a_chain_of_exceptions_is_one_traceback() -> None:
    chain = (
        traceback("KeyError: 'a'")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("ValueError: b")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + traceback("RuntimeError: c")
    )
    terminal = Terminal()
    for rank in range(2):
        terminal.take(rank, chain)
    assert terminal.tick(WAIT_S) == [*whole(0, chain), same([1], "RuntimeError: c", 0)]


def test_a_dataloader_s_original_traceback_belongs_to_the_exception() -> None:
    text = traceback("ValueError: Caught ValueError in worker process 0.\nOriginal " + traceback("ValueError: bad"))
    terminal = Terminal()
    for rank in range(2):
        terminal.take(rank, text + "\n")
    assert terminal.tick(WAIT_S)[-1] == same([1], "ValueError: bad", 0)


def test_the_stacks_of_a_crash_are_folded_once_its_worker_has_ended() -> None:
    def crash(rank: int, line: int = 3) -> str:
        stack = f'Thread 0x7f{rank}a (most recent call first):\n  File "/a/x.py", line {line} in <module>\n'
        return f"Fatal Python error: Segmentation fault\n\nCurrent {stack}\nExtension modules: numpy (total: 1)\n"

    terminal = Terminal()
    for rank in range(3):
        terminal.take(rank, crash(rank))
    terminal.take(3, traceback("ValueError: x") + crash(3, line=4))
    assert terminal.end(1) == whole(1, crash(1))
    assert terminal.end(0, 2) == []
    assert terminal.end(3) == whole(3, traceback("ValueError: x") + crash(3, line=4))
    assert terminal.finish() == [same([0, 2], "Fatal Python error: Segmentation fault", 1)]


def test_an_exception_group_is_one_traceback() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/a/train.py", line 7, in <module>\n'
        '  |     raise ExceptionGroup("readers", found)\n'
        "  | ExceptionGroup: readers (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/a/train.py", line 5, in <module>\n'
        "    | ValueError: bad sample 1\n"
        "    +---------------- 2 ----------------\n"
        "    | KeyError: 'a'\n"
        "    +------------------------------------\n"
    )
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    for rank in (0, 2):
        terminal.take(rank, group)
    assert terminal.end(0, 2) == whole(0, group)
    assert terminal.finish() == [same([2], "ValueError: bad sample 1", 0)]


def test_half_a_traceback_is_shown_when_its_time_is_over_and_when_its_worker_has_ended() -> None:
    half = traceback("ValueError: x").rpartition("ValueError")[0]
    terminal = Terminal()
    terminal.take(0, half)
    terminal.take(1, half, 0.5)
    assert terminal.tick(WAIT_S) == whole(0, half), "rank 1's may yet be finished"
    assert terminal.end(1) == whole(1, half)


def test_tracebacks_that_the_stop_cut_off_are_one_line() -> None:
    half = traceback("ValueError: x").rpartition("ValueError")[0]
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    for rank in range(3):
        terminal.take(rank, half)
    assert terminal.end(0, 1, 2) == whole(1, half), "the failed rank's is all that is known of it"
    assert terminal.finish() == [after([0, 2], "a traceback without its end")]


def test_a_traceback_that_is_still_being_written_waits_for_its_end() -> None:
    terminal = Terminal()
    text = traceback("ValueError: x").splitlines(keepends=True)
    terminal.take(0, "".join(text))
    terminal.take(1, text[0], 0.9)
    assert terminal.tick(WAIT_S) == whole(0, "".join(text))
    terminal.take(1, "".join(text[1:]), 1.1)
    assert terminal.tick(0.9 + WAIT_S) == [same([1], "ValueError: x", 0)]


def test_lines_behind_a_folded_traceback_are_shown_in_their_order() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback(RESET) + "saving step 7\nsaved\n")
    terminal.take(2, traceback(RESET) + "\n")
    assert terminal.tick(WAIT_S) == [after([0, 2], RESET), "0: saving step 7", "0: saved"]


def test_lines_between_two_tracebacks_are_not_lost() -> None:
    terminal = Terminal()
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback(RESET) + "saving step 7\n" + traceback("MemoryError"))
    assert terminal.tick(WAIT_S) == [after([0], RESET), "0: saving step 7", *whole(0, traceback("MemoryError"))]


def test_a_rank_s_own_repeated_traceback_is_shown_each_time() -> None:
    terminal = Terminal()
    for now in (0.0, 5.0):
        terminal.take(0, traceback("ValueError: skipped"), now)
        assert terminal.tick(now + WAIT_S) == whole(0, traceback("ValueError: skipped"))


def test_a_later_rank_s_traceback_is_folded_and_the_next_attempt_begins_anew() -> None:
    terminal = Terminal()
    terminal.take(0, traceback("ValueError: x"))
    terminal.tick(WAIT_S)
    terminal.take(1, traceback("ValueError: x"), 100.0)
    assert terminal.tick(100.0 + WAIT_S) == [same([1], "ValueError: x", 0)]
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.fold.begin()
    terminal.take(1, traceback("ValueError: x"), 200.0)
    terminal.take(0, traceback(RESET), 200.0)
    assert terminal.tick(200.0 + WAIT_S) == [*whole(1, traceback("ValueError: x")), *whole(0, traceback(RESET))]


def test_nothing_is_folded_whose_log_lacks_bytes() -> None:
    terminal = Terminal(whole=False)
    terminal.fold.lose("the exit of rank 1", 1, 0.0)
    terminal.take(0, traceback(RESET))
    assert terminal.tick(WAIT_S) == whole(0, traceback(RESET))


def test_a_stream_that_goes_on_and_on_is_not_collected() -> None:
    terminal = Terminal()
    terminal.take(0, traceback("ValueError: x"))
    shown = 0
    for _ in range(100):
        terminal.take(0, "x" * 4095 + "\n")
        shown += len(terminal.new())
        assert terminal.streams[0].size <= HELD_BYTES
    assert shown > 0


def test_a_long_exception_is_cut_and_cannot_steer_the_terminal() -> None:
    terminal = Terminal()
    for rank in range(2):
        terminal.take(rank, traceback("ValueError: \x1b[2J" + "x" * 5000))
    line = terminal.tick(WAIT_S)[-1]
    assert len(line) < 300
    assert "\x1b" not in line
    assert "…" in line
