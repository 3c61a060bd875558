"""`python tests/unsteady.py [excused TEST-ID]`: the list of tests that may fail once and then pass.

Without arguments it checks `tests/unsteady.txt`: at most five lines, none older than two weeks; each names a test file
that exists, and a reason. `excused TEST-ID` exits with 0 if the list has no mistake and has the test, else with 1.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from places import ROOT

LIST = Path(__file__).with_name("unsteady.txt")
MOST_ENTRIES, MOST_DAYS = 5, 14


@dataclass(frozen=True)
class Unsteady:
    added: date
    test: str
    reason: str


def read_list(text: str, today: date) -> tuple[list[Unsteady], list[str]]:
    """The lines of the list, and a sentence for each mistake in it."""
    found: list[Unsteady] = []
    mistakes: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\d{4}-\d{2}-\d{2}) (tests/\S+\.py::\S+(?:\[[^\]]*\])?) (\S.*)", line)
        if match is None:
            mistakes.append(
                f"line {number}: expected `DATE TEST-ID REASON`, as in `2026-01-31 tests/act/test_x.py::test_y why`"
            )
            continue
        entry = Unsteady(date.fromisoformat(match[1]), match[2], match[3])
        found.append(entry)
        days = (today - entry.added).days
        if not 0 <= days <= MOST_DAYS:
            mistakes.append(
                f"line {number}: added {days} days ago; at most {MOST_DAYS} days are excused: mend the test"
            )
        if not (ROOT / entry.test.partition("::")[0]).is_file():
            mistakes.append(f"line {number}: there is no file {entry.test.partition('::')[0]}")
    if len(found) > MOST_ENTRIES:
        mistakes.append(f"{len(found)} tests are excused; at most {MOST_ENTRIES} may be: mend some")
    return found, mistakes


def main(words: list[str]) -> int:
    found, mistakes = read_list(LIST.read_text(encoding="utf-8"), datetime.now(UTC).date())
    if words[:1] == ["excused"] and len(words) == 2:
        return 0 if any(entry.test == words[1] for entry in found) and not mistakes else 1
    if words:
        print("usage: python tests/unsteady.py [excused TEST-ID]", file=sys.stderr)
        return 2
    for mistake in mistakes:
        print(f"tests/unsteady.txt: {mistake}")
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
