"""A second reading of the cases, without the first label; and how far the two agree.

    python benchmarks/explain/readers.py blind SEED > cases.txt    # numbered, in another order, without id and truth
    python benchmarks/explain/readers.py keep SEED labels.txt      # lines of `NUMBER PHRASE` go into the cases
    python benchmarks/explain/readers.py --write                   # the agreement, into README.md

The second reader sees what an explainer sees, cut to the ends of the logs, and writes one phrase of classes.csv a case.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE / "README.md"
SHOWN_LINES, SHOWN_CHARS = 2, 170
OF_PEERS = re.compile(r"closed by peer|reset by peer|peer closed the connection")
BEGIN, END = "<!-- readers -->\n", "<!-- end of readers -->"


_LEFT_OUT = ("time", "host", "[0]", "error_", "traceback : To enable")


def paths() -> list[Path]:
    return sorted((HERE / "cases").glob("*.json"))


def numbered(seed: str) -> list[Path]:
    """Always the same order for one seed and one set of cases."""
    found = paths()
    random.Random(seed).shuffle(found)
    return found


def ends(text: str) -> list[str]:
    """The last lines, without source lines of tracebacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r'(\[rank\d+\]:\s+)?(File "|\^|~)', line)]
    if told and OF_PEERS.search(told[-1]):
        return [(OF_PEERS.search(told[-1]) or [""])[0]]
    return [line[:SHOWN_CHARS] for line in told[-SHOWN_LINES:]]


def blind(case: dict[str, Any]) -> str:
    """What is left without the id, the truth and where it comes from."""
    shown = []
    texts: dict[int, str] = defaultdict(str)
    for log in case["logs"]:
        texts[log["rank"]] += log["text"]
    said: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, text in texts.items():
        said[tuple(ends(text))].append(rank)
    for lines, ranks in said.items():
        shown += [f"  log {ranks}: {line}" for line in lines]
    how = [f"{one['rank']}: signal {one['signal']}" for one in case["exits"] if one["signal"]]
    how += [f"{one['rank']}: {one['code']}" for one in case["exits"] if not one["signal"]]
    shown += [f"  ends: {', '.join(how)}"] if how else []
    root = case["launcher"].rpartition("Root Cause (first observed failure):")[2]
    told = [line.strip() for line in root.splitlines() if line.strip() and not re.match(r"[=\-]+$", line.strip())]
    shown += [f"  launcher: {line[:SHOWN_CHARS]}" for line in told if not line.startswith(_LEFT_OUT)]
    shown += [f"  kernel: {line[:SHOWN_CHARS]}" for line in case["kernel"][:4]]
    return "\n".join(shown)


def keep(seed: str, labels: Path) -> None:
    """Each label into its case: whether the second reader came to a phrase that the truth allows."""
    order = numbered(seed)
    for line in labels.read_text().splitlines():
        if not line.strip():
            continue
        number, phrase = line.split()[:2]
        path = order[int(number)]
        case = json.loads(path.read_text())
        allowed = {case["truth"]["phrase"], *case["truth"]["also_right"]}
        case["readers"] = {
            "second": phrase,
            "same": phrase == case["truth"]["phrase"],
            "agreed": phrase in allowed,
        }
        path.write_text(json.dumps(case, indent=1, ensure_ascii=False) + "\n")


def kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Cohen's: agreement beyond what the frequencies of the classes alone would give."""
    total = len(pairs)
    same = sum(one == other for one, other in pairs) / total
    chance = sum(
        sum(one == phrase for one, _ in pairs) * sum(other == phrase for _, other in pairs) / total**2
        for phrase in {phrase for pair in pairs for phrase in pair}
    )
    return (same - chance) / (1 - chance) if chance < 1 else 1.0


def agreement() -> str:
    rows = ["| cases | read twice | same phrase | a phrase that counts | kappa |", "| --- | --- | --- | --- | --- |"]
    found = [json.loads(path.read_text()) for path in paths()]
    for name, how in (("provoked", "provoked"), ("public", "public"), ("all", "")):
        group = [case for case in found if not how or case["provenance"]["how"] == how]
        read = [case for case in group if "readers" in case]
        if not read:
            continue
        same = sum(case["readers"]["same"] for case in read)
        agreed = sum(case["readers"]["agreed"] for case in read)
        value = kappa([(case["truth"]["phrase"], case["readers"]["second"]) for case in read])
        rows.append(
            f"| {name}, {len(group)} | {len(read)} | {100 * same / len(read):.0f} % | "
            f"{100 * agreed / len(read):.0f} % | {value:.2f} |"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["blind", seed]:
            for number, path in enumerate(numbered(seed)):
                print(f"{number}\n{blind(json.loads(path.read_text()))}")
        case ["keep", seed, labels]:
            keep(seed, Path(labels))
        case ["--write"]:
            text = README.read_text()
            new = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{agreement()}\n\n{END}", text, flags=re.S)
            README.write_text(new)
        case []:
            print(agreement())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
