"""Ranks of a gloo group that train a small DDP model; the culprit fails at its step."""

import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprits = [int(word) for word in os.environ["LAB_CULPRITS"].split(",")]
fail_at, style = int(os.environ["LAB_STEP"]), int(os.environ["LAB_STYLE"])
dice = random.Random(f"{os.environ['LAB_KIND']} {rank}")
torch.set_num_threads(1)


def log(text: str) -> None:
    if style == 0:
        print(text, flush=True)
    elif style == 1:
        print(time.strftime("%Y-%m-%d %H:%M:%S,000"), f"[INFO] trainer: {text}", file=sys.stderr, flush=True)
    else:
        print(f"[rank{rank}] {text}", flush=True)


def fail(step: int) -> None:
    with Path(os.environ["LAB_PIDS"]).open("a") as pids:
        pids.write(f"{os.getpid()} ")
    code = Path(os.environ["LAB_CODE"]).read_text()
    exec(compile(code, "train_step.py", "exec"), globals() | {"step": step})


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=12))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log(f"world size {world}, backend gloo")
    for step in range(1, 30):
        if step == fail_at and rank in culprits:
            fail(step)
        loss = model(torch.randn(4, 10)).square().mean()
        loss.backward()
        optimizer.step()
        log(f"step {step} loss {loss.item():.4f}")
        if dice.random() < 0.3:
            log("ERROR: sync of TensorBoard events failed, will be tried again in 30 s")


if __name__ == "__main__":
    main()
