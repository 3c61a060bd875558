"""How fast workers' output passes through holdfast, next to `tee` with the same bytes in the same session.

One producer (`cat` of a training log) writes into a pipe; `tee FILE` or the pump reads it. Runs alternate; the ratio
of a round is pump ÷ tee, and the median over the rounds counts (aim: at least 0.8). CPU is the reading side's alone.

    python bench/log_throughput.py [--mb 200] [--runs 7] [--dir DIR] [--smoke]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.act.console import Console
from holdfast.act.nonblocking_writer import Outlet
from holdfast.observe.output_places import OutputPlaces
from holdfast.observe.output_pump import OutputPump
from holdfast.reactor import Reactor

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    cpu_s: float


def training_log(path: Path, size: int) -> None:
    lines = b"".join(
        b"step %d loss %.4f lr 3.0e-04 grad_norm %.3f tokens/s %d mem 71.2GiB\n"
        % (n, 10 / (n + 1), 1 / (n + 1), 100000 + n)
        for n in range(20_000)
    )
    with path.open("wb") as file:
        left = size
        while left > 0:
            file.write(lines[:left])
            left -= len(lines)


def run_tee(source: Path, log: Path, shown: Path) -> Run:
    """`cat SOURCE | tee LOG > SHOWN`."""
    with shown.open("wb") as sink:
        start = time.perf_counter()
        producer = subprocess.Popen(["cat", source], stdout=subprocess.PIPE)
        reader = subprocess.Popen(["tee", log], stdin=producer.stdout, stdout=sink)
        assert producer.stdout is not None
        producer.stdout.close()
        _, status, usage = os.wait4(reader.pid, 0)
        reader.returncode = os.waitstatus_to_exitcode(status)
        producer.wait()
        wall = time.perf_counter() - start
    return Run(wall, usage.ru_utime + usage.ru_stime)


def run_pump(source: Path, log: Path, shown: Path | None) -> Run:
    """`cat SOURCE` as a worker of the pump; its terminal is SHOWN, or it is redirected."""
    fd = os.open(shown or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    console = Console(Outlet(fd))
    said: list[str] = []
    reactor = Reactor(time.monotonic)
    try:
        pump = OutputPump(reactor, OutputPlaces(console, console, said.append))
        start, cpu = time.perf_counter(), time.process_time()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        worker = subprocess.Popen(["cat", source], stdout=out_w, stderr=err_w)
        os.close(out_w)
        os.close(err_w)
        show = shown is not None
        pump.add(0, "worker", out_r, err_r, log.parent, show_stdout=show, show_stderr=show)
        reactor.deadlines(pump.next_wake, pump.tick)
        while reactor.watching:
            reactor.wait(longest_s=5)
        worker.wait()
        pump.finish(0, time.monotonic())
        console.drain()
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        pump.close(time.monotonic())
    finally:
        reactor.close()
    console.close()
    os.close(fd)
    if said:
        raise SystemExit(f"the run was not clean: {said}")
    return Run(wall, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--dir", type=Path, default=None, help="where the files lie (default: the temporary directory)")
    parser.add_argument("--smoke", action="store_true", help="8 MB, once: whether it works, not how fast")
    options = parser.parse_args()
    size = (8 if options.smoke else options.mb) * MEGABYTE
    runs = 1 if options.smoke else options.runs
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="holdfast-bench-") as name:
        directory = Path(name)
        source, shown, null = directory / "source", directory / "shown", Path(os.devnull)
        training_log(source, size)
        log = directory / "worker-0" / "stdout.log"
        log.parent.mkdir()
        cases: dict[str, Callable[[], Run]] = {
            "tee, terminal /dev/null": lambda: run_tee(source, log, null),
            "pump, prefixed to /dev/null": lambda: run_pump(source, log, null),
            "tee, terminal a file": lambda: run_tee(source, log, shown),
            "pump, prefixed to a file": lambda: run_pump(source, log, shown),
            "pump, redirected": lambda: run_pump(source, log, None),
        }
        peers = {
            "pump, prefixed to /dev/null": "tee, terminal /dev/null",
            "pump, prefixed to a file": "tee, terminal a file",
            "pump, redirected": "tee, terminal /dev/null",
        }
        times: dict[str, list[Run]] = {case: [] for case in cases}
        for _ in range(runs):
            for case, run in cases.items():
                log.unlink(missing_ok=True)
                shown.unlink(missing_ok=True)
                times[case].append(run())
                if log.stat().st_size != size:
                    raise SystemExit(f"{case}: {log.stat().st_size} bytes in the file instead of {size}")
        if subprocess.run(["cmp", "-s", log, source], check=False).returncode:
            raise SystemExit("the log file is not what the worker wrote")
    print(f"{size / MEGABYTE:.0f} MB, {runs} alternating runs, medians")
    print(f"{'':30}{'MB/s':>8}{'CPU ms/MB':>12}{'x tee':>8}")
    for case, done in times.items():
        speed = statistics.median(size / MEGABYTE / run.wall_s for run in done)
        cpu = statistics.median(run.cpu_s * 1000 / (size / MEGABYTE) for run in done)
        peer = peers.get(case)
        ratio = ""
        if peer:
            pairs = zip(times[peer], done, strict=True)
            ratio = f"{statistics.median(other.wall_s / own.wall_s for other, own in pairs):.2f}"
        print(f"{case:30}{speed:8.0f}{cpu:12.2f}{ratio:>8}")
    print(f"peak memory of the pump's process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
