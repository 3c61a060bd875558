"""Ordinary scripts of the frameworks that people use: rank 1 is killed once, and the job comes back where it was."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from conftest import Holdfast

pytestmark = [pytest.mark.real, pytest.mark.torch]
#: Bounds one command. A quiet machine needs 10 s for most of them; what is imported is most of it.
FRAMEWORK_LIMIT_S = 120.0
#: Of torchrun, which now and then fails by itself.
TRIES = 3

#: Every script moves its weights from 0 by 6 steps of -0.2: they end at -1.2 where no step is lost or done twice.
TRAINS = """
import os, pathlib, signal
import torch

def die_once(rank, step):
    if rank == 1 and step == 3 and "UNDISTURBED" not in os.environ and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)

def zeros(*sizes):
    layers = [torch.nn.Linear(size, 1, bias=False) for size in sizes]
    for layer in layers:
        torch.nn.init.zeros_(layer.weight)
    return layers

def tell(rank, text):
    os.write(1, f"rank {rank} {text}\\n".encode())

def saved_steps():
    return int(pathlib.Path("step").read_text()) if pathlib.Path("step").exists() else 0

def save_steps(steps):
    pathlib.Path("fresh").write_text(str(steps))
    os.replace("fresh", "step")
"""


@dataclass(frozen=True)
class Framework:
    """A script that saves after each step, resumes from what it has saved, and tells its steps and its last weight."""

    name: str
    needs: tuple[str, ...]
    imports: str
    text: str
    #: What a warm start leaves to every worker, in the words of its one line; empty: nothing.
    left: str = ""


FRAMEWORKS = [
    Framework(
        "ddp",
        (),
        """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
""",
        """
dist.init_process_group("gloo")
rank = dist.get_rank()
[layer] = zeros(4)
model = DistributedDataParallel(layer)
best = torch.optim.SGD(model.parameters(), lr=0.1)
if saved_steps():
    model.load_state_dict(torch.load(f"saved-{saved_steps()}.pt"))
for step in range(saved_steps(), 6):
    best.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    best.step()
    if rank == 0:
        torch.save(model.state_dict(), f"saved-{step + 1}.pt")
        save_steps(step + 1)
    tell(rank, f"step {step}")
    dist.barrier()
    die_once(rank, step)
tell(rank, f"weight {layer.weight[0, 0].item():.2f}")
dist.barrier()
dist.destroy_process_group()
""",
    ),
    Framework(
        "fsdp2-dcp",
        (),
        """
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
""",
        """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 2, bias=False)
torch.nn.init.zeros_(model.weight)
fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
best = torch.optim.SGD(model.parameters(), lr=0.1)
if saved_steps():
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=f"saved-{saved_steps()}")
    model.load_state_dict(state["model"])
for step in range(saved_steps(), 6):
    best.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    best.step()
    dcp.save({"model": model.state_dict()}, checkpoint_id=f"saved-{step + 1}")
    if rank == 0:
        save_steps(step + 1)
    tell(rank, f"step {step}")
    dist.barrier()
    die_once(rank, step)
tell(rank, f"weight {model.weight.full_tensor()[0, 0].item():.2f}")
dist.barrier()
dist.destroy_process_group()
""",
    ),
    Framework(
        "accelerate",
        ("accelerate",),
        """
from accelerate import Accelerator
""",
        """
accelerator = Accelerator(cpu=True)
[layer] = zeros(4)
model, best = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
rank = accelerator.process_index
if saved_steps():
    accelerator.load_state(f"saved-{saved_steps()}")
accelerator.wait_for_everyone()
for step in range(saved_steps(), 6):
    best.zero_grad()
    accelerator.backward(model(torch.ones(2, 4)).sum())
    best.step()
    accelerator.save_state(f"saved-{step + 1}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        save_steps(step + 1)
    tell(rank, f"step {step}")
    accelerator.wait_for_everyone()
    die_once(rank, step)
tell(rank, f"weight {layer.weight[0, 0].item():.2f}")
accelerator.wait_for_everyone()
accelerator.end_training()
""",
    ),
    Framework(
        "lightning",
        ("lightning",),
        """
import lightning
""",
        """
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        [self.layer] = zeros(4)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Die(lightning.Callback):
    def on_train_epoch_start(self, trainer, module):
        die_once(trainer.global_rank, trainer.current_epoch)
    def on_train_epoch_end(self, trainer, module):
        tell(trainer.global_rank, f"step {trainer.current_epoch}")

saved = pathlib.Path("saved/last.ckpt")
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=6, logger=False, enable_progress_bar=False,
    callbacks=[lightning.pytorch.callbacks.ModelCheckpoint("saved", save_last=True), Die()], enable_model_summary=False,
)
model = Net()
trainer.fit(
    model, torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2), ckpt_path=str(saved) if saved.exists() else None
)
tell(trainer.global_rank, f"weight {model.layer.weight[0, 0].item():.2f}")
""",
        left="lightning",
    ),
    Framework(
        "transformers",
        ("transformers", "accelerate"),
        """
from transformers import Trainer, TrainerCallback, TrainingArguments
""",
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        [self.layer] = zeros(4)
    def forward(self, x):
        return {"loss": self.layer(x).sum()}

class Die(TrainerCallback):
    def on_step_begin(self, args, state, control, **more):
        die_once(args.process_index, state.global_step)
    def on_step_end(self, args, state, control, **more):
        tell(args.process_index, f"step {state.global_step - 1}")

arguments = TrainingArguments(
    "saved", max_steps=6, save_steps=1, per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True,
    optim="sgd", learning_rate=0.1, lr_scheduler_type="constant", max_grad_norm=0.0,
)
model = Net()
trainer = Trainer(model, arguments, train_dataset=[{"x": torch.ones(4)} for _ in range(64)], callbacks=[Die()])
trainer.train(resume_from_checkpoint=any(pathlib.Path("saved").glob("checkpoint-*")) or None)
tell(arguments.process_index, f"weight {model.layer.weight[0, 0].item():.2f}")
""",
    ),
    Framework(
        "deepspeed",
        ("deepspeed",),
        """
import deepspeed
""",
        """
[layer] = zeros(4)
settings = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 0}, "gradient_clipping": 0.0}
# It would be compiled first, which takes minutes, and a lock file that a killed compiler left behind stops it for good.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
best = torch.optim.SGD(layer.parameters(), lr=0.1)
model, *_ = deepspeed.initialize(model=layer, optimizer=best, config=settings)
rank = torch.distributed.get_rank()
if saved_steps():
    model.load_checkpoint("saved", tag=f"step-{saved_steps()}")
for step in range(saved_steps(), 6):
    model.backward(model(torch.ones(2, 4)).sum())
    model.step()
    model.save_checkpoint("saved", tag=f"step-{step + 1}")
    if rank == 0:
        save_steps(step + 1)
    tell(rank, f"step {step}")
    torch.distributed.barrier()
    die_once(rank, step)
tell(rank, f"weight {layer.weight[0, 0].item():.2f}")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
""",
    ),
]
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
cold_and_warm = pytest.mark.parametrize("warmth", [(), ("--warm",)], ids=["cold", "warm"])


def needs(*names: str) -> None:
    for name in ("torch", *names):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def step_lines(text: str) -> list[str]:
    """What ranks have told, without the launcher's prefix; frameworks print lines of their own beside them."""
    return sorted(re.findall(r"rank \d (?:step|weight) .*", text))


@each_framework
@cold_and_warm
def test_a_killed_rank_costs_no_step_that_was_saved(
    holdfast: Holdfast, framework: Framework, warmth: tuple[str, ...]
) -> None:
    needs(*framework.needs)
    script = holdfast.script(framework.imports + TRAINS + framework.text)
    ran = holdfast.run(*warmth, "--nproc-per-node", "2", script, timeout_s=FRAMEWORK_LIMIT_S)
    assert ran.status == 0, ran.err
    first, second = ran.report["attempts"]
    assert (first["report"]["phrase"], first["report"]["first"]["rank"]) == ("KilledBySignal", 1)
    assert second["report"]["phrase"] == "Succeeded"
    told = step_lines(ran.out)
    assert [told.count(f"rank {rank} step 0") for rank in (0, 1)] == [1, 1], told
    assert [told.count(f"rank {rank} step 5") for rank in (0, 1)] == [1, 1], told
    assert [line for line in told if "weight" in line] == ["rank 0 weight -1.20", "rank 1 weight -1.20"]
    left = [line for line in ran.err.splitlines() if "cold" in line or "on its own" in line]
    assert len(left) == (1 if warmth and framework.left else 0), left
    assert all(framework.left in line for line in left), left
    assert holdfast.survivors() == []


@each_framework
def test_what_it_prints_is_what_torchrun_prints(holdfast: Holdfast, framework: Framework) -> None:
    needs(*framework.needs)
    script = holdfast.script(framework.imports + TRAINS + framework.text)
    env = {**holdfast.env, "UNDISTURBED": "1"}
    words = [str(holdfast.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    for number in range(TRIES):
        # What a try before it saved would be gone on from.
        theirs_dir = holdfast.dir / f"theirs-{number}"
        theirs_dir.mkdir()
        theirs = subprocess.run(
            words, env=env, cwd=theirs_dir, capture_output=True, text=True, timeout=FRAMEWORK_LIMIT_S, check=False
        )
        if theirs.returncode == 0:
            break
    assert theirs.returncode == 0, theirs.stderr
    ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=FRAMEWORK_LIMIT_S, UNDISTURBED="1")
    assert ran.status == 0, ran.err
    assert step_lines(ran.out) == step_lines(theirs.stdout) != []


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver"])
def test_helpers_of_a_data_loader_end_with_the_attempt(holdfast: Holdfast, kind: str) -> None:
    needs()
    script = holdfast.script(
        TRAINS
        + f"""
import torch.distributed as dist
from torch.utils.data import DataLoader

def main():
    dist.init_process_group("gloo")
    for step, batch in enumerate(DataLoader(torch.arange(6), num_workers=1, multiprocessing_context="{kind}")):
        dist.all_reduce(batch)
        tell(dist.get_rank(), f"sum {{int(batch)}}")
        die_once(dist.get_rank(), step)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
    )
    ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=FRAMEWORK_LIMIT_S)
    assert (ran.status, len(ran.report["attempts"])) == (0, 2), ran.err
    sums = [int(number) for number in re.findall(r"rank 1 sum (\d+)", ran.out)]
    assert sums[-6:] == [0, 2, 4, 6, 8, 10]
    assert holdfast.survivors() == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains(holdfast: Holdfast) -> None:
    needs()
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
    ran = holdfast.run("--nproc-per-node", "2", script, timeout_s=FRAMEWORK_LIMIT_S)
    assert (ran.status, ran.out.count("compiled")) == (0, 2), ran.err


@cold_and_warm
def test_datasets_map_in_processes(holdfast: Holdfast, warmth: tuple[str, ...]) -> None:
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("datasets is not installed")
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
        *warmth,
        "--nproc-per-node",
        "2",
        script,
        timeout_s=FRAMEWORK_LIMIT_S,
        HF_HOME=str(holdfast.dir),
        HF_HUB_OFFLINE="1",
    )
    assert (ran.status, ran.out.count("sum 90"), "start cold" in ran.err) == (0, 2, False), ran.err
