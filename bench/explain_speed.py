"""How fast `holdfast explain` reads: a big log against grep and ripgrep, and a small one from the shell.

    python bench/explain_speed.py [--megabytes 1000] [--runs 5] [--smoke]

Every tool reads the same file in the same run, page cache warm, runs alternating; medians and ratios are printed, and
the peak memory of holdfast. `--smoke` is for CI: a small file, one run, and the exit status says only that all
answered.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CAUSE = (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 88, in <module>\n'
    "    main()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    " of which 4.06 GiB is free.\n"
)
PHRASE = "AcceleratorOutOfMemory"


def training_log(path: Path, size_bytes: int) -> None:
    """A log of so many bytes as training writes it (steps, a bar, warnings now and then), ended by one failure."""
    lines = []
    for step in range(20_000):
        clock = f"2026-11-20 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},{step % 1000:03d}"
        lines.append(
            f"{clock} [INFO] trainer: step {step} loss {3 - step % 977 / 500:.4f} grad_norm {step % 13 / 7:.3f}"
            f" lr 1.00e-04 tokens/s {10_000 + step % 9973} mem {60 + step % 7}.{step % 10} GiB"
            f" ({step % 31 / 100:.2f}s)\n"
        )
        if step % 500 == 499:
            lines.append(f"{clock} [WARNING] data: shard {step // 500} is small, {step % 97} samples\n")
    block = "".join(lines).encode()
    with path.open("wb") as file:
        written = 0
        while written < size_bytes:
            written += file.write(block[: size_bytes - written])
        file.write(b"\n" + CAUSE.encode())


def timed(command: list[str]) -> tuple[float, bytes]:
    """Wall seconds and output."""
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return time.perf_counter() - started, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    megabytes, runs = (20, 1) if args.smoke else (args.megabytes, args.runs)

    with tempfile.TemporaryDirectory() as folder:
        big, small = Path(folder, "big.log"), Path(folder, "small.log")
        training_log(big, megabytes * 1_000_000)
        small.write_text(CAUSE)
        explain = [sys.executable, "-m", "holdfast", "explain", "--json"]
        readers: dict[str, list[str]] = {"holdfast explain": [*explain, str(big)]}
        if shutil.which("grep"):
            readers["grep -c"] = ["grep", "-c", "Traceback", str(big)]
        if shutil.which("rg"):
            readers["rg -c"] = ["rg", "-c", "Traceback", str(big)]
        timed([*explain, str(small)])  # stores the rows, warms the page cache for Python itself
        with big.open("rb") as file:  # in blocks: what this process holds, its children would be charged with
            while file.read(1 << 20):
                pass
        times: dict[str, list[float]] = {name: [] for name in readers}
        small_times: list[float] = []
        bare_times: list[float] = []
        for _ in range(runs):
            for name, command in readers.items():
                seconds, output = timed(command)
                times[name].append(seconds)
                if name == "holdfast explain" and PHRASE.encode() not in output:
                    print(f"wrong answer: {output[:300]!r}")
                    return 1
            seconds, output = timed([*explain, str(small)])
            small_times.append(seconds)
            bare_times.append(timed([sys.executable, "-c", "pass"])[0])
            if PHRASE.encode() not in output:
                print(f"wrong answer: {output[:300]!r}")
                return 1
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000

    ours = statistics.median(times["holdfast explain"])
    print(f"{megabytes} MB log, {runs} runs, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:<18} {median:7.2f} s  {megabytes / median:7.0f} MB/s  {median / ours:6.2f} of ours")
    print(f"  peak memory of a child {peak_mb:.0f} MB")
    small_ms, bare_ms = statistics.median(small_times) * 1000, statistics.median(bare_times) * 1000
    print(f"small log from the shell {small_ms:.0f} ms (python -c pass: {bare_ms:.0f} ms)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
