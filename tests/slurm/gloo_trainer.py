"""drill_trainer.py with torch: its ranks meet through torch.distributed, and step with gloo's all_reduce."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist

import drill_trainer as drill


def meet() -> None:
    dist.init_process_group("gloo")


def all_reduce() -> bool:
    last = torch.tensor([float(drill.rank == 0 and (drill.out / "finish").exists())])
    dist.all_reduce(last)
    if drill.rank == 0:
        drill.keep()
    return bool(last.item())


drill.train(meet, all_reduce)
dist.destroy_process_group()  # else gloo may abort when Python ends
