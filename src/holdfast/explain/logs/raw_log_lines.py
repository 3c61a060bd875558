"""Splits raw log text into the program's lines: removes colours, folds progress bars, separates joined lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

#: Maximum length of a line in characters. Of a longer line only both ends are kept.
MOST_LINE = 32_768
#: Maximum number of lines into which a traceback that is quoted in one line is split.
_MOST_UNFOLDED = 400

_ANSI = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\\u001b\[[0-9;]*m|\^\[\[[0-9;]*m"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BAR = re.compile(r"\d{1,3}%\s?\|.{0,120}\||\|[█▏▎▍▌▋▊▉#=> -]{3,}\||\b\d+/\d+ \[\d\d:\d\d")
_TRACEBACK = "Traceback (most recent call last):"
_TRACEBACK_INSIDE = re.compile(r"(?<=[^\s|+-])\s*Traceback \(most recent call last\):\s*$")
#: Matches the beginning of another writer's line directly after a progress bar, which has no line end.
_AFTER_BAR = re.compile(
    r"(?<=[\]%|=)])\s*(?=(?:\[[Rr]ank\d+\]:\s*)?(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b"
    r"|slurmstepd: |srun: |terminate called |Fatal Python error|Segmentation fault|Bus error|Killed$|\*\*\* "
    r"|\[E\d{3,4} ))"
)
_MPI_INSIDE = re.compile(
    r"(?<=\S)\s*(?=\[(?:(?:[\w.-]{1,80}@)?(?:job)?\d+,(?:mpirank:)?)?\d{1,9}(?:,[\w.-]{1,80})?\]<std(?:out|err)>:)"
)
#: The date that mpirun writes before its tag.
_MPI_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$")
#: An escaped line end in a quoted traceback: before an indented line, another traceback, or the exception's line.
_FOLDED = re.compile(
    r"\\n(?=\s|Traceback|During handling|The above exc|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b)"
)
_JSON_TRACEBACK = re.compile(r'"\w+"\s*:\s*"((?:[^"\\]|\\.)*Traceback \(most recent call last\):(?:[^"\\]|\\.)*)"')
_QUOTED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_PLAIN = {"n": "", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\", "/": "/"}

#: Tags without brackets: `POD CONTAINER words`, `HOST RANK: words`, and pdsh's `HOST: words`. Such tags only count if
#: most lines have one. The kernel's device names are not hosts.
_SHARED = (
    re.compile(r"(?P<tag>[a-z0-9][a-z0-9.-]*-[a-z0-9]+ [a-z][a-z0-9-]*)(?: (?=.)|$)"),
    re.compile(r"(?P<tag>[A-Za-z][\w.-]*\d[\w.-]* (?P<rank>\d{1,6})):(?: (?=.)|$)"),
    re.compile(
        r"(?P<tag>(?!rank|Rank|nv|mlx|md\d|sd[a-z]|dm-|eth|ib\d|en[sp]|EDAC|XFS|EXT4|hl\d|xe\d|i915|ext4|xfs)"
        r"[A-Za-z][\w.-]*\d[\w.-]*|\d{1,3}(?:\.\d{1,3}){3}):(?: (?=.)|$)"
    ),
)
_SHARED_PART = 0.6
_SHARED_LEAST = 3
_MOST_TAGS = 4096


def split(text: str) -> list[tuple[str, int]]:
    """Split a text into lines without colours and control characters, each with the index of its physical line.

    Earlier states of a progress bar are dropped.
    """
    lines: list[tuple[str, int]] = []
    for number, physical in enumerate(text.replace("\r\n", "\n").split("\n")):
        parts = [physical]
        if "\r" in physical:
            parts = [part for part in physical.split("\r") if part.strip()]
            # Keep only the last state of a progress bar, and other writers' lines in the same row.
            parts = [part for index, part in enumerate(parts) if index == len(parts) - 1 or not _BAR.search(part)]
        for part in parts or [""]:
            if "\x1b" in part or "\\u001b" in part or "^[[" in part:
                part = _ANSI.sub("", part)
            part = _CONTROL.sub("", part).rstrip()
            if _TRACEBACK in part and "\\n" in part:
                lines += [(line, number) for line in _unfolded(part[: 4 * MOST_LINE])]
                continue
            if len(part) > MOST_LINE:
                part = f"{part[: MOST_LINE * 3 // 4]} … {part[-MOST_LINE // 4 :]}"
            lines += [(line, number) for line in _unglued(part)]
    while lines and not lines[-1][0]:
        lines.pop()
    return lines


def _unglued(line: str) -> Iterator[str]:
    """Split a line in which another writer's line directly follows a progress bar, or another rank's line."""
    if "<std" in line and (found := _MPI_INSIDE.search(line)) and not _MPI_DATE.match(line[: found.start()]):
        for part in _MPI_INSIDE.split(line):
            yield from _unglued(part)
        return
    if ("%|" in line or "% |" in line or "] " in line or "it/s" in line or "=" in line) and _BAR.search(line):
        found = _TRACEBACK_INSIDE.search(line) or _AFTER_BAR.search(line)
        if found:
            yield line[: found.start()]
            line = line[found.start() :].lstrip()
    yield line


def _unfolded(line: str) -> list[str]:
    """Split a traceback that JSON or `repr` quoted into one line. The text before the traceback comes first."""
    found = _JSON_TRACEBACK.search(line)
    inside = found[1] if found else line
    before = line[: found.start(1)] if found else ""
    head, mark, rest = inside.partition(_TRACEBACK)
    lines = _FOLDED.split(mark + rest)
    if len(lines) < 2:
        return [line]
    first = before + head
    return [first.rstrip(), *(unquoted(each).rstrip() for each in lines[:_MOST_UNFOLDED])]


def unquoted(text: str) -> str:
    """Return the text with JSON's escapes decoded, and line ends removed."""
    if "\\" not in text:
        return text
    return _QUOTED.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]), text)


def shared_tags(raws: Sequence[str]) -> re.Pattern[str] | None:
    """Return the pattern of the tag without brackets with which most of the lines begin; None: there is no such tag."""
    spoken = [raw for raw in raws if raw.strip()]
    for form in _SHARED:
        if len(spoken) < _SHARED_LEAST or not form.match(spoken[-1]):
            continue
        tags = Counter(match["tag"] for raw in spoken if (match := form.match(raw)) is not None)
        tagged = sum(tags.values())
        if tagged >= _SHARED_PART * len(spoken) and len(tags) <= min(_MOST_TAGS, max(1, tagged // 2)):
            return form
    return None


def is_bar(text: str) -> bool:
    """Return whether the line is a progress bar."""
    return _BAR.search(text) is not None
