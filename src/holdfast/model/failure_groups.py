"""Groups failures that a person would call the same. It compares their fingerprints (one text per failure) without the
variable parts. Pure.

For restarts the exact fingerprints count: a failure at "shard 18" after one at "shard 17" is progress. In statistics
over many jobs both are one problem. This module reads the fingerprints of all releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_pattern import Lazy

if TYPE_CHECKING:
    import re

#: This many words of a fingerprint's text are compared. The later ones are unreliable, because the text is cut off at a
#: length, and paths and names in it shift the cut.
MOST_WORDS = 16

#: The first four parts of a fingerprint are compared unchanged: class, signal or status, exception, place in the
#: program.
_PLACES = 4
_COLLECTIVE, _TEXT, _PARTS = 4, 5, 7

_LIKE = Lazy(
    # Matches URLs and paths. A name with a slash counts as a path if it begins like one.
    r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\",;)\]}>]+"
    r"|(?<![\w/.])(?:~|\.{1,2})?/[^\s'\",;:)\]}>]+(?::\d+)?"
    r"|(?<![\w/.])[\w.#-]+/(?:[\w.#-]+/)*[\w.#-]+"
    # Matches machine names. A name counts if it has a port, is in a known domain, or follows a word such as `host`.
    r"|\b(?=[\w.-]*[A-Za-z])[\w-]+(?:\.[\w-]+)*:\d+\b"
    r"|\b(?:[\w-]+\.)+(?:com|net|org|io|ai|cn|de|eu|uk|us|edu|gov|local|internal|lan|intern|corp|cluster|svc|cloud|test"
    r"|example|invalid)\b(?::\d+)?"
    r"|(?i:\b(?P<word>host|hostname|node|peer|server|machine)(?P<gap>[ =:]+)['\"]?)(?=[\w.-]*[\d.-])[\w][\w.-]*"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b0x[0-9a-fA-F]+\b|\b(?:(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}|[0-9a-fA-F]{8,})\b(?!\.\d)"
    r"|\[?(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:])\]?"
    r"|[+-]?\d+(?:[.:,]\d+)*(?:[eE][+-]?\d+)?"
)
_LISTED = Lazy(r"#(?:(?:\s*,\s*|\s+and\s+|\s+to\s+|\s*[-:]\s*)#)+")
_RANKS = Lazy(r"(?i)\b(rank|worker|node|device|gpu|npu)s\b")
_SIGNS = Lazy(r"#+")


def group_of(fingerprint: str) -> str:
    """Return the group of a fingerprint; empty for an empty one.

    Fingerprints that differ only in numbers, addresses, paths, hashes, machines, ranks or devices have the same group.
    Fingerprints with another class, signal, status, exception or place in the program have another group.
    """
    parts = fingerprint.split("|")
    kept = parts[:_PLACES]
    if len(parts) == _PARTS:
        # Keep the collective's name without its number. Leave out the devices, because the report shows them elsewhere.
        kept += [parts[_COLLECTIVE].partition(" ")[0], alike(parts[_TEXT])]
    else:  # the fingerprint is of another release, or has only a class
        kept += [alike(part) for part in parts[_PLACES:]]
    return "|".join(kept)


def alike(text: str) -> str:
    """Return the text's first words, with `#` in place of the parts that differ each time."""
    text = _RANKS.sub(lambda found: found[1], _LIKE.sub(_sign, text))
    text = _SIGNS.sub("#", _LISTED.sub("#", text))
    words = text.split()
    if words and words[-1].endswith("…"):
        words.pop()  # the last word may be incomplete, because the text is cut off
    return " ".join(words[:MOST_WORDS])


def _sign(found: re.Match[str]) -> str:
    return f"{found['word']}{found['gap']}#" if found["word"] else "#"
