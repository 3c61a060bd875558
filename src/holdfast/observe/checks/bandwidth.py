"""Checks whether every core reaches the memory as fast as the others."""

from __future__ import annotations

import time
from typing import Annotated

from msgspec import Meta

from holdfast.observe.checks.check_base import Bytes
from holdfast.observe.checks.group_comparison import GangCheck, GangParams


class BandwidthParams(GangParams, frozen=True, kw_only=True):
    block: Annotated[Bytes, Meta(description="what each group copies; more than caches hold")] = Bytes(64 << 20)
    repeats: Annotated[int, Meta(ge=1, le=1000, description="copies of each group; the best counts")] = 5
    min_rate: Annotated[Bytes, Meta(description="bytes a second that each group must reach; 0: only compare")] = Bytes(
        0
    )


class Bandwidth(GangCheck):
    name = "bandwidth"
    question = "Does every core copy memory correctly, and as fast as the others?"
    cost = "0.4 s, 128 MB for each core"
    Params = BandwidthParams
    what = "a copy of memory"

    def measure(self, index: int) -> float:
        size = max(4096, self.params.block)
        source = bytearray(bytes(range(256)) * (size // 256))
        target = bytearray(len(source))
        best = float("inf")
        for _ in range(self.params.repeats):
            began = time.thread_time()
            target[:] = source
            best = min(best, time.thread_time() - began)
            if target != source:
                raise ValueError("a copy differs from what was copied")
        rate = len(source) / best if best > 0 else float("inf")
        if rate < self.params.min_rate:
            raise ValueError(f"copies {rate / 1e9:.2f} GB/s, {self.params.min_rate / 1e9:.2f} GB/s asked")
        return best
