"""Kill orders of `<component>.pai.error` files: their lines, and what they ask for. Pure.

```
234346457 ERROR ACTION "KILL"
234346457 ERROR REASON "the node is drained for maintenance"
234346457 ERROR SOLUTION "wait for node7"
234346457 ERROR PHRASE "NodeDrained"
234346457 ERROR CODE "195"
```

The last line of each kind counts. An order has ACTION KILL (or STOP) and a REASON; the rest may be left out.
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
#: The exit code of a stop where the commands on two nodes do not fit together.
BAD_USAGE = 2
#: Characters of a reason or a solution that are kept.
MOST_TEXT = 2000


class KillOrder(Noun, frozen=True, kw_only=True):
    """The request of a component. `trouble`: the parts of it that holdfast cannot use, in a sentence."""

    component: str
    reason: str
    solution: str = ""
    phrase: str = BY_OPERATOR
    code: int | None = None
    trouble: str = ""


def line_of(text: str) -> tuple[str, str] | None:
    """The key (`ACTION`, `REASON` …) and its value; None for any other line."""
    found = _LINE.match(text)
    return (found["what"], found["text"]) if found else None


def words_of(lines: Iterable[str]) -> dict[str, str]:
    """The last value of each key in the lines of one file."""
    return dict(found for line in lines if (found := line_of(line)) is not None)


def asks_to_kill(said: dict[str, str]) -> bool:
    return said.get("ACTION", "").strip().upper() in ("KILL", "STOP")


def order_of(component: str, said: dict[str, str], catalogue: Catalogue) -> KillOrder | None:
    """The order in these words; None where they request nothing, or give no reason.

    A phrase or a code that is not allowed does not spoil the order: it gets the default one, and `trouble` explains
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
    """The row for the stop's report: a component's own phrase has none in the catalogue."""
    if request.code == BAD_USAGE and (wrong := special(BAD_USAGE)) is not None:
        return wrong  # no worker was started: what was typed on the nodes does not fit together
    row = catalogue.row(request.phrase)
    if request.code is None or (row.phrase == request.phrase and row.code == request.code):
        return row
    return own_row(request.phrase, request.code)
