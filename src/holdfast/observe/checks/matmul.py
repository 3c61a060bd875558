"""Checks whether every device (or core) multiplies matrices correctly, and as fast as the others.

The factors are small whole numbers in a pattern. So the exact product is known beforehand, and fits every number
format. A comparison finds a wrong product, and the median of all groups finds a slow group.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import time
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.observe.checks.group_comparison import GangCheck, GangParams
from holdfast.observe.checks.worker_groups import cores, run_groups

#: The periods of the number pattern: the product's rows repeat after P, its columns after Q, and the terms of each sum
#: after R.
_P, _Q, _R = 5, 7, 35


class MatmulParams(GangParams, frozen=True, kw_only=True):
    device: Annotated[
        Literal["auto", "cpu", "accelerator"],
        Meta(description="auto: accelerators where torch reaches them"),
    ] = "auto"
    size: Annotated[int, Meta(ge=0, le=65536, description="rows of the matrices; 0: what takes a few milliseconds")] = 0
    repeats: Annotated[int, Meta(ge=1, le=1000, description="products of each group, of which the best counts")] = 15


def left(row: int, column: int) -> int:
    """Return the element of the first factor at a row and column."""
    return (row + 3 * column) % _P - 2


def right(row: int, column: int) -> int:
    """Return the element of the second factor at a row and column."""
    return (2 * row + column) % _Q - 3


def known(row: int, column: int, size: int) -> int:
    """Return the exact element of the product at a row and column, computed from the pattern."""
    whole, rest = divmod(size, _R)
    terms = [left(row, k) * right(k, column) for k in range(_R)]
    return whole * sum(terms) + sum(terms[:rest])


class Matmul(GangCheck):
    name = "matmul"
    question = "Does every device (or core) multiply matrices correctly, and as fast as the others?"
    cost = "0.3 s on cores; 5 s with torch on accelerators"
    Params = MatmulParams
    what = "a matrix product"

    def prepare(self) -> None:
        self._devices = 0
        self._torch: Any = None
        if self.params.device != "cpu" and (self.params.device == "accelerator" or accelerators()):
            self._devices = devices_of_torch()
            if not self._devices and self.params.device == "accelerator":
                raise RuntimeError("torch reaches no accelerator here")
        if not self._devices:
            for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
                os.environ[name] = "1"
            if importlib.util.find_spec("numpy"):
                import numpy  # noqa: F401 - imported once, before the groups are forked
        self._size = self.params.size or (4096 if self._devices else 640 if importlib.util.find_spec("numpy") else 48)

    def count(self) -> int:
        return self.params.groups or self._devices or min(len(cores()), 16)

    def label(self, index: int) -> str:
        return f"gpu{index % self._devices}" if self._devices else super().label(index)

    def measure(self, index: int) -> float:
        if self._devices:
            return self._on_accelerator(index % self._devices)
        if importlib.util.find_spec("numpy"):
            return self._with_numpy()
        return self._plain()

    def _plain(self) -> float:
        size = self._size
        one = [[left(i, k) for k in range(size)] for i in range(size)]
        two = [[right(k, j) for k in range(size)] for j in range(size)]
        best = float("inf")
        for _ in range(self.params.repeats):
            began = time.thread_time()
            product = [[sum(map(int.__mul__, row, column)) for column in two] for row in one]
            best = min(best, time.thread_time() - began)
            self.compare(self.disturb(product))
        return best

    def _with_numpy(self) -> float:
        import numpy

        rows = numpy.arange(self._size)
        one = ((rows[:, None] + 3 * rows[None, :]) % _P - 2).astype(numpy.float32)
        two = ((2 * rows[:, None] + rows[None, :]) % _Q - 3).astype(numpy.float32)
        table = numpy.array([[known(i, j, self._size) for j in range(_Q)] for i in range(_P)], dtype=numpy.float32)
        right_answer = table[rows % _P][:, rows % _Q]
        best = float("inf")
        for _ in range(self.params.repeats):
            began = time.thread_time()
            product = one @ two
            best = min(best, time.thread_time() - began)
            wrong = int((self.disturb(product) != right_answer).sum())
            if wrong:
                raise ValueError(f"{wrong} of {product.size} numbers of a known product are wrong")
        return best

    def disturb(self, product: Any) -> Any:
        """Return the product for the comparison. Tests override this to return a wrong product."""
        return product

    def compare(self, product: Any) -> None:
        """Compare a product with the exact one, number by number. Raises ValueError if they differ."""
        size = self._size
        table = [[known(i, j, size) for j in range(_Q)] for i in range(_P)]
        wrong = sum(product[i][j] != table[i % _P][j % _Q] for i in range(size) for j in range(size))
        if wrong:
            raise ValueError(f"{wrong} of {size * size} numbers of a known product are wrong")

    def _on_accelerator(self, index: int) -> float:
        import torch

        found = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
        kind = found.type if found is not None else "cuda"
        device = torch.device(kind, index)
        module = getattr(torch, kind)
        rows = torch.arange(self._size, device=device)
        number = torch.bfloat16
        one = ((rows[:, None] + 3 * rows[None, :]) % _P - 2).to(number)
        two = ((2 * rows[:, None] + rows[None, :]) % _Q - 3).to(number)
        table = torch.tensor([[known(i, j, self._size) for j in range(_Q)] for i in range(_P)], device=device)
        right_answer = table.to(number)[rows % _P][:, rows % _Q]
        best = float("inf")
        for _ in range(self.params.repeats + 1):  # one repetition more, because the first is a warm-up
            module.synchronize(device)
            began = time.perf_counter()
            product = one @ two
            module.synchronize(device)
            best = min(best, time.perf_counter() - began)
            wrong = int((product != right_answer).sum())
            if wrong:
                raise ValueError(f"{wrong} of {product.numel()} numbers of a known product are wrong")
        return best


def accelerators() -> bool:
    """Return whether the machine has device files of accelerators, and torch is installed."""
    patterns = ("/dev/nvidia[0-9]*", "/dev/davinci[0-9]*", "/dev/kfd")
    found = any(glob.glob(pattern) for pattern in patterns)  # noqa: PTH207 - absolute
    return found and importlib.util.find_spec("torch") is not None


def devices_of_torch() -> int:
    """Return how many accelerators torch can use. A child process counts them, because this process forks later and
    must not use a driver before that.
    """

    def ask(_: int) -> int:
        import torch

        return int(torch.accelerator.device_count() if hasattr(torch, "accelerator") else torch.cuda.device_count())

    answer = run_groups([0], ask, 60.0)[0]
    return int(answer.value or 0)
