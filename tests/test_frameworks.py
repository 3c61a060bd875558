"""Ordinary scripts of the frameworks that people use: rank 1 is killed once, and the job comes back where it was."""

from __future__ import annotations

import shutil

import pytest

from conftest import Holdfast

pytestmark = pytest.mark.real
TIMEOUT_S = 280.0

DIE_ONCE = """
import os, pathlib, signal

def die_once(rank, step, at=3):
    print("rank", rank, "step", step, flush=True)
    if rank == 1 and step == at and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
"""

DDP = (
    """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
"""
    + DIE_ONCE
    + """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
best = torch.optim.SGD(model.parameters(), lr=0.1)
saved, begin = pathlib.Path("saved.pt"), 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    begin = state["step"]
for step in range(begin, 6):
    best.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    best.step()
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step + 1}, "fresh.pt")
        os.replace("fresh.pt", saved)
    dist.barrier()
    die_once(rank, step)
dist.barrier()
dist.destroy_process_group()
"""
)


@pytest.mark.parametrize("warmth", [(), ("--warm",)], ids=["cold", "warm"])
@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ("torch", DDP),
    ],
    ids=["ddp"],
)
def test_a_killed_rank_costs_no_steps_that_were_saved(
    holdfast: Holdfast, needs: str, text: str, warmth: tuple[str, ...]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    ran = holdfast.run(*warmth, "--nproc-per-node", "2", holdfast.script(text), timeout_s=TIMEOUT_S)
    assert ran.status == 0, ran.err
    first, second = ran.report["attempts"]
    assert (first["report"]["phrase"], first["report"]["first"]["rank"]) == ("KilledBySignal", 1)
    assert second["report"]["phrase"] == "Succeeded"
    steps = [line.split("rank 1 ")[1] for line in ran.out.splitlines() if "rank 1 step" in line]
    assert steps[-1] == "step 5" and steps.count("step 0") == 1, steps
    assert "starts cold" not in ran.err and "start cold" not in ran.err
    assert holdfast.survivors() == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains(holdfast: Holdfast) -> None:
    pytest.importorskip("torch")
    script = holdfast.script(
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.compile(torch.nn.Linear(4, 1))
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        dist.all_reduce(loss.detach())
        print("compiled", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        """
    )
    ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=TIMEOUT_S)
    assert (ran.status, ran.out.count("compiled")) == (0, 2), ran.err


@pytest.mark.parametrize("warmth", [(), ("--warm",)], ids=["cold", "warm"])
def test_datasets_map_in_processes(holdfast: Holdfast, warmth: tuple[str, ...]) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed")
    script = holdfast.script(
        """
        from datasets import Dataset

        def double(row):
            return {"x": row["x"] * 2}

        if __name__ == "__main__":
            print("sum", sum(Dataset.from_dict({"x": list(range(10))}).map(double, num_proc=2)["x"]), flush=True)
        """
    )
    ran = holdfast.run(
        *warmth, "--nproc-per-node", "2", script, timeout_s=TIMEOUT_S, HF_HOME=str(holdfast.dir), HF_HUB_OFFLINE="1"
    )
    assert (ran.status, ran.out.count("sum 90"), "start cold" in ran.err) == (0, 2, False), ran.err
