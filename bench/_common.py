"""What the benchmarks share: where holdfast is, clean surroundings, medians with their spread, the page of figures."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

DOCS = Path(__file__).resolve().parent.parent / "docs"


def holdfast() -> list[str]:
    """The command as a user has it: the console script of this interpreter's environment, else the module."""
    script = Path(sys.executable).parent / "holdfast"
    return [str(script)] if script.exists() else [sys.executable, "-m", "holdfast"]


def beside_python(name: str) -> str | None:
    """A command of this interpreter's environment (`torchrun`), or of the PATH; None where it is not installed."""
    script = Path(sys.executable).parent / name
    return str(script) if script.exists() else shutil.which(name)


def surroundings(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without what slows Python's start or steers a launcher, with a state directory of its own."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "TORCHELASTIC_"))
        and name not in ("PYTHONDONTWRITEBYTECODE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    }
    return {**env, "HOLDFAST_HOME": str(home), "OMP_NUM_THREADS": "1", **(more or {})}


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def spread(values: Sequence[float], unit: str = "", digits: int = 1) -> str:
    """`12.3 (11.9 to 14.0) ms`: the median and what it lies between."""
    if not values:
        return "none"
    tail = f" {unit}" if unit else ""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f}){tail}"


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes (their main threads) have used so far, to the nanosecond; gone ones count 0."""
    used = 0
    for pid in pids:
        try:
            used += int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, IndexError):
            continue
    return used / 1e9


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def tree(pid: int) -> Iterator[int]:
    """The process and everything below it."""
    yield pid
    for child in children(pid):
        yield from tree(child)


def memory_bytes(pid: int) -> tuple[int, int]:
    """(PSS, RSS) of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            fields[name] = int(rest.split()[0]) * 1024
    return fields["Pss"], fields["Rss"]


def machine() -> str:
    """What the figures were taken on, and how busy it was: figures of a busy machine mislead."""
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores, load {load:.1f} at the end, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a launcher that outstayed its time, and everything below it."""
    for pid in [*tree(process.pid)][::-1]:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    process.wait()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    drawn = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)


def put(name: str, text: str, page: str = "internals/benchmarks.md") -> None:
    """Put a benchmark's result between its markers in this page of docs/."""
    path = DOCS / page
    content = path.read_text(encoding="utf-8")
    begin, finish = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, found, rest = content.partition(begin)
    _, closed, after = rest.partition(finish)
    if not found or not closed:
        raise SystemExit(f"{path}: expected the lines `{begin}` and `{finish}`")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{finish}{after}", encoding="utf-8")


@contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, stderr: IO[bytes] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher with its output in a pipe; whatever of it still lives at the end is killed."""
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=stderr)
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
