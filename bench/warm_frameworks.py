"""What `--warm` costs and gains with the frameworks that people train with: first line, and first line after a death.

Two workers import a framework and print a line; in the first attempt rank 1 then kills itself (SIGKILL). Cold, warm,
and warm once more with what the run before has left in the state directory, in turn. Frameworks that are not installed
are left out, and that is said.

    python bench/warm_frameworks.py [--runs 3] [--only torch,lightning] [--keep FILE.jsonl] [--smoke]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from _common import holdfast, machine, median, running, spread, surroundings, table

FRAMEWORKS = {
    "torch": "import torch, torch.distributed",
    "accelerate": "import torch\nfrom accelerate import Accelerator",
    "torchmetrics": "import torch, torchmetrics",
    "lightning": "import torch\nimport lightning",
    "transformers": "import torch\nfrom transformers import Trainer, TrainingArguments",
    "datasets": "from datasets import Dataset",
    "deepspeed": "import torch\nimport deepspeed",
}
SMOKE = {"decimal": "import decimal"}
DIES = """
import os, signal, time
print("first line", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        open("rank-0-has-begun", "w").close()
    else:
        while not os.path.exists("rank-0-has-begun"):
            time.sleep(0.01)
        os.write(1, f"death at {time.monotonic()} end\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
"""
LIMIT_S = 180.0
HOW = COLD, FIRST, AGAIN = "--no-warm", "--warm", "--warm again"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Times in seconds."""

    framework: str
    how: str
    first_s: float
    back_s: float
    #: Whether an import was left to the workers.
    left: bool


def run(how: str, script: Path, env: dict[str, str]) -> tuple[float, float, str]:
    """(first lines of both workers, both again after the death: seconds; what holdfast has said)."""
    command = [*holdfast(), "run", "--no-checks", how.split()[0], "--nproc-per-node", "2", str(script)]
    (script.parent / "rank-0-has-begun").unlink(missing_ok=True)
    begun = time.monotonic()
    with (script.parent / "said").open("w+b") as said, running(command, env, script.parent, stderr=said) as process:
        assert process.stdout is not None
        seen, lines_at, died_at = b"", list[float](), 0.0
        while len(lines_at) < 4:
            ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            if not data:
                said.seek(0)
                raise SystemExit(f"{' '.join(command)}: no first line:\n{said.read().decode(errors='replace')}")
            seen += data
            lines_at += [time.monotonic()] * (seen.count(b"first line") - len(lines_at))
        died_at = float(seen.partition(b"death at ")[2].split()[0])
        process.wait(LIMIT_S)
        said.seek(0)
        return lines_at[1] - begun, lines_at[3] - died_at, said.read().decode(errors="replace")


def measure(frameworks: dict[str, str], runs: int, keep: Path | None = None) -> list[Run]:
    """Every round of a framework, and then the next framework; what `keep` has is not made again."""
    kept = keep.read_text(encoding="utf-8").splitlines() if keep is not None and keep.exists() else []
    found = [Run(**json.loads(line)) for line in kept]
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
            for name, imports in frameworks.items():
                for turn in range(sum(run.framework == name for run in found) // len(HOW), runs):
                    fresh = _round(name, imports, Path(place) / f"{name}-{turn}")
                    found += fresh
                    if keep is not None:
                        with keep.open("a", encoding="utf-8") as lines:
                            lines.writelines(json.dumps(asdict(run)) + "\n" for run in fresh)
    except KeyboardInterrupt:
        print("interrupted: this is what was measured until then", file=sys.stderr)
    return found


def _round(name: str, imports: str, at: Path) -> list[Run]:
    at.mkdir()
    script = at / f"with_{name}.py"
    script.write_text(imports + DIES, encoding="utf-8")
    env = surroundings(at / "home", {"PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"})
    # Compiled files and the disk's cache are there for all of them.
    subprocess.run([sys.executable, "-c", imports], env=env, cwd=at, capture_output=True, check=True)
    found = []
    for how in HOW:
        first_s, back_s, said = run(how, script, env)
        left = any("on its own" in line or "cold" in line for line in said.splitlines())
        found.append(Run(name, how, first_s, back_s, left))
        print(found[-1], file=sys.stderr, flush=True)
    return found


def told(runs: list[Run], missing: list[str]) -> str:
    rows = []
    for name in dict.fromkeys(run.framework for run in runs):
        mine = [run for run in runs if run.framework == name]
        first = {how: [run.first_s for run in mine if run.how == how] for how in HOW}
        back = {how: [run.back_s for run in mine if run.how == how] for how in HOW}
        warm = back[FIRST] + back[AGAIN]
        rows.append(
            (
                name,
                str(len(first[COLD])),
                *(spread(first[how]) for how in HOW),
                spread(back[COLD]),
                spread(warm, digits=2),
                f"{median(warm) / median(back[COLD]):.2f}",
                "yes" if any(run.left for run in mine if run.how == FIRST) else "no",
            )
        )
    head = (
        "imports",
        "rounds",
        "first line, cold",
        "first line, warm",
        "warm again",
        "death → line, cold",
        "death → line, warm",
        "warm / cold",
        "left",
    )
    lines = [
        f"{machine()}; two workers; seconds: medians, and what they lie between.",
        "*left*: whether an import is left to the workers, as one line then says.",
        "",
        table(head, rows),
    ]
    if missing:
        lines += ["", f"Not installed here: {', '.join(missing)}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(FRAMEWORKS), help="frameworks, separated by commas")
    parser.add_argument("--keep", type=Path, help="write each round to this file, and do not repeat those it has")
    parser.add_argument("--smoke", action="store_true", help="a module of the standard library, once: does it work?")
    options = parser.parse_args()
    if options.smoke:
        print(told(measure(SMOKE, 1), []))
        return
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in FRAMEWORKS]:
        raise SystemExit(f"no such framework here: {', '.join(unknown)}; expected {', '.join(FRAMEWORKS)}")
    missing = [name for name in chosen if importlib.util.find_spec(name) is None]
    there = {name: FRAMEWORKS[name] for name in chosen if name not in missing}
    if not there:
        raise SystemExit(f"none of {', '.join(chosen)} is installed")
    print(told(measure(there, options.runs, options.keep), missing))


if __name__ == "__main__":
    main()
