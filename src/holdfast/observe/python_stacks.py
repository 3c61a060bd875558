"""Parses Python stacks of workers, from py-spy, or from faulthandler's output at a worker's exit."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import MAX_FRAMES, RankSnapshot, ThreadState
from holdfast.untrusted import json_as

#: A function's name is cut to this many characters, because a C++ template's name may have thousands.
MAX_NAME = 160

_FAULT_THREAD = Lazy(r"^(?:(Current) t|T)hread 0x[0-9a-f]+.*\(most recent call first\):")
_FAULT_FRAME = Lazy(r'^  File "(.*)", line (\d+) in (.*)$')


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    #: The library file of a native frame; None for a Python frame.
    module: str | None = None
    line: int = 0


class _Thread(msgspec.Struct):
    pid: int = 0
    thread_name: str | None = None
    os_thread_id: int | None = None
    frames: list[_Frame] = []


def find_py_spy(path: str | None = None) -> str | None:
    """Return the py-spy executable, from PATH or from this interpreter's directory; None if it is not installed."""
    import shutil  # imported late, because it imports three compression modules

    found = shutil.which("py-spy", path=path)
    if found is None and os.access(beside := Path(sys.executable).parent / "py-spy", os.X_OK):
        found = str(beside)
    return found


def parse_py_spy(output: bytes) -> tuple[ThreadState, ...]:
    """Parse the output of `py-spy dump --json` to threads, the main thread first. Raises `Malformed`."""
    dumped = json_as(output, list[_Thread])
    found = [
        ThreadState(
            tid=one.os_thread_id or 0,
            pid=one.pid,
            name=one.thread_name or "",
            frames=tuple(_frame(frame) for frame in one.frames if not _nameless(frame))[:MAX_FRAMES],
        )
        for one in dumped
    ]
    return tuple(sorted(found, key=lambda thread: thread.tid != thread.pid))


def _nameless(frame: _Frame) -> bool:
    """Return whether this is a native frame without symbols. Its address means nothing, and differs in each rank."""
    return frame.module is not None and frame.name.startswith("0x")


def _frame(frame: _Frame) -> str:
    if frame.module is not None:
        return f"{frame.name[:MAX_NAME]} ({frame.module.rpartition('/')[2]})"
    return f"{frame.name} ({frame.filename}:{frame.line})" if frame.line else f"{frame.name} ({frame.filename})"


def parse_faulthandler(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the stacks of the last faulthandler dump at the end of a stderr, the main thread's first; empty without a
    dump.
    """
    stacks: list[list[str]] = []
    current = -1
    inside = False
    for line in text.splitlines():
        if line.startswith("Fatal Python error:"):
            stacks, current, inside = [], -1, False
        elif head := _FAULT_THREAD.match(line):
            stacks.append([])
            inside = True
            current = len(stacks) - 1 if head[1] else current
        elif inside and (frame := _FAULT_FRAME.match(line)):
            if len(stacks[-1]) < MAX_FRAMES:
                stacks[-1].append(f"{frame[3]} ({frame[1]}:{frame[2]})")
        elif line.strip():
            inside = inside and line.startswith("  ")
    # faulthandler marks the main thread as "current", because it handles the signal. Without the mark the main thread
    # is the last one, because the newest is first.
    main = current if current >= 0 else len(stacks) - 1
    ordered = [stacks[main], *(stack for index, stack in enumerate(stacks) if index != main)] if stacks else []
    return tuple(tuple(stack) for stack in ordered)


def with_stacks(look: RankSnapshot, dumped: Sequence[ThreadState]) -> RankSnapshot:
    """Return the snapshot with the frames of py-spy's threads. Threads that /proc did not list are added."""
    by_tid = {thread.tid: thread for thread in dumped}
    threads = [
        replace(thread, frames=found.frames, name=found.name or thread.name) if found is not None else thread
        for thread in look.threads
        for found in [by_tid.pop(thread.tid, None)]
    ]
    return replace(look, threads=(*threads, *by_tid.values()), stack_source="py-spy")


def with_last_words(look: Sequence[RankSnapshot], stderr_by_rank: Mapping[int, str]) -> tuple[RankSnapshot, ...]:
    """Return the sample with the stacks that faulthandler wrote at the ranks' stop. A rank without such stacks stays
    unchanged. `stderr_by_rank`: rank → the end of its stderr.
    """
    found = []
    for shot in look:
        stacks = parse_faulthandler(stderr_by_rank.get(shot.rank, ""))
        if stacks and not any(thread.frames for thread in shot.threads):
            # faulthandler's thread ids are addresses, which /proc does not have, so only the main thread can be
            # matched.
            first = shot.threads[0] if shot.threads else ThreadState(tid=shot.pid, pid=shot.pid)
            others = [ThreadState(tid=0, pid=shot.pid, name="another thread", frames=stack) for stack in stacks[1:9]]
            threads = (replace(first, frames=stacks[0]), *shot.threads[1:], *others)
            shot = replace(shot, threads=threads, stack_source="faulthandler")
        found.append(shot)
    return tuple(found)
