"""The start of `run` in a task's container, next to a plain shell: to the user's first line; and what `prepare` costs.

python bench/runtime.py [--runs 21] [--tree DIR] [--write] [--smoke]
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _common import holdfast, machine, median, put, spread, surroundings, table

from holdfast.bundle.build_tools import NotBuilt
from holdfast.bundle.tree_build import build
from holdfast.bundle.tree_copy import lay_down
from holdfast.bundle.tree_manifest import Tree, read_tree

#: What the tree's files belong to: the first that matches.
PARTS = {
    "py-spy, where the extra `stacks` is installed": r"bin/py-spy",
    "Python": r"libexec/|lib/libpython|lib/python[\d.]+/(?!holdfast/|click/|msgspec/|re2/|yaml/|_yaml/|pynvml)",
    "holdfast": r"lib/python[\d.]+/holdfast/|TREE|run$|bin/(holdfast|python3)$",
    "OpenSSL": r"lib/lib(crypto|ssl)\.",
    "packages (click, msgspec, PyYAML, google-re2, pynvml)": r"lib/python[\d.]+/",
    "the C library and its loader": r"lib/(ld-|libc\.|libm\.|libdl|libpthread|librt|libresolv|libnss)",
    "busybox": r"bin/(busybox|sh)$",
    "libstdc++, for google-re2": r"lib/lib(stdc|gcc_s)",
    "SQLite": r"lib/libsqlite",
    "licences": r"LICENSES/",
    "other libraries": r"",
}
COMMAND = "echo first line"
PLAIN, RUN, HERE = "sh -c", "run", "holdfast run, installed here"


@dataclass(frozen=True, slots=True)
class Start:
    """One command, from its start: to its first line by the wall, and the CPU of all its processes to their end."""

    wall_ms: float
    cpu_ms: float


def start(command: Sequence[str | Path], env: dict[str, str], cwd: Path) -> Start:
    began = time.monotonic()
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline()
    wall = time.monotonic() - began
    process.stdout.read()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or b"first line" not in line:
        raise SystemExit(f"{command} ended with {process.returncode} and printed {line!r}")
    return Start(wall * 1e3, (used.ru_utime + used.ru_stime) * 1e3)


def laid(tree: Path, into: Path) -> float:
    """Milliseconds of one `prepare`, its process's own start left out."""
    began = time.monotonic()
    lay_down(tree, into)
    return (time.monotonic() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--tree", type=Path, help="a built one; else one is built of this Python")
    parser.add_argument("--write", action="store_true", help="put the result into docs/how-to/runtime.md")
    parser.add_argument("--smoke", action="store_true", help="once, briefly: whether it works, not how fast")
    options = parser.parse_args()
    runs = 1 if options.smoke else options.runs
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        cwd = Path(name)
        env = surroundings(cwd / "home", {"USER_CMD": COMMAND})
        tree: Path = options.tree or cwd / "tree"
        try:
            about = read_tree(tree) if options.tree else build(tree)
        except NotBuilt as error:
            print(f"no tree can be built here: {error}")
            return
        pai = cwd / "pai"
        first = [laid(tree, pai)]
        for _ in range(runs - 1):
            shutil.rmtree(pai)
            first.append(laid(tree, pai))
        again = [laid(tree, pai) for _ in range(runs)]
        commands: dict[str, list[str | Path]] = {
            PLAIN: ["sh", "-c", COMMAND],
            RUN: [pai / "run"],
            HERE: [*holdfast(), "run", "--no-checks", "--no-python", "sh", "-c", COMMAND],
        }
        for command in commands.values():
            start(command, env, cwd)
        times: dict[str, list[Start]] = {what: [] for what in commands}
        for _ in range(runs):
            for what, command in commands.items():
                times[what].append(start(command, env, cwd))
    text = told(times, first, again, about, runs)
    print(text)
    if options.write:
        put("runtime", text, "how-to/runtime.md")


def parts(about: Tree) -> list[list[str]]:
    """Megabytes of each part, the largest first."""
    found = dict.fromkeys(PARTS, 0)
    for at, file in about.files.items():
        found[next(name for name, pattern in PARTS.items() if re.match(pattern, at))] += file.size_bytes
    return [[name, f"{size / 1e6:.1f}"] for name, size in sorted(found.items(), key=lambda part: -part[1])]


def told(times: dict[str, list[Start]], first: list[float], again: list[float], about: Tree, runs: int) -> str:
    """The result as the page has it."""
    plain = times[PLAIN]
    rows = []
    for what, done in times.items():
        over = [own.wall_ms - base.wall_ms for own, base in zip(done, plain, strict=True)]
        ratio = median(own.wall_ms for own in done) / median(own.wall_ms for own in plain)
        rows.append(
            [
                f"`{what}`" if what != HERE else what,
                spread([own.wall_ms for own in done]),
                f"{min(own.wall_ms for own in done):.1f}",
                spread([own.cpu_ms for own in done]),
                "" if what == PLAIN else f"{median(over):.1f} ms, {ratio:.0f} times",
            ]
        )
    costs = [
        ["laid down the first time", spread(first)],
        ["repeated, with nothing to do", spread(again)],
    ]
    head = ["command", "wall to the first line, ms", "least", "CPU to the end, ms", "over the shell"]
    size = f"{len(about.files)} files, {about.size_bytes / 1e6:.1f} MB (Python {about.python}, {about.machine})"
    return "\n\n".join(
        [
            f"{machine()}; {runs} rounds in turn; medians, and what they lie between.",
            table(head, rows),
            table(["`prepare`", "ms"], costs),
            f"The tree: {size}. This Python: {platform.python_version()}.",
            table(["part of the tree", "MB"], parts(about)),
        ]
    )


if __name__ == "__main__":
    main()
