"""Data-parallel training that saves and goes on: what the job files beside it run.

With torch it is DistributedDataParallel (NCCL where there are GPUs, else gloo); without, each worker counts by itself.
"""

import json
import os
import time
from pathlib import Path

import holdfast

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = int(os.environ.get("STEPS", "20"))
SEED = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
# HOLDFAST_JOB stays the same when the job is started again, on other nodes and after a requeue too.
SAVED = Path(f"checkpoint-{os.environ['HOLDFAST_JOB']}.json")


def main() -> None:
    state = json.loads(SAVED.read_text()) if SAVED.exists() else {"step": 0, "weight": 0.0}
    model = optimizer = None
    if torch is not None:
        torch.manual_seed(SEED)
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
        linear = torch.nn.Linear(1, 1, bias=False).to(device)
        torch.nn.init.constant_(linear.weight, state["weight"])
        model = torch.nn.parallel.DistributedDataParallel(linear)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(state["step"] + 1, STEPS + 1):
        if torch is not None:
            x = torch.rand(16, 1, device=device)
            loss = ((model(x) - 3 * x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["weight"] = linear.weight.item()
        time.sleep(0.05)
        state["step"] = step
        if RANK == 0:
            draft = SAVED.with_suffix(".new")
            draft.write_text(json.dumps(state))
            draft.replace(SAVED)
            print(f"step {step} of {STEPS}, {WORLD} workers, seed {SEED}, weight {state['weight']:.3f}", flush=True)
        holdfast.progress(step)
    if torch is not None:
        dist.destroy_process_group()


main()
