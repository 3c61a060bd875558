"""Checks whether all worker groups connect, and add up numbers together, correctly and in time.

It runs an all-reduce with torch: with gloo between processes of this machine, or with nccl (or the vendor's library) if
each group has a device. The sum is known beforehand.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import Bytes, Context, good
from holdfast.observe.checks.group_comparison import GangCheck, GangParams
from holdfast.observe.checks.matmul import accelerators, devices_of_torch
from holdfast.observe.checks.worker_groups import cores, run_groups


class CollectiveParams(GangParams, frozen=True, kw_only=True):
    backend: Annotated[
        Literal["auto", "gloo", "nccl"], Meta(description="auto: nccl with two devices or more, else gloo")
    ] = "auto"
    message: Annotated[Bytes, Meta(description="what is added up, in each of the repeats")] = Bytes(4 << 20)
    repeats: Annotated[int, Meta(ge=1, le=1000, description="all-reduces, of which the best counts")] = 5


class Collective(GangCheck):
    name = "collective"
    question = "Do all groups meet and add up numbers together, correctly and in time?"
    cost = "3 s, most of it the import of torch"
    blame = "network"
    Params = CollectiveParams
    what = "an all-reduce"
    time_limit_s = 90.0

    def look(self, context: Context) -> Verdict:
        if importlib.util.find_spec("torch") is None:
            return self.unsure(context, "torch is not installed for holdfast's own Python, so no all-reduce was tried")
        devices = devices_of_torch() if self.params.backend != "gloo" and accelerators() else 0
        self._nccl = devices > 1 or (self.params.backend == "nccl" and devices > 0)
        if self.params.backend == "nccl" and not devices:
            return self.unsure(context, "torch reaches no accelerator here, so nccl was not tried")
        count = self.params.groups or (devices if self._nccl else max(2, min(len(cores()), 8)))
        if not self._nccl:
            import torch.distributed  # noqa: F401 - imported once, before the fork: 9 ms per group instead of 2 s

        self._folder = tempfile.mkdtemp(prefix="holdfast-collective-")
        self._count = count
        try:
            answers = run_groups(range(count), self.measure, self.params.wait_s)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        silent = [answer.index for answer in answers if "no answer within" in answer.error]
        wrong = [answer for answer in answers if answer.error and answer.index not in silent]
        best = [float(answer.value) for answer in answers if not answer.error]
        figures: dict[str, Any] = {"groups": count, "backend": "nccl" if self._nccl else "gloo"}
        if best:
            figures["best_s"] = round(max(best), 6)
            figures["bytes_per_s"] = round(self.params.message / max(best)) if max(best) else 0
        if wrong or silent:
            problems = [f"group {answer.index}: {answer.error}" for answer in wrong]
            if silent:
                named = ", ".join(map(str, silent))
                problems.append(
                    f"groups {named} of {count} did not finish an all-reduce within {self.params.wait_s:g} s"
                )
            return self.bad(
                context, problems, "Look at the interfaces and the firewall between the groups.", figures=figures
            )
        return good(
            f"{count} groups, {figures['backend']}, {1000 * max(best):.1f} ms for {self.params.message} bytes", figures
        )

    def measure(self, index: int) -> float:
        import torch
        import torch.distributed as dist

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.set_num_threads(1)
        device = torch.device("cuda", index) if self._nccl else torch.device("cpu")
        if self._nccl:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "nccl" if self._nccl else "gloo",
            init_method=f"file://{self._folder}/meet",
            rank=index,
            world_size=self._count,
            timeout=timedelta(seconds=self.params.wait_s),
        )
        length = max(1, self.params.message // 4)
        right_answer = self._count * (self._count + 1) / 2
        best = float("inf")
        for _ in range(self.params.repeats):
            numbers = torch.full((length,), float(index + 1), device=device)
            began = time.perf_counter()
            dist.all_reduce(numbers)
            found = self.disturb(index, numbers.cpu())
            best = min(best, time.perf_counter() - began)
            wrong = int((found != right_answer).sum())
            if wrong:
                raise ValueError(f"{wrong} of {length} numbers of a known sum are wrong")
        return best

    def disturb(self, index: int, numbers: Any) -> Any:
        """Return the sum for the comparison. Tests override this to return a wrong sum."""
        return numbers
