"""Analyses a stack: whether it waits for other ranks, its frame in the user's code, and keys to compare stacks.

Frames are text, innermost first: `function (file:line)`; native frames have no line number.
`holdfast.explain.wait_rules` decides for what a frame waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.wait_rules import WaitFrame, WaitTarget, wait_of


def peer_wait(frames: Sequence[str]) -> int | None:
    """Return the index of the frame in which the stack waits for other ranks or its device; None: it does not."""
    wait = wait_of(frames)
    return wait.index if wait is not None and wait.waits in (WaitTarget.PEERS, WaitTarget.DEVICE) else None


def python_only(frames: Sequence[str]) -> tuple[str, ...]:
    """Return the stack without its native frames, which only some looks have."""
    return tuple(text for text in frames if not WaitFrame(text).native)


def own_frame(frames: Sequence[str]) -> WaitFrame | None:
    """Return the innermost frame in the user's code; if there is none, the innermost of all."""
    for text in frames:
        if (frame := WaitFrame(text)).ours:
            return frame
    return WaitFrame(frames[0]) if frames else None


def signature(frames: Sequence[str]) -> tuple[str, ...]:
    """Return a key that is equal for two stacks at the same place; frames inside a collective do not count."""
    frames = python_only(frames)
    at = peer_wait(frames)
    if at is None:
        return tuple(frames)
    return (WaitFrame(frames[at]).function, *frames[at + 1 :])


def outline(frames: Sequence[str]) -> tuple[str, ...]:
    """Return the functions without line numbers: equal for two looks at a loop that sleeps and polls."""
    return tuple(f"{frame.function} ({frame.file})" for frame in map(WaitFrame, python_only(frames)))
