"""Parses the kill orders in `<component>.pai.error` files. Pure.

```
234346457 ERROR ACTION "KILL"
234346457 ERROR REASON "the node is drained for maintenance"
234346457 ERROR SOLUTION "wait for node7"
234346457 ERROR PHRASE "NodeDrained"
234346457 ERROR CODE "195"
```

The last line of each key counts. An order needs ACTION KILL (or STOP) and a REASON; the other keys are optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.catalogue.exit_codes import special
from holdfast.catalogue.stop_phrases import BY_CLEANER, BY_OPERATOR, choose, own_row
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import StopRequest
from holdfast.model.noun_base import Noun

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue, ExitRow

_LINE = Lazy(
    r'^\s*(?P<stamp>\S+)\s+ERROR\s+(?P<what>ACTION|REASON|SOLUTION|PHRASE|CODE)\s+"?(?P<text>.*?)"?\s*$', re.DOTALL
)
#: Exit code of a stop because the commands on two nodes differ where they must be equal.
BAD_USAGE = 2
#: Limit on a reason or a solution, in characters.
MOST_TEXT = 2000


class KillOrder(Noun, frozen=True, kw_only=True):
    """A component's order to stop the job.

    `trouble`: a message about a failure class or an exit code that holdfast cannot use.
    """

    component: str
    reason: str
    solution: str = ""
    phrase: str = BY_OPERATOR
    code: int | None = None
    trouble: str = ""


def line_of(text: str) -> tuple[str, str] | None:
    """Parse a line into its key (`ACTION`, `REASON` …) and value; None for any other line."""
    found = _LINE.match(text)
    return (found["what"], found["text"]) if found else None


def words_of(lines: Iterable[str]) -> dict[str, str]:
    """Return the last value of each key in the lines of one file."""
    return dict(found for line in lines if (found := line_of(line)) is not None)


def asks_to_kill(said: dict[str, str]) -> bool:
    return said.get("ACTION", "").strip().upper() in ("KILL", "STOP")


def order_of(component: str, said: dict[str, str], catalogue: Catalogue) -> KillOrder | None:
    """Make the kill order from a file's values; None if they have no kill action or no reason.

    If the PHRASE or CODE is invalid, the order is still valid: a default replaces that value, and `trouble` explains
    why.
    """
    reason = said.get("REASON", "").strip()[:MOST_TEXT]
    if not asks_to_kill(said) or not reason:
        return None
    cleaner = "disk" in component.lower()
    usual: str = BY_CLEANER if cleaner else BY_OPERATOR
    phrase, code, trouble = usual, None, ""
    try:
        if said.get("PHRASE", "").strip() or said.get("CODE", "").strip():
            who = "diskCleaner" if cleaner else component
            phrase, code = choose(said.get("PHRASE", "").strip(), _number(said.get("CODE", "")), who, catalogue)
    except ValueError as error:
        trouble = str(error)
    solution = said.get("SOLUTION", "").strip()[:MOST_TEXT]
    return KillOrder(component=component, reason=reason, solution=solution, phrase=phrase, code=code, trouble=trouble)


def _number(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if len(text) > 6 or not (text.isascii() and text.isdigit()):
        raise ValueError(f"code {text[:20]!r} is no number")
    return int(text)


def row_of(request: StopRequest, catalogue: Catalogue) -> ExitRow:
    """Return the catalogue's row for the report of a requested stop.

    If a component chose a failure class that is not in the catalogue, make a row for it.
    """
    if request.code == BAD_USAGE and (wrong := special(BAD_USAGE)) is not None:
        return wrong  # no worker was started, because the commands on the nodes do not match
    row = catalogue.row(request.phrase)
    if request.code is None or (row.phrase == request.phrase and row.code == request.code):
        return row
    return own_row(request.phrase, request.code)
