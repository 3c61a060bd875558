"""Takes a snapshot of every rank without blocking: first from /proc, then with stacks from several py-spy processes in
parallel.

    probe = HangProbe(look_lightly({rank: pid, …}, now), now)
    for fd in probe.fds(): …              wait for it; readable: probe.ready(fd, now)
    probe.next_wake()                     and then probe.tick(now): a py-spy that is late is killed
    probe.result()                        the snapshots, once all are there

py-spy reads the process's memory without pausing it (`--nonblocking`), because a sample must not change the process,
and a stopped process can be read in no other way. A reading is inconsistent only if the process runs, and counts as
motion. If the reading fails, py-spy pauses the process for some milliseconds. With `native`, py-spy also reads native
frames, for which it must pause the process; if it cannot, it reads only Python frames.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Container, Mapping

import msgspec
from msgspec.structs import replace

from holdfast.children import Child, start
from holdfast.model.evidence import RankSnapshot, ThreadState
from holdfast.observe import procfs
from holdfast.observe.python_stacks import find_py_spy, parse_py_spy, with_stacks

#: Seconds for a sample of `SIDE_BY_SIDE` ranks in parallel.
LIMIT_S = 5.0
#: Seconds for a sample with native frames. It is longer, because py-spy then reads the symbols of large libraries.
NATIVE_LIMIT_S = 15.0
#: At most this many py-spy processes run at once. On a busy machine each start takes the supervisor milliseconds.
SIDE_BY_SIDE = 4
_MOST_BYTES = 8 << 20
#: The most bytes of one rank's snapshot for the owner.
RANK_BYTES = 12 * 1024
#: The most bytes of all snapshots of a node.
LOOK_BYTES = 768 * 1024
_HEAD_BYTES, _THREAD_BYTES = 256, 160


def look_lightly(
    pids_by_rank: Mapping[int, int],
    now: float,
    *,
    last_output_at: Mapping[int, float] | None = None,
    progress: Mapping[int, tuple[int, float]] | None = None,
    repeating: Container[int] = (),
) -> tuple[RankSnapshot, ...]:
    """Return snapshots from /proc alone, at once: without stacks and without helper processes. Ranks that have exited
    are left out.

    `last_output_at`: rank → seconds since the epoch. `progress`: rank → the last step and its time. `repeating`: the
    ranks that have printed after `last_output_at`, but only lines that repeat earlier ones. `pids_by_rank`: rank → pid.
    """
    shots = []
    for rank, pid in sorted(pids_by_rank.items()):
        seen = procfs.snapshot(pid)
        if seen is None:
            continue
        step = (progress or {}).get(rank)
        shots.append(
            RankSnapshot(
                rank=rank,
                pid=pid,
                at=now,
                threads=seen.threads,
                cpu_s=seen.cpu_s,
                io_bytes=seen.io_bytes,
                last_output_at=(last_output_at or {}).get(rank),
                repeats=rank in repeating,
                last_step=step[0] if step else None,
                last_step_at=step[1] if step else None,
                stack_source="not asked for",
            )
        )
    return tuple(shots)


def bounded(look: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
    """Cut the snapshots to the size for messages: at most `RANK_BYTES` per rank, or less if the node has many ranks."""
    most = min(RANK_BYTES, LOOK_BYTES // max(1, len(look)))
    return tuple(_bounded(shot, most) for shot in look)


def _bounded(shot: RankSnapshot, most: int) -> RankSnapshot:
    """Cut the snapshot `shot` to `most` bytes. Keep the main thread first, then threads with frames; drop the outermost
    frames first."""
    if len(msgspec.json.encode(shot)) <= most:
        return shot
    main, *others = shot.threads
    kept: list[ThreadState] = []
    left = most - _HEAD_BYTES
    for thread in (main, *sorted(others, key=lambda thread: not thread.frames)):
        frames: list[str] = []
        for frame in thread.frames:
            left -= len(frame.encode("utf-8", "replace")) + 3
            if left < 0:
                break
            frames.append(frame)
        left -= _THREAD_BYTES
        if left < 0 and kept:
            break
        kept.append(replace(thread, frames=tuple(frames)))
    return replace(shot, threads=tuple(kept))


class _Dump(msgspec.Struct):
    """A py-spy process that runs, or waits for its start."""

    rank: int
    target: int
    nonblocking: bool = True
    native: bool = False
    child: Child | None = None
    #: A file in memory for py-spy's output, so that nobody has to read while py-spy runs.
    out: int = -1


class HangProbe:
    """Adds stacks to a snapshot of every rank. It uses no threads. Its children count as helpers, so no other code
    reaps or stops them.
    """

    def __init__(
        self,
        look: tuple[RankSnapshot, ...],
        now: float,
        *,
        limit_s: float = LIMIT_S,
        py_spy: str | None = None,
        native: bool = False,
        native_limit_s: float = NATIVE_LIMIT_S,
    ) -> None:
        """Start reading the stacks.

        `look`: the snapshots of `look_lightly`. `limit_s`: seconds for `SIDE_BY_SIDE` ranks. `py_spy`: the executable;
        None: search for it. `native`: also read native frames, within `native_limit_s` seconds.
        """
        self._shots = {shot.rank: shot for shot in look}
        self._native = native
        self._plain_s = limit_s * max(1, -(-len(look) // SIDE_BY_SIDE))
        self._limit_s = self._plain_s if not native else native_limit_s
        self._deadline = now + self._limit_s
        self._py_spy = py_spy or find_py_spy()
        self._waiting: deque[_Dump] = deque()
        self._running: dict[int, _Dump] = {}
        for shot in look:
            self._queue(shot)
        self._fill()

    # -------------------------------------------------------------------------------- methods that the supervisor calls

    def fds(self) -> tuple[int, ...]:
        """Return the fds to wait on now. They change with every call of `ready` and `tick`."""
        return tuple(self._running)

    def next_wake(self) -> float | None:
        """Return when the time limit ends; None: nothing runs."""
        return self._deadline if self._running else None

    def ready(self, fd: int, now: float) -> None:
        """Handle a readable fd of `fds()`: its py-spy process has exited. Remove the fd from the selector *before* the
        call, which closes it.
        """
        dump = self._running.pop(fd, None)
        if dump is not None:
            self._ended(dump)
            if now < self._deadline:
                self._fill()
            else:
                self.tick(now)

    def tick(self, now: float) -> None:
        """Kill the py-spy processes that miss the time limit. Their ranks get no stacks.

        If native frames were requested, try once more with Python frames alone.
        """
        if now < self._deadline:
            return
        late = [dump for dump in (*self._running.values(), *self._waiting) if dump.native]
        self._give_up(f"py-spy did not answer within {self._limit_s:g} s")
        self._waiting.extend(_Dump(rank=dump.rank, target=dump.target) for dump in late)
        self._deadline = now + self._plain_s
        self._limit_s = self._plain_s
        self._fill()

    def result(self) -> tuple[RankSnapshot, ...] | None:
        """Return all ranks' snapshots, ordered by rank; None while a stack is missing."""
        if self._running or self._waiting:
            return None
        return tuple(shot for _, shot in sorted(self._shots.items()))

    def kill(self) -> None:
        """End the sample early. `result` then returns the snapshots with the stacks read so far."""
        self._give_up("the look was broken off")

    # ------------------------------------------------------------------------------------------ methods that run py-spy

    def _queue(self, shot: RankSnapshot) -> None:
        target = _python_in(shot)
        if target is None:
            self._note(shot.rank, "not a Python process")
        elif self._py_spy is None:
            stopped = "; the process is stopped and cannot dump" if _stopped(shot) else ""
            self._note(shot.rank, f"py-spy is not installed{stopped}")
        else:
            self._waiting.append(_Dump(rank=shot.rank, target=target, native=self._native and _may_pause(shot)))

    def _fill(self) -> None:
        while self._waiting and len(self._running) < SIDE_BY_SIDE:
            dump = self._waiting.popleft()
            try:
                self._start(dump)
            except OSError as error:
                self._note(dump.rank, f"py-spy could not be started: {error.strerror}")

    def _start(self, dump: _Dump) -> None:
        assert self._py_spy is not None
        argv = [self._py_spy, "dump", "--json", "--pid", str(dump.target)]
        if dump.native:
            argv.append("--native")
        elif dump.nonblocking:
            argv.append("--nonblocking")
        dump.out = os.memfd_create("stacks", os.MFD_CLOEXEC)
        try:
            dump.child = start(argv, output=dump.out, errors=dump.out, env={**os.environ, "RUST_BACKTRACE": "0"})
        except OSError:
            os.close(dump.out)
            raise
        self._running[dump.child.pidfd] = dump

    def _ended(self, dump: _Dump) -> None:
        assert dump.child is not None
        dump.child.reap()
        output = os.pread(dump.out, _MOST_BYTES, 0)
        os.close(dump.out)
        try:
            threads = parse_py_spy(output)
        except ValueError:
            self._failed(dump, output.decode("utf-8", "replace"))
            return
        self._shots[dump.rank] = with_stacks(self._shots[dump.rank], threads)

    def _failed(self, dump: _Dump, said: str) -> None:
        shot = self._shots[dump.rank]
        if dump.native:
            # py-spy cannot read native frames: this build does not support them, or it may not trace. Try again without
            # them.
            self._waiting.append(_Dump(rank=dump.rank, target=dump.target))
        elif "ermission denied" in said or "EPERM" in said or "not permitted" in said:
            self._note(
                dump.rank,
                "py-spy may not read this process: it takes the right to trace (kernel.yama.ptrace_scope=0, or "
                "CAP_SYS_PTRACE in a container)",
            )
        elif dump.nonblocking and not _stopped(shot) and procfs.state(dump.target):
            self._waiting.append(_Dump(rank=dump.rank, target=dump.target, nonblocking=False))
        else:
            first = next((line.strip() for line in said.splitlines() if line.strip()), "no output")
            stopped = "the process is stopped and cannot dump; " if _stopped(shot) else ""
            self._note(dump.rank, f"{stopped}py-spy: {first[:200]}")

    def _give_up(self, why: str) -> None:
        for dump in self._waiting:
            self._note(dump.rank, why)
        self._waiting.clear()
        for dump in self._running.values():
            assert dump.child is not None
            # Do not wait, because the dying process is reaped later.
            dump.child.end(wait_s=0.0)
            os.close(dump.out)
            self._note(dump.rank, why)
        self._running.clear()

    def _note(self, rank: int, why: str) -> None:
        self._shots[rank] = replace(self._shots[rank], stack_source=why)


def _stopped(shot: RankSnapshot) -> bool:
    return bool(shot.threads) and shot.threads[0].state in ("T", "t")


def _may_pause(shot: RankSnapshot) -> bool:
    """Return whether py-spy may pause the process for 0.1 to 1 s to read native frames.

    It may not if the process is stopped. It may not if a thread is in uninterruptible sleep either, because the pause
    would begin only after that sleep, and might then last.
    """
    return all(thread.state not in ("T", "t", "D") for thread in shot.threads)


def _python_in(shot: RankSnapshot) -> int | None:
    """Return the rank's process if it runs Python. Otherwise return its first descendant that does, for example below a
    shell script; None: none does.
    """
    for pid in dict.fromkeys((shot.pid, *(thread.pid for thread in shot.threads if thread.pid))):
        if procfs.is_python(pid):
            return pid
    return None
