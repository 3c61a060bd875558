"""How much an explainer loses when the same log looks different: each open text, changed in thirteen ways.

    python benchmarks/explain/paraphrases.py              # the table of losses by kind of change
    python benchmarks/explain/paraphrases.py --misses     # and each text whose class was lost
    python benchmarks/explain/paraphrases.py --seed 7     # other prefixes, numbers and places of cuts
    python benchmarks/explain/paraphrases.py --write      # into README.md

A change leaves the cause as it is: another launcher's prefix, other ranks and paths, wrapped lines, colours, progress
bars, JSON around each line, two ranks in one file, noise cut at the front or at the end, and the words of another
locale for the system's errors. Only texts that are explained right without a change are counted.
"""

from __future__ import annotations

import argparse
import errno
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast_testing.labelled_logs import CHECKOUT

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- paraphrases -->\n", "<!-- end of paraphrases -->"
Change = Callable[[list[str], random.Random], list[str]]
STEP = "step {} loss {:.3f} lr 3.0e-04 tokens/s {}"

_PREFIXES = (
    "[default0]:", "(worker-7 pid=8123) ", "node17: ", "[1,3]<stderr>:", "gpu-04 trainer[4711]: ", "3: ",
    "(RayTrainWorker pid=912, ip=10.0.0.7) ", "trainer-0  | ",
)  # fmt: skip
_STAMPS = (
    "2026-11-20 22:00:{s:02d},{ms:03d} ", "[2026-11-20T22:00:{s:02d}.{ms:03d}Z] ", "2026/11/20 22:00:{s:02d} ",
    "Nov 20 22:00:{s:02d} ", "22:00:{s:02d}.{ms:03d} ", "2026-11-20T22:00:{s:02d}.{ms:03d}000000Z stderr F ",
)  # fmt: skip
#: The system's errors as glibc words them in German and French.
_LOCALE = {
    errno.ENOSPC: ("No space left on device", "Auf dem Gerät ist kein Speicherplatz mehr verfügbar"),
    errno.ENOENT: ("No such file or directory", "Datei oder Verzeichnis nicht gefunden"),
    errno.EACCES: ("Permission denied", "Keine Berechtigung"),
    errno.ECONNREFUSED: ("Connection refused", "Verbindungsaufbau abgelehnt"),
    errno.ECONNRESET: ("Connection reset by peer", "Die Verbindung wurde vom Kommunikationspartner zurückgesetzt"),
    errno.EADDRINUSE: ("Address already in use", "Die Adresse wird bereits verwendet"),
    errno.EMFILE: ("Too many open files", "Zu viele offene Dateien"),
    errno.ENOMEM: ("Cannot allocate memory", "Nicht genügend Hauptspeicher verfügbar"),
    errno.EIO: ("Input/output error", "Eingabe-/Ausgabefehler"),
    errno.EROFS: ("Read-only file system", "Das Dateisystem ist nur lesbar"),
    errno.EDQUOT: ("Disk quota exceeded", "Der zugewiesene Plattenplatz ist überschritten"),
    errno.ESTALE: ("Stale file handle", "Veraltete Dateizugriffsnummer (file handle)"),
    errno.ETIMEDOUT: ("Connection timed out", "Die Wartezeit für die Verbindung ist abgelaufen"),
    errno.EHOSTUNREACH: ("No route to host", "Keine Route zum Zielrechner"),
}


def prefixed(lines: list[str], dice: random.Random) -> list[str]:
    prefix = dice.choice(_PREFIXES)
    return [prefix + line for line in lines]


def stamped(lines: list[str], dice: random.Random) -> list[str]:
    stamp = dice.choice(_STAMPS)
    return [
        stamp.format(s=10 + at * 40 // len(lines), ms=at * 40_000 // len(lines) % 1000) + line
        for at, line in enumerate(lines)
    ]


def other_rank(lines: list[str], dice: random.Random) -> list[str]:
    rank = dice.randrange(8, 4096)
    return [re.sub(r"(\brank[ =:]?|\[rank)0\b", lambda found: f"{found[1]}{rank}", line) for line in lines]


def other_paths(lines: list[str], dice: random.Random) -> list[str]:
    top = dice.choice(("/lustre/fsw/user/run 7", "/mnt/c/Users/ann", "/gpfs/scratch/p1/ünïcode"))
    return [re.sub(r"(?<![\w.:/])/(?:home|root|app|workspace|opt|data)/", lambda _: f"{top}/", line) for line in lines]


def wrapped(lines: list[str], dice: random.Random) -> list[str]:
    width = dice.choice((120, 132, 160))
    return [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]


def coloured(lines: list[str], dice: random.Random) -> list[str]:
    colour = dice.choice(("31", "1;31", "38;5;196"))
    return [f"\x1b[{colour}m{line}\x1b[0m\x1b[K" for line in lines]


def after_bars(lines: list[str], dice: random.Random) -> list[str]:
    bar = "\r".join(f" {n}%|{'#' * (n // 10):<10}| {n}/100 [00:{n // 2:02d}<00:10, 2.0it/s]" for n in range(0, 60, 20))
    return [f"{bar}\r{lines[0]}", *lines[1:]]


def in_json(lines: list[str], dice: random.Random) -> list[str]:
    key = dice.choice(("message", "log", "msg"))
    return [json.dumps({"ts": 1780000000 + at, "level": "info", key: line}) for at, line in enumerate(lines)]


def two_ranks(lines: list[str], dice: random.Random) -> list[str]:
    found = []
    for at, line in enumerate(lines):
        if at < len(lines) // 2 and dice.random() < 0.5:
            found.append("[rank1]: " + STEP.format(at, 2.5, 1000))
        found.append(f"[rank0]: {line}")
    return found


def without_front(lines: list[str], dice: random.Random) -> list[str]:
    """Cut a part of the first line, as a tail of so many bytes begins."""
    return [lines[0][len(lines[0]) // 2 :], *lines[1:]] if len(lines) > 3 else lines


def after_training(lines: list[str], dice: random.Random) -> list[str]:
    return [STEP.format(step, 3 - step / 1000, 10_000 + step) for step in range(dice.randrange(50, 400))] + lines


def with_windows_ends(lines: list[str], dice: random.Random) -> list[str]:
    return [line + "\r" for line in lines]


def of_another_locale(lines: list[str], dice: random.Random) -> list[str]:
    found = []
    for line in lines:
        for english, german in _LOCALE.values():
            line = line.replace(english, german)
        found.append(line)
    return found


CHANGES: dict[str, Change] = {
    "a launcher's prefix": prefixed,
    "time stamps": stamped,
    "another rank": other_rank,
    "other paths": other_paths,
    "lines wrapped at a width": wrapped,
    "colours": coloured,
    "progress bars before (`\\r`)": after_bars,
    "JSON around each line": in_json,
    "two ranks interleaved": two_ranks,
    "cut at the front": without_front,
    "hundreds of steps before": after_training,
    "line ends of Windows": with_windows_ends,
    "another locale's errors": of_another_locale,
}


def texts() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield the id, the text and the right classes of each open text that is one log."""
    for path in sorted((CHECKOUT / "tests" / "data").glob("explain_*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("text", "").strip():
                right = frozenset({record["phrase"], *(record.get("also_right") or ())})
                yield f"{path.stem}/{record['id']}", record["text"], right


def answer(text: str) -> str:
    log = LogExcerpt(source="job.log", text=text)
    return explain(AttemptEvidence(workers=(WorkerEvidence(log=log),))).phrase


def losses(seed: int, misses: bool, step: int) -> list[tuple[str, int, int]]:
    """Return for each change: its name, the texts that it changes, and those whose class is lost by it."""
    known = [(name, text, right) for name, text, right in list(texts())[::step] if answer(text) in right]
    found = []
    for kind, change in CHANGES.items():
        total = lost = 0
        for name, text, right in known:
            lines = text.splitlines()
            other = change(lines, random.Random(f"{seed} {name} {kind}"))
            if other == lines:
                continue
            total += 1
            if (said := answer("\n".join(other) + "\n")) not in right:
                lost += 1
                if misses:
                    print(f"{kind}: {name}: {said} for {'/'.join(sorted(right))}")
        found.append((kind, total, lost))
    return found


def table(found: Sequence[tuple[str, int, int]]) -> str:
    lines = ["| change | texts | class lost | loss |", "| --- | --- | --- | --- |"]
    for kind, total, lost in sorted(found, key=lambda each: -each[2] / max(1, each[1])):
        lines.append(f"| {kind} | {total} | {lost} | {100 * lost / max(1, total):.1f} % |")
    total, lost = sum(each[1] for each in found), sum(each[2] for each in found)
    return "\n".join([*lines, f"| all | {total} | {lost} | {100 * lost / max(1, total):.1f} % |"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Score the loss of classes by changes of form.")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--misses", action="store_true", help="name each text whose class was lost")
    parser.add_argument("--write", action="store_true", help="the table into README.md")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth text, for a quick look")
    chosen = parser.parse_args(arguments)
    found = table(losses(chosen.seed, chosen.misses, chosen.every))
    print(found)
    if chosen.write:
        old = README.read_text()
        README.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{found}\n\n{END}", old, flags=re.S))
    return 0


if __name__ == "__main__":
    sys.exit(main())
