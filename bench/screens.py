"""Makes the pictures of the documentation from real runs: pages in light and dark, and a terminal as SVG.

    python bench/screens.py [--to docs/images] [--smoke]

A real server and a real Chromium (Debian's, driven by Playwright). `--smoke` makes the terminal's picture only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import html
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST = "gpu-07"
COLUMNS = 100
NAMES = ("chromium", "chromium-browser", "google-chrome")
BERT = """
import os, time
schedule = {"lr": 1e-4, "decay": 0.1}

def learning_rate(step):
    return schedule["lr"] * min(1.0, step / schedule["warmup"])

time.sleep(0.2)
for step in range(3):
    if os.environ["RANK"] == "1":
        learning_rate(step)
    time.sleep(5)
"""
LOADER = """
import os
if not os.path.exists("shard-0"):
    raise FileNotFoundError(2, "No such file or directory", "shard-0")
"""
ONCE = """
import os, signal, holdfast
holdfast.progress(3)
if os.environ["HOLDFAST_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
RUNS = """
import time, holdfast
for step in range(10_000):
    holdfast.progress(step)
    print(f"step {step} loss {2.5 / (1 + step / 50):.4f}", flush=True)
    time.sleep(0.25)
"""
#: Colours of a terminal by the number in its escape sequence.
COLOURS = {"1": "bold", "2": "faint", "31": "red", "32": "green", "33": "yellow"}
STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; fill: #1a1c1f }
.ground { fill: #f6f7f9 } .bold { font-weight: 700 } .faint { fill: #5a5f66 }
.red { fill: #b3211b } .green { fill: #176f37 } .yellow { fill: #8a5300 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8ea } .ground { fill: #15171a } .faint { fill: #a3a9b1 }
  .red { fill: #ff8f87 } .green { fill: #6fd08f } .yellow { fill: #f0b55c }
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, default=Path(__file__).parent.parent / "docs" / "images")
    parser.add_argument("--smoke", action="store_true", help="the terminal's picture only, into a temporary folder")
    typed = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="screens-"))
    try:
        to = folder if typed.smoke else typed.to
        to.mkdir(parents=True, exist_ok=True)
        environment = surroundings(folder / "state")
        for name, text in (("bert", BERT), ("loader", LOADER), ("once", ONCE), ("whisper", RUNS)):
            (folder / f"{name}.py").write_text(textwrap.dedent(text).lstrip())
        words = ["holdfast", "run", "--nproc-per-node", "4", "--max-restarts", "0", "--name", "bert-base", "bert.py"]
        printed = in_terminal(folder, environment, words)
        (to / "terminal.svg").write_text(as_svg(" ".join(words), printed), encoding="utf-8")
        if not typed.smoke:
            pages(folder, environment, to)
        for path in sorted(to.iterdir()):
            if path.suffix in (".png", ".svg"):
                print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def surroundings(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "SLURM_"))}
    return {**kept, "HOLDFAST_HOME": str(home), "COLUMNS": str(COLUMNS), "TERM": "xterm"}


def named(words: list[str]) -> list[str]:
    """The command on a machine called `HOST`, where this user may name one."""
    python = [sys.executable, "-m", *words]
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return python
    return ["unshare", "--uts", "sh", "-c", f'hostname {HOST} && exec "$@"', "sh", *python]


def in_terminal(folder: Path, environment: dict[str, str], words: list[str]) -> str:
    """What the command prints to a terminal, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    done = subprocess.Popen(
        named(words), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):  # EIO: the last writer is gone
        while block := terminal.read(1 << 16):
            printed += block
    done.wait(timeout=120)
    text = printed.decode().replace("\r\n", "\n")
    return text.replace(f"{folder}/state", "~/.local/state/holdfast").replace(f"{folder}/", "~/demo/")


def as_svg(command: str, printed: str) -> str:
    """A terminal with a command and what it printed."""
    lines = [f"\x1b[1m$ {command}\x1b[0m", *printed.rstrip("\n").split("\n")]
    height, width = 20 * len(lines) + 24, 8.43 * max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) + 32
    rows = []
    for number, line in enumerate(lines):
        spans, looks = [], ""
        for part in re.split(r"(\x1b\[[\d;]*m)", line):
            if part.startswith("\x1b["):
                numbers = part[2:-1].split(";")
                looks = " ".join(COLOURS[each] for each in numbers if each in COLOURS)
            elif part:
                spans.append(f'<tspan class="{looks}">{html.escape(part)}</tspan>')
        rows.append(f'<text x="16" y="{28 + 20 * number}">{"".join(spans)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img" '
        f'aria-label="{html.escape(command)}"><style>{STYLE}</style>'
        f'<rect class="ground" width="100%" height="100%" rx="8"/>{"".join(rows)}</svg>\n'
    )


def pages(folder: Path, environment: dict[str, str], to: Path) -> None:
    """Runs jobs, serves their pages, and takes a picture of each in light and dark."""
    from playwright.sync_api import sync_playwright  # only this needs it

    run = ["holdfast", "run", "--nproc-per-node", "4", "--max-restarts"]
    in_terminal(folder, environment, [*run, "0", "--name", "bert-base", "bert.py"])
    in_terminal(folder, environment, [*run, "0", "--name", "loader", "loader.py"])
    in_terminal(folder, environment, [*run, "3", "--name", "once", "once.py"])
    (folder / "shard-0").touch()
    in_terminal(folder, environment, [*run, "0", "--name", "loader", "loader.py"])
    live = subprocess.Popen(
        named([*run, "0", "--name", "whisper", "--time-limit", "2h", "whisper.py"]),
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    chromium = next((path for name in NAMES if (path := shutil.which(name))), None)
    try:
        time.sleep(8)
        with served(environment) as link, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme=scheme)
                page.goto(link, wait_until="domcontentloaded")
                page.locator("details summary").filter(has_text="bert-base").click()
                page.wait_for_timeout(500)
                page.screenshot(path=to / f"now-{scheme}.png", full_page=True)
                page.locator("details[open] dl a").filter(has_text="bert-base").first.click()
                page.wait_for_selector("dl.report")
                page.wait_for_timeout(500)
                page.screenshot(path=to / f"job-{scheme}.png")
            browser.close()
    finally:
        live.send_signal(signal.SIGTERM)
        live.wait(timeout=60)


@contextmanager
def served(environment: dict[str, str]) -> Iterator[str]:
    """The link to the pages of this state directory."""
    words = named(["holdfast", "web", "--port", "0"])
    server = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
