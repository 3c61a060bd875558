"""Runs the benchmarks one after another and puts what they print into their pages in docs/.

    python bench/report.py [startup] [recovery] [log_throughput] …

Some two hours on two cores, most of it for the launchers; on a busy machine longer, and worth less.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _common import put

#: What the longest benchmark has measured so far lies there: interrupted, it goes on; remove it to begin anew.
KEPT = ".bench"

#: Seven rounds where figures are compared, three where they only have to be of the right size.
LAUNCHERS_PLAN = "kill@2,raise@2,double@2,stubborn@2,hang@2:3,storm@2:3,none@2,kill@8,none@8"

#: Benchmark → its options, and whether what it prints is a table of a terminal rather than Markdown.
RUNS: dict[str, tuple[tuple[str, ...], bool]] = {
    "startup": (("--runs", "15"), False),
    "recovery": (("--runs", "7"), False),
    "launchers": (
        ("--scenarios", LAUNCHERS_PLAN, "--keep", f"{KEPT}/launchers.jsonl", "--plot", "docs/internals/launchers.png"),
        False,
    ),
    "log_throughput": ((), True),
    "faults": ((), False),
    "nodes": (("--runs", "5"), False),
    "nodes_scale": ((), False),
    "warm_frameworks": (("--keep", f"{KEPT}/warm_frameworks.jsonl"), False),
}


#: Where a benchmark's figures do not stand in benchmarks.md.
PAGES = {"warm_frameworks": "how-to/warm.md"}


def main() -> None:
    chosen = sys.argv[1:] or list(RUNS)
    if unknown := [name for name in chosen if name not in RUNS]:
        raise SystemExit(f"no such benchmark in the page: {', '.join(unknown)}; expected {', '.join(RUNS)}")
    Path(KEPT).mkdir(exist_ok=True)
    for name in chosen:
        options, plain = RUNS[name]
        bench = Path(__file__).with_name(f"{name}.py")
        done = subprocess.run([sys.executable, bench, *options], stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout, flush=True)
        text = f"```\n{done.stdout.strip()}\n```" if plain else done.stdout
        put(name, text, PAGES.get(name, "internals/benchmarks.md"))


if __name__ == "__main__":
    main()
