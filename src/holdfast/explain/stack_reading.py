"""Reads a stack: whether it waits for other ranks, where the user's code is, whether two looks are the same.

Frames are text, innermost first: `function (file:line)`; native frames have no line. `holdfast.explain.wait_rules`
knows what a frame waits for.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.wait_rules import WaitFrame, WaitTarget, wait_of


def peer_wait(frames: Sequence[str]) -> int | None:
    """The index of the frame in which the stack waits for other ranks or its device; None where it does not."""
    wait = wait_of(frames)
    return wait.index if wait is not None and wait.waits in (WaitTarget.PEERS, WaitTarget.DEVICE) else None


def python_only(frames: Sequence[str]) -> tuple[str, ...]:
    """The stack without its native frames, which only a closer look has."""
    return tuple(text for text in frames if not WaitFrame(text).native)


def own_frame(frames: Sequence[str]) -> WaitFrame | None:
    """The innermost frame of the user's code; else the innermost of all."""
    for text in frames:
        if (frame := WaitFrame(text)).ours:
            return frame
    return WaitFrame(frames[0]) if frames else None


def signature(frames: Sequence[str]) -> tuple[str, ...]:
    """Whether two stacks are at the same place: inside a collective its own inner frames do not count."""
    frames = python_only(frames)
    at = peer_wait(frames)
    if at is None:
        return tuple(frames)
    return (WaitFrame(frames[at]).function, *frames[at + 1 :])


def outline(frames: Sequence[str]) -> tuple[str, ...]:
    """The functions without their lines: equal for two looks at one loop that sleeps and checks."""
    return tuple(f"{frame.function} ({frame.file})" for frame in map(WaitFrame, python_only(frames)))
