#!/usr/bin/env python3
"""Ask pip-audit for known faults of the locked packages. Exit status 1: there are some.

Where the data about faults cannot be had (an index without it, no network), this is said with the date of the locks,
and the exit status is 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT_S = 300


def locks() -> list[Path]:
    return sorted(HERE.glob("*.txt"))


def locked_on() -> str:
    """Return the date of the oldest lock."""
    return min(lock.read_text().split()[2] for lock in locks())


def verdict(answers: list[dict[str, Any]], trouble: str = "") -> tuple[int, str]:
    """Return the exit status and what is said. `answers`: pip-audit's `dependencies`."""
    audited = [each for each in answers if "vulns" in each]
    known = [
        f"{each['name']} {each['version']}: {fault['id']}, fixed in {', '.join(fault['fix_versions']) or 'no version'}"
        for each in audited
        for fault in each["vulns"]
    ]
    if known:
        return 1, "\n".join([*sorted(set(known)), "write the locks anew: requirements/lock.sh"])
    if not audited:
        why = trouble or "the index has none"
        return 0, f"NOT AUDITED: data about known faults could not be had here ({why}); locked on {locked_on()}"
    left_out = len(answers) - len(audited)
    more = f"; {left_out} could not be looked up" if left_out else ""
    return 0, f"{len(audited)} packages have no known faults{more}; locked on {locked_on()}"


def main() -> int:
    answers: list[dict[str, Any]] = []
    trouble = ""
    for lock in locks():
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder, "audit.json")
            words = [sys.executable, "-m", "pip_audit", "-r", str(lock), "--require-hashes", "--disable-pip"]
            words += ["--progress-spinner", "off", "-f", "json", "-o", str(to)]
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                trouble = f"no answer within {LIMIT_S} s"
                continue
            if to.exists():
                answers += json.loads(to.read_text())["dependencies"]
            else:
                trouble = (done.stderr.strip().splitlines() or [f"pip-audit ended with status {done.returncode}"])[-1][
                    :200
                ]
    status, text = verdict(answers, trouble)
    print(text)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
