"""Taking one look at every rank: /proc at once, then stacks by py-spy, many side by side, without waiting for any.

    probe = HangProbe({rank: pid, …}, now)
    for fd in probe.fds(): …              wait for it; readable: probe.ready(fd, now)
    probe.next_wake()                     and then probe.tick(now): a py-spy that is late is killed
    probe.result()                        the snapshots, once all are there

py-spy reads the memory of the process without stopping it (`--nonblocking`): looking must not change what is looked at,
a stopped process can be read no other way, and a torn reading of a process that runs shows as movement, which it is.
Only where that fails is the process paused for some milliseconds. `native`: the frames of machine code, too, for which
py-spy must halt the process; where it cannot, those of Python come without them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.children import Child, start
from holdfast.model.evidence import RankSnapshot, ThreadState
from holdfast.observe import procfs
from holdfast.observe.python_stacks import find_py_spy, parse_py_spy, with_stacks

#: Seconds for the ranks that are examined side by side.
LIMIT_S = 5.0
#: Seconds for those with native frames: py-spy reads the symbols of large libraries.
NATIVE_LIMIT_S = 15.0
#: At most so many are started at once: a start takes the supervisor some milliseconds on a crowded machine.
SIDE_BY_SIDE = 4
_MOST_BYTES = 8 << 20
#: Bytes that one rank's look may take on its way to the owner.
RANK_BYTES = 12 * 1024
#: Bytes that all looks of a node may take together.
LOOK_BYTES = 768 * 1024
_HEAD_BYTES, _THREAD_BYTES = 256, 160


def look_lightly(
    pids_by_rank: Mapping[int, int],
    now: float,
    *,
    last_output_at: Mapping[int, float] | None = None,
    progress: Mapping[int, tuple[int, float]] | None = None,
) -> tuple[RankSnapshot, ...]:
    """A look from /proc alone: no stacks, no children, done at once. Ranks that have ended are left out.

    `last_output_at`: seconds since the epoch by rank. `progress`: the last step and its time, by rank.
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
                last_step=step[0] if step else None,
                last_step_at=step[1] if step else None,
                stack_source="not asked for",
            )
        )
    return tuple(shots)


def bounded(look: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
    """The look in the form in which it travels: a rank has at most `RANK_BYTES` of stacks, and fewer where a node has
    many ranks."""
    most = min(RANK_BYTES, LOOK_BYTES // max(1, len(look)))
    return tuple(_bounded(shot, most) for shot in look)


def _bounded(shot: RankSnapshot, most: int) -> RankSnapshot:
    """Threads with frames come first, the main one before all others; the outermost frames are left out first."""
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
    """One py-spy at work, or waiting to be started."""

    rank: int
    target: int
    nonblocking: bool = True
    native: bool = False
    child: Child | None = None
    #: A file in memory for its output: it needs no reader while it runs.
    out: int = -1


class HangProbe:
    """One look with stacks. It has no threads; its children are helpers, which no other part reaps or stops."""

    def __init__(
        self,
        pids_by_rank: Mapping[int, int],
        now: float,
        *,
        last_output_at: Mapping[int, float] | None = None,
        progress: Mapping[int, tuple[int, float]] | None = None,
        limit_s: float = LIMIT_S,
        py_spy: str | None = None,
        native: bool = False,
        native_limit_s: float = NATIVE_LIMIT_S,
    ) -> None:
        look = look_lightly(pids_by_rank, now, last_output_at=last_output_at, progress=progress)
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

    # ------------------------------------------------------------------------------------------ for the supervisor

    def fds(self) -> tuple[int, ...]:
        """What to wait on now; it changes with every `ready` and `tick`."""
        return tuple(self._running)

    def next_wake(self) -> float | None:
        """When the time limit passes; None when nothing runs."""
        return self._deadline if self._running else None

    def ready(self, fd: int, now: float) -> None:
        """One of `fds()` is readable: that py-spy has ended. Take the fd out of the selector *before*: it gets
        closed."""
        dump = self._running.pop(fd, None)
        if dump is not None:
            self._ended(dump)
            if now < self._deadline:
                self._fill()
            else:
                self.tick(now)

    def tick(self, now: float) -> None:
        """Past the time limit: unfinished dumps are killed, and their ranks have no stack. Returns the fds to close.

        Where native frames were wanted, those of Python alone are requested once more.
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
        """All ranks' snapshots, by rank; None while a stack is still missing."""
        if self._running or self._waiting:
            return None
        return tuple(shot for _, shot in sorted(self._shots.items()))

    def kill(self) -> None:
        """End the look early; `result` then has the snapshots so far."""
        self._give_up("the look was broken off")

    # ------------------------------------------------------------------------------------------ py-spy

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
            # This build of py-spy cannot, or the right to trace is missing: what reading alone gives is asked for.
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
            # Not waited for: what is dying now is reaped as an orphan.
            dump.child.end(wait_s=0.0)
            os.close(dump.out)
            self._note(dump.rank, why)
        self._running.clear()

    def _note(self, rank: int, why: str) -> None:
        self._shots[rank] = replace(self._shots[rank], stack_source=why)


def _stopped(shot: RankSnapshot) -> bool:
    return bool(shot.threads) and shot.threads[0].state in ("T", "t")


def _may_pause(shot: RankSnapshot) -> bool:
    """Whether py-spy may halt the process for its native frames, some 0.1 to 1 s.

    Not a stopped one, nor one with a thread that the kernel holds: the halt would come when the thread is released, and
    stay.
    """
    return all(thread.state not in ("T", "t", "D") for thread in shot.threads)


def _python_in(shot: RankSnapshot) -> int | None:
    """The rank's own process, or the first descendant in which Python runs (a shell script that starts it)."""
    for pid in dict.fromkeys((shot.pid, *(thread.pid for thread in shot.threads if thread.pid))):
        if procfs.is_python(pid):
            return pid
    return None
