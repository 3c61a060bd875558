"""The job that launchers are compared with: an ordinary script of N ranks that step together, and trouble on request.

It knows nothing of any launcher: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all it reads. Each rank writes what
happens, with the system's monotonic clock, to `OUT/rank-R.jsonl`. With `--over tcp`, or without torch, a step is a byte
to rank 0 and one back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from _over_tcp import stepping

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None  # type: ignore[assignment]  # then over tcp

WAIT_S = 60.0


def gloo() -> Callable[[], None]:
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
    parser.add_argument("--over", choices=("gloo", "tcp"), default="gloo")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--trouble", default="none")
    parser.add_argument("--at", type=int, default=40, help="the step at which it comes")
    parser.add_argument("--times", type=int, default=1, help="in how many attempts it comes")
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    trouble, marker = options.trouble, options.out / f"came-{rank}"
    file = os.open(options.out / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def happened(what: str, **more: object) -> None:
        told = {"at": time.monotonic(), "what": what, "pid": os.getpid(), **more}
        os.write(file, (json.dumps(told) + "\n").encode())

    def comes() -> bool:
        before = len(marker.read_text()) if marker.exists() else 0
        marker.write_text("x" * (before + 1))
        return bool(before < options.times)

    happened("start")
    if trouble == "stubborn" and rank == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    together = stepping(rank, ranks) if options.over == "tcp" or torch is None else gloo()
    for step in range(options.steps):
        time.sleep(options.step_s)
        if step == options.at and rank == 1 and trouble != "none" and comes():
            happened("death")
            if trouble == "raise":
                raise ValueError("the loss is not a number")
            os.kill(os.getpid(), signal.SIGSTOP if trouble == "hang" else signal.SIGKILL)
        if step == options.at and rank == 0 and trouble == "double" and comes():
            time.sleep(0.03)
            happened("second death")
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            together()
        except Exception as error:  # whatever the backend calls it: the peer is gone
            happened("peer lost", error=str(error)[:200])
            if trouble == "stubborn" and rank == 0:
                time.sleep(WAIT_S)  # like a rank that is stuck in a collective without a time-out
            raise
        happened("step", step=step)
        print(f"step {step}", flush=True)  # a rank that says nothing for long is taken for hung
        if trouble == "none" and step == 0:
            (options.out / f"stepped-{rank}").touch()
    happened("done")
    if options.over == "gloo" and torch is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
