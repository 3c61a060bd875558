"""A page of docs/ as a test: its files are written, its commands typed, and what they print is compared.

```` ```python title="train.py" ```` is a file. In ```` ```console ```` a line with `$ ` is a command; the lines
below it, up to the next one, are what it prints. A command that ends with `&` runs beside the next ones. What differs
from run to run and from machine to machine (ids, times, pids, names) is replaced by one value for all pages.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from places import DOCS

PAGE_LIMIT_S = 600.0
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "-- end of command --"

#: What differs, and what a page has in its place.
_ALIKE: tuple[tuple[str, str], ...] = (
    (r"\b\d{8}-\d{4}-[0-9a-z]{4}\b", "20261121-0910-k4xw"),
    (r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC| ?[+-]\d\d:?\d\d)?", "2026-11-21 09:10:07 +00:00"),
    (r"\b\d\d:\d\d:\d\d\b", "09:10:07"),
    (r"\bpid \d+", "pid 4711"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "0.5 s"),
    (r"[·░▒▓█◌▚▞]{2,}", "░▒▓█▞"),
)


def alike(text: str, folder: Path) -> str:
    """The text as a page has it: without what differs from run to run."""
    text = text.replace(str(folder / "home"), "~/.local/state/holdfast").replace(str(folder), "/home/ada/demo")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "node-3", text)
    for pattern, instead in _ALIKE:
        text = re.sub(pattern, instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


@dataclass
class Block:
    """One ```` ```console ```` block: where it is in the page, and its commands."""

    begin: int
    end: int
    commands: list[str]


def _blocks(text: str) -> list[Block]:
    return [
        Block(
            begin=found.start(3),
            end=found.end(3),
            commands=[line[2:] for line in found[3].splitlines() if line.startswith("$ ")],
        )
        for found in _BLOCK.finditer(text)
        if found[1] == "console"
    ]


def run_page(name: str, folder: Path) -> tuple[str, str]:
    """Type everything; returns the page as it is, and as it would be with what was printed now."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        if found[2] and re.fullmatch(r"[\w.-]+\.\w+", found[2]):
            (folder / found[2]).write_text(found[3], encoding="utf-8")
    typed = _blocks(text)
    printed = iter(_typed([command for block in typed for command in block.commands], folder))
    made, at = "", 0
    for block in typed:
        made += text[at : block.begin]
        for command in block.commands:
            out = alike(next(printed), folder)
            made += f"$ {command}\n{out}\n" if out else f"$ {command}\n"
        at = block.end
    return text, made + text[at:]


def _typed(commands: list[str], folder: Path) -> list[str]:
    """What each command prints, in one shell, so that `&` and `wait` mean what they mean to a user."""
    shell = shutil.which("bash")
    assert shell is not None
    script = "".join(f"{command}\n{{ echo; echo '{_MARK}'; }} 2>/dev/null\n" for command in commands)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    environment |= {
        "HOLDFAST_HOME": str(folder / "home"),
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TZ": "UTC",
        "OMP_NUM_THREADS": "1",
        # DeepSpeed waits for ever for the lock of a build that was killed; this one's is its own.
        "TORCH_EXTENSIONS_DIR": str(folder / "torch_extensions"),
    }
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        environment.pop(name, None)
    ran = subprocess.run(
        [shell],
        input=script,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_LIMIT_S,
        check=False,
    )
    *parts, rest = ran.stdout.split(f"\n{_MARK}\n")
    assert not rest and len(parts) == len(commands), ran.stdout
    return parts
