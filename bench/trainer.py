"""The job that recovery is measured with: an ordinary script of two ranks that step together, and one that dies.

It knows nothing of any launcher: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all it reads. Each rank writes what
happens, with the system's monotonic clock, to `OUT/rank-R.jsonl`.

`--over gloo` steps are torch.distributed all-reduces; `--over tcp` (no torch needed) one byte each way; `--over
nothing` ranks sleep and never hear of each other.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from _over_tcp import stepping


def gloo() -> Callable[[], None]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ones = torch.ones(1024)

    def step() -> None:
        dist.all_reduce(ones)
        ones.fill_(1.0)

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--over", choices=("gloo", "tcp", "nothing"), default="gloo")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--die-at", type=int, default=-1, help="the step at which rank 1 dies, once")
    parser.add_argument("--die-of", choices=("kill", "raise"), default="kill")
    parser.add_argument("--leave-fast", action="store_true", help="rank 0 leaves with 1 as soon as its peer is gone")
    options = parser.parse_args()
    rank, marker = int(os.environ["RANK"]), options.out / "died"
    file = os.open(options.out / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def happened(what: str, **more: object) -> None:
        told = {"at": time.monotonic(), "what": what, "pid": os.getpid(), **more}
        os.write(file, (json.dumps(told) + "\n").encode())

    def stopped(number: int, _frame: FrameType | None) -> None:
        happened("told to stop")
        os._exit(128 + number)

    happened("start")
    if options.over == "nothing":
        signal.signal(signal.SIGTERM, stopped)
    ways: dict[str, Callable[[], Callable[[], None]]] = {
        "gloo": gloo,
        "tcp": lambda: stepping(rank, 2),
        "nothing": lambda: lambda: None,
    }
    together = ways[options.over]()
    for step in range(options.steps):
        time.sleep(options.step_s)
        if step == options.die_at and rank == 1 and not marker.exists():
            marker.touch()
            happened("death")
            if options.die_of == "raise":
                raise ValueError("the loss is not a number")
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            together()
        except Exception as error:  # whatever the backend calls it: the peer is gone
            happened("peer lost", error=str(error)[:200])
            if options.leave_fast:
                os._exit(1)
            raise
        happened("step", step=step)
    happened("done")
    if options.over == "gloo":
        import torch.distributed as dist

        dist.destroy_process_group()


if __name__ == "__main__":
    main()
