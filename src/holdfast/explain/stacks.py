"""What a stack says: whether it waits for other ranks, where the user's code stands, whether two looks are the same.

Frames are text, innermost first: `function (file:line)`. Only names decide here, so a function of a user's own that is
called `all_reduce` counts as one: that is what its author meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

DEPTH = 8
"""Innermost frames in which a collective's name counts: wrappers and loggers lie between it and the wait."""

_FRAME = re.compile(r"^(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)$", re.DOTALL)
_COLLECTIVE = re.compile(
    r"(?:^|[_.:])(?:all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|psum|pmean|rendezvous"
    r"|init_process_group|wait_for_everyone|wait_for_peers?|sync_global_devices|all_?sync)"
    r"(?:$|[_.:\d](?!to$|shapes$|tensors$|arrays$))",
    re.IGNORECASE,
)
_NATIVE = re.compile(
    r"^(?:nccl[A-Z]|hccl[A-Z]|Hccl[A-Z]|rccl|gloo::|c10d::|MPI_|PMPI_|ucp_|ompi_"
    r"|cu(?:da)?(?:Stream|Event|Ctx|Device)Synchronize|hip(?:Stream|Event|Device)Synchronize|aclrtSynchronize)"
)
_WAITING = re.compile(
    r"^_?(?:wait|recv|send|irecv|isend|gather|scatter|reduce|join|poll|get|synchronize|receive|result)\w*$|_wait$|_recv$"
)
_DISTRIBUTED_FILES = re.compile(
    r"torch/distributed/|distributed_c10d|horovod|mpi4py|deepspeed/(?:comm|runtime/pipe)|megatron|colossalai"
    r"|jax/.*distributed|torch_npu/distributed|fairscale|accelerate/utils/operations|lightning.*/strategies"
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |\.so(?:[.\d]*)?$")


class Frame:
    """One frame, taken apart."""

    __slots__ = ("file", "function", "line", "text")

    def __init__(self, text: str) -> None:
        found = _FRAME.match(text)
        self.text = text
        self.function = found["function"] if found else text
        self.file = found["file"] if found else ""
        self.line = int(found["line"]) if found and found["line"] else 0

    @property
    def place(self) -> str:
        """`train.py:12`."""
        return f"{PurePosixPath(self.file).name}:{self.line}" if self.line else PurePosixPath(self.file).name

    @property
    def ours(self) -> bool:
        """It is of the user's code, not of a library or the interpreter."""
        return bool(self.file) and not _LIBRARY.search(self.file)

    @property
    def waits_for_peers(self) -> bool:
        if _COLLECTIVE.search(self.function) or _NATIVE.search(self.function):
            return True
        return bool(_WAITING.search(self.function) and _DISTRIBUTED_FILES.search(self.file))


def peer_wait(frames: Sequence[str]) -> int | None:
    """The index of the outermost of the innermost frames that waits for other ranks; None where the stack does not."""
    waiting = [index for index, text in enumerate(frames[:DEPTH]) if Frame(text).waits_for_peers]
    return waiting[-1] if waiting else None


def own_frame(frames: Sequence[str]) -> Frame | None:
    """The innermost frame of the user's code; else the innermost of all."""
    for text in frames:
        if (frame := Frame(text)).ours:
            return frame
    return Frame(frames[0]) if frames else None


def signature(frames: Sequence[str]) -> tuple[str, ...]:
    """Equal for two stacks that stand at the same place: inside a collective its own inner frames do not count."""
    at = peer_wait(frames)
    if at is None:
        return tuple(frames)
    return (Frame(frames[at]).function, *frames[at + 1 :])


def outline(frames: Sequence[str]) -> tuple[str, ...]:
    """The functions without their lines: equal for two looks at one loop that sleeps and checks and sleeps."""
    return tuple(f"{frame.function} ({frame.file})" for frame in map(Frame, frames))
