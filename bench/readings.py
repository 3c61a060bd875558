"""What a thousand failed ranks cost: read on their nodes, carried, and explained by the owner.

    python bench/readings.py [--ranks 1000] [--a-node 8] [--smoke]

Each rank's log ends in a traceback of its own; each node reads its own ranks. Printed are the node's time, the bytes
that travel, and the owner's time to decode and to explain. `--smoke` is for CI: few ranks, and a right answer is all
that counts.
"""

from __future__ import annotations

import argparse
import sys
import time

from msgspec.structs import replace

from holdfast.explain import explain, read_workers
from holdfast.model.codec import decode_event, encode
from holdfast.model.events import EvidenceCollected
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit

STEPS = "".join(f"2026-11-20 10:00:{step % 60:02d},000 [INFO] step {step} loss 2.{step:04d}\n" for step in range(900))
CAUSE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/train.py", line 88, in main\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB\n"
)


def worker(rank: int, a_node: int) -> WorkerEvidence:
    node = f"gpu-{rank // a_node}"
    text = STEPS + "".join(f"[rank{rank}]: {line}\n" for line in CAUSE.splitlines())
    ended = WorkerExit(
        role="worker", rank=rank, node=node, attempt=1, pid=1000 + rank, exit_code=1, ended_at=1.7e9 + rank / 1000,
        order=rank % a_node, last_words=text[-8192:],
    )  # fmt: skip
    return WorkerEvidence(
        rank=rank, node=node, exit=ended, stderr=LogExcerpt(source=f"worker-{rank} stderr", text=text)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--a-node", type=int, default=8)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    ranks = 16 if args.smoke else args.ranks
    read_workers(AttemptEvidence(workers=(worker(0, 1),)))  # the rows are loaded before anything is timed

    told: list[WorkerEvidence] = []
    slowest_s = 0.0
    for first in range(0, ranks, args.a_node):
        own = AttemptEvidence(workers=tuple(worker(rank, args.a_node) for rank in range(first, first + args.a_node)))
        began = time.perf_counter()
        told += read_workers(own).workers
        slowest_s = max(slowest_s, time.perf_counter() - began)
    evidence = replace(AttemptEvidence(), workers=tuple(told))
    data = encode(EvidenceCollected(attempt=1, evidence=evidence))
    began = time.perf_counter()
    event = decode_event(data)
    decoded_s = time.perf_counter() - began
    assert isinstance(event, EvidenceCollected)
    began = time.perf_counter()
    report = explain(event.evidence)
    explained_s = time.perf_counter() - began
    print(f"{len(told)} failed ranks on {ranks // args.a_node} nodes")
    print(f"  the slowest node read its {args.a_node} ranks in {slowest_s * 1000:.0f} ms")
    print(f"  they sent {len(data) / 1024:.0f} KiB, {len(data) / len(told) / 1024:.1f} KiB a rank")
    print(f"  the owner decoded that in {decoded_s * 1000:.0f} ms and explained it in {explained_s * 1000:.0f} ms")
    # All ranks raise the same at the same place: none of them is the cause of the others.
    right = report.phrase == "AcceleratorOutOfMemory" and f"all {len(told)} ranks raised" in report.reason
    print(f"  {report.phrase}, {report.reason}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
