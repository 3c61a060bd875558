"""Programs with torch that look at what a fresh Python process has: data loaders, processes, checkpoints, compiled
code."""

# Programs are data, one to a line where that reads better:
# ruff: noqa: E501

from __future__ import annotations

from warm_scripts import Program


def program(text: str) -> Program:
    return Program({"job.py": text}, needs=("torch", "numpy"))


TORCH_PROGRAMS: dict[str, Program] = {
    "torch, its state and checkpoints": program("""
        import os; os.environ["MKL_NUM_THREADS"] = "1"
        import copy, dataclasses, enum, io, pickle, threading
        import torch
        import torch._dynamo
        print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"), torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        print(torch.get_default_device(), torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)
        print(torch.initial_seed() >= 1 << 32, torch.get_rng_state().shape, torch.Generator().initial_seed(), torch.default_generator.device)
        print(torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized(), torch.__config__.parallel_info().split("Environment")[1])
        x = torch.rand(300, 300, requires_grad=True); (x @ x).sum().backward(); print(x.grad.shape)
        thread = threading.Thread(target=lambda: print(torch.is_grad_enabled(), torch.ones(2).sum())); thread.start(); thread.join()
        pid = os.fork()
        if pid == 0:
            print((torch.ones(300, 300) @ torch.ones(300, 300)).sum(), flush=True); os._exit(0)
        print(os.waitpid(pid, 0)[1], torch.linalg.svd(torch.eye(20))[1].sum(), torch.fft.fft(torch.ones(8))[0])
        def compiled(n):
            def step(x):
                for _ in range(n): x = torch.sin(x) + 1
                return x.sum()
            return torch.compile(step, backend="eager")
        weight = torch.ones(3, requires_grad=True); loss = compiled(3)(weight); loss.backward()
        print(loss, weight.grad, torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
        class Kind(enum.Enum):
            A = "a"
        @dataclasses.dataclass
        class Config:
            lr: float = 0.1
            kind: Kind = Kind.A
        class Net(torch.nn.Module):
            def __init__(self, config):
                super().__init__(); self.config = config; self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
            def forward(self, x): return self.layers(x)
        torch.manual_seed(1)
        net = Net(Config()); file = io.BytesIO(); torch.save(net, file); file.seek(0)
        back = torch.load(file, weights_only=False); print(back, back.config, back.config.kind is Kind.A, type(back).__module__)
        torch.save({"state": net.state_dict(), "config": Config(), "rng": torch.get_rng_state()}, "c.pt")
        try: torch.load("c.pt")
        except pickle.UnpicklingError as error: print(str(error)[:60])
        with torch.serialization.safe_globals([Config, Kind, getattr]): print(torch.load("c.pt")["config"])
        before = net(torch.ones(1, 3)); torch.set_rng_state(torch.load("c.pt", weights_only=False)["rng"]); print(before, net(torch.ones(1, 3)), copy.deepcopy(net).config)
        print(b"__main__" in pickle.dumps(net), pickle.loads(pickle.dumps(net)).config)
        optimizer = torch.optim.AdamW(net.parameters()); net(torch.ones(1, 3)).sum().backward(); optimizer.step(); print(optimizer.state_dict()["state"][0], next(net.parameters()))
        with torch.autograd.detect_anomaly():
            torch.sqrt(torch.zeros(1, requires_grad=True) * -1).sum().backward()
        """),
    "torch, data loaders": program("""
        import random
        import numpy as np
        import torch
        from torch.utils.data import DataLoader, Dataset, get_worker_info, random_split
        class Numbers(Dataset):
            def __len__(self): return 4
            def __getitem__(self, i):
                info = get_worker_info()
                return i, info.id, info.seed, torch.initial_seed(), random.random(), np.random.rand(), torch.rand(1).item(), type(info.dataset).__module__
        def init(n): print("worker", n, torch.get_num_threads(), __name__, flush=True)
        if __name__ == "__main__":
            torch.manual_seed(5); random.seed(5); np.random.seed(5)
            for how in ("fork", "spawn", "forkserver"):
                loader = DataLoader(Numbers(), batch_size=2, num_workers=1, shuffle=True, multiprocessing_context=how, worker_init_fn=init, persistent_workers=how == "fork")
                for batch in loader: print(how, batch)
            print(torch.rand(1), random.random(), np.random.rand(), [list(part.indices) for part in random_split(range(6), [3, 3])])
            print(list(DataLoader(range(4), generator=torch.Generator().manual_seed(1), shuffle=True)))
        """),
    "torch, spawned": program("""
        import torch
        import torch.multiprocessing as mp
        def work(rank, shared, n):
            shared[rank] += rank + n
            print("worker", __name__, mp.current_process().name, shared.is_shared(), flush=True)
            if __name__ != "__main__": raise KeyError(f"rank {rank}")
        if __name__ == "__main__":
            print(mp.get_sharing_strategy(), mp.get_start_method(), torch.cuda._is_in_bad_fork())
            for how in ("fork", "spawn"):
                queue = mp.get_context(how).SimpleQueue(); queue.put(torch.ones(2)); print(how, queue.get())
            shared = torch.zeros(2).share_memory_()
            try: mp.start_processes(work, args=(shared, 3), nprocs=1, start_method="fork")
            finally: print(shared)
            mp.spawn(work, args=(shared, 3))
        """),
}

RANDOM_KINDS = {
    "random": "random.random()",
    "random, its state": "hash(random.getstate())",
    "random, one's own": "random.Random().random()",
    "random, the system's": "random.SystemRandom().random()",
    "random, in a child": "child(random.random)",
    "uuid1": "uuid.uuid1()",
    "uuid4": "uuid.uuid4()",
    "urandom": "os.urandom(8)",
    "secrets": "secrets.token_hex(8)",
    "key of multiprocessing": "bytes(multiprocessing.current_process().authkey)",
    "names of temporary files": "next(tempfile._get_candidate_names())",
    "temporary file": "tempfile.mktemp()",
    "message id": "email.utils.make_msgid(domain='d').partition('.')[2].partition('.')[2]",
    "boundary of a mail": "email.generator._make_boundary()",
}
KINDS_NUMPY = {
    "numpy": "np.random.rand()",
    "numpy, its state": "bytes(np.random.get_state()[1])",
    "numpy, old kind": "np.random.RandomState().rand()",
    "numpy, new kind": "np.random.default_rng().random()",
    "numpy, entropy": "np.random.SeedSequence().entropy",
    "numpy, in a child": "child(np.random.default_rng().random)",
}
#: Expressions whose value must be another one in each process: what draws from what Python, NumPy or torch keep.
KINDS_TORCH = {
    "torch": "torch.rand(1).item()",
    "torch, its seed": "torch.initial_seed()",
    "torch, its state": "bytes(torch.get_rng_state().numpy())",
    "torch, a new seed": "torch.seed()",
    "torch, one's own": "torch.Generator().seed()",
    "torch, a permutation": "torch.randperm(1 << 20)[:3].tolist()",
    "torch, weights": "torch.nn.Linear(2, 2).weight.tolist()",
    "torch, worker of a data loader": "next(iter(torch.utils.data.DataLoader(Seeds(), num_workers=1))).item()",
    "torch, order of a data loader": "next(iter(torch.utils.data.DataLoader(range(1 << 20), shuffle=True, batch_size=3))).tolist()",
}

DRAWS = """
import email.generator, email.utils, multiprocessing, os, random, secrets, sys, tempfile, time, uuid
{imports}
def child(function):
    context = multiprocessing.get_context("fork"); queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(function())); process.start(); value = queue.get(); process.join()
    return value
if "torch" in globals():
    class Seeds(torch.utils.data.Dataset):
        def __len__(self): return 1
        def __getitem__(self, i): return torch.utils.data.get_worker_info().seed
for name, expression in {kinds!r}.items():
    print(name, repr(eval(expression)), sep="\\t")
sys.stdout.flush()
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
open(f"drawn-{{attempt}}-{{os.environ['RANK']}}", "w").close()
while not all(os.path.exists(f"drawn-{{attempt}}-{{rank}}") for rank in (0, 1)):
    time.sleep(0.01)  # the first one to exit has the other stopped
raise SystemExit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
"""

#: Two ranks, six steps, a checkpoint after the third; with an argument rank 1 dies then, and it has to be resumed.
TRAINING = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    def forward(self, x): return self.second(torch.relu(self.first(x)))
class Progress:
    def __init__(self, step): self.step = step
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    net = DistributedDataParallel(Net()); optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    progress = Progress(0)
    if os.path.exists("last.pt"):
        saved = torch.load("last.pt", weights_only=False)
        net.module.load_state_dict(saved["net"]); optimizer.load_state_dict(saved["optimizer"]); progress = saved["progress"]
        print("resumed", type(progress).__module__, progress.step)
    while progress.step < 6:
        torch.manual_seed(100 * rank + progress.step)
        x = torch.randn(16, 4); loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step(); progress.step += 1
        print(progress.step, loss.item().hex(), [value.hex() for value in torch.cat([p.flatten() for p in net.parameters()]).tolist()], flush=True)
        if progress.step == 3 and not os.path.exists("last.pt"):
            dist.barrier()
            if rank == 0:
                torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "progress": progress}, "new.pt")
                os.rename("new.pt", "last.pt")
            dist.barrier()
            if rank == 1 and sys.argv[1:]: sys.exit(5)
    objects = [None, None]; dist.all_gather_object(objects, progress)
    dist.barrier()
    time.sleep(0.3)  # gloo's thread wants the interpreter once more, and torch 2.13 would wait for it with the lock held
    dist.destroy_process_group()
    print("end", [(type(each).__module__, each.step) for each in objects], dist.is_initialized())
if __name__ == "__main__":
    main()
"""
