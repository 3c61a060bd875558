"""Expand Slurm's host lists: `n[001-003,7],m5` is n001, n002, n003, n7 and m5."""

from __future__ import annotations

from collections.abc import Iterator

#: Maximum number of host names in a list. Slurm has the same limit for the nodes of a cluster.
MOST_HOSTS = 65_536
_DIGITS = 9


def hosts_in(text: str) -> tuple[str, ...]:
    """Return the host names in the order of the list. Raises ValueError with a message.

    A name may have several bracketed ranges.
    """
    found: list[str] = []
    for entry in _entries(text):
        for name in _written_out(entry):
            found.append(name)
            if len(found) > MOST_HOSTS:
                raise ValueError(f"more than {MOST_HOSTS} hosts")
    return tuple(found)


def _entries(text: str) -> Iterator[str]:
    """Split the list at its commas, but not within brackets."""
    begin = depth = 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and not depth:
            yield from _entry(text[begin:at])
            begin = at + 1
        if depth not in (0, 1):
            raise ValueError("brackets within brackets" if depth > 1 else "a `]` without its `[`")
    if depth:
        raise ValueError("a `[` without its `]`")
    yield from _entry(text[begin:])


def _entry(text: str) -> Iterator[str]:
    if text := text.strip():
        yield text


def _written_out(entry: str) -> Iterator[str]:
    """Yield all host names of one entry. The last bracket varies fastest."""
    head, bracket, rest = entry.partition("[")
    if not bracket:
        yield head
        return
    ranges, _, tail = rest.partition("]")
    for number in _numbers(ranges):
        for end in _written_out(tail) if tail else ("",):
            yield head + number + end


def _numbers(ranges: str) -> Iterator[str]:
    """Expand `001-003,7` to 001, 002, 003, 7. Numbers are padded to the width of the range's first number."""
    for part in ranges.split(","):
        first, hyphen, last = part.strip().partition("-")
        last = last if hyphen else first
        if not (_is_number(first) and _is_number(last)) or int(last) < int(first):
            raise ValueError(f"`{part.strip()[:40]}` in brackets: expected a number, or two with a hyphen between them")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def counts_in(text: str) -> tuple[int, ...]:
    """Expand Slurm's per-node numbers: `2(x3),1` is 2, 2, 2, 1. Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        count, times, many = part.strip().partition("(x")
        repeated = many.removesuffix(")") if times else "1"
        if not (_is_number(count) and _is_number(repeated)) or int(repeated) > MOST_HOSTS:
            raise ValueError(f"`{part.strip()[:40]}`: expected NUMBER or NUMBER(xTIMES)")
        found += [int(count)] * int(repeated)
        if len(found) > MOST_HOSTS:
            raise ValueError(f"more than {MOST_HOSTS} numbers")
    return tuple(found)
