"""Learns the prefix that an unknown launcher or logger writes before each line, from the tracebacks in the log.

A traceback's second line begins with two spaces and `File "`, its last line with the type of an exception. If the same
words come before the header and before such a line, they are a prefix. The prefix is then removed from every line that
begins with it, also with other numbers in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = "Traceback (most recent call last):"
_FRAME = '  File "'
#: The last line of a traceback. It is needed because a shortened log may lack the frames.
_LAST = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
#: Number of lines after a header in which a frame or an exception's line with the same prefix is searched: other
#: ranks' lines may come between.
_NEAR = 40
_LONGEST = 120
_MOST_FORMS = 16
#: Prefixes that the traceback parser handles itself: an exception group's margin, torchrun's box.
_DRAWN = re.compile(r"[\s+|]*(?:traceback\s*: )?(?:Exception Group )?")
_RANK = re.compile(r"(?i)\brank[ _=:]{0,2}(\d{1,9})\b")
_DIGITS = re.compile(r"\d+")


def learnt(texts: Sequence[str]) -> tuple[re.Pattern[str] | None, frozenset[int]]:
    """Return the pattern of the prefixes in a log, or None; and the indices of headers with words before them that are
    no prefix."""
    forms: dict[str, None] = {}
    alone: set[int] = set()
    for index, text in enumerate(texts):
        at = text.find(_HEADER, 1)
        if at < 1 or at > _LONGEST or _DRAWN.fullmatch(text, 0, at):
            continue
        prefix = text[:at]
        near = texts[index + 1 : index + 1 + _NEAR]
        if any(other.startswith(prefix + _FRAME) for other in near) or any(
            other.startswith(prefix) and _LAST.match(other, len(prefix)) for other in near
        ):
            words = prefix.rstrip()
            end = f"(?:{re.escape(prefix[len(words) :])}|$)" if words != prefix else ""
            if len(forms) < _MOST_FORMS:
                forms[_DIGITS.sub(r"\\d+", re.escape(words)) + end] = None
        elif index + 1 < len(texts) and texts[index + 1].startswith(_FRAME):
            alone.add(index)
    if not forms:
        return None, frozenset(alone)
    return re.compile("|".join(sorted(forms, key=len, reverse=True))), frozenset(alone)


def without_header_words(text: str) -> str:
    """Return a traceback's header without the words before it."""
    return text[text.index(_HEADER) :]


def rank_in(prefix: str) -> int | None:
    """Return the rank that a prefix names; None: it names none."""
    found = _RANK.search(prefix)
    return int(found[1]) if found else None
