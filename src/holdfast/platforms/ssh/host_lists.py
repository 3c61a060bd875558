"""Read lists of hosts, from `--hosts a,b:4` or from host files in the formats of Open MPI and DeepSpeed."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun
from holdfast.safe_files import not_a_file, read_file

MOST_HOSTS = 10_000
MOST_SLOTS = 100_000
MOST_BYTES = 4 << 20
_SHOWN = 80
#: Matches a host, with an optional user. A name must not begin with a hyphen, because ssh would take it for an option.
_NAME = Lazy(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})")

EXPECTED = "expected HOST, HOST:SLOTS or `HOST slots=N`"


class ListedHost(Noun, frozen=True, kw_only=True):
    """One host of a list. `slots`: number of its workers; None if the list has no number, so that `--nproc-per-node`
    applies.
    """

    host: str
    slots: int | None = None


def hosts_of(names: Iterable[str], origin: str) -> tuple[ListedHost, ...]:
    """Parse `--hosts node1,node2:4`. `origin`: the option or variable, for messages. Raises `BadUsage`."""
    hint = "holdfast run --hosts node1,node2:4 …"
    listed = []
    for number, word in enumerate(names, 1):
        try:
            listed.append((f"entry {number}", _entry(word)))
        except ValueError as error:
            raise BadUsage(f"{origin}: {_shown(word)}: {error}", hint=hint) from None
    return _each_once(listed, origin, hint)


def hostfile(path: Path, origin: str) -> tuple[ListedHost, ...]:
    """Read a host file, with one host per line; `#` begins a comment. Raises `BadUsage`.

    `origin`: the option or variable that names the file.
    """
    try:
        kind = not_a_file(path)
        if kind and kind != "a directory":
            # The file must not be a pipe, because it is read twice: by the process that checks the command line, and by
            # the guard.
            raise BadUsage(
                f"{origin} {path}: it is {kind}, and can be read once only: expected a file with a host a line",
                hint="scontrol show hostnames > hosts.txt; holdfast run --hostfile hosts.txt …",
            )
        text = read_file(path, MOST_BYTES).decode("utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise BadUsage(f"{origin} {path}: {why}: expected a file with a host a line", hint=f"ls -l {path}") from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start].count(b"\n")
        raise BadUsage(f"{path}, line {before + 1}: expected UTF-8 text", hint=f"cat -A {path} | head") from None
    hint = f"{os.environ.get('EDITOR') or 'vi'} {path}"
    found: list[tuple[str, ListedHost]] = []
    wrong: list[str] = []
    for line, words in _lines(text):
        try:
            found.append((f"line {line}", _entry(words)))
        except ValueError as problem:
            wrong.append(f"{path}, line {line}: {_shown(words)}: {problem}")
    if wrong:
        more = f"\n  and {len(wrong) - _MOST_WRONG} further lines" if len(wrong) > _MOST_WRONG else ""
        raise BadUsage("\n  ".join(wrong[:_MOST_WRONG]) + more, hint=hint)
    if not found:
        raise BadUsage(f"{origin} {path}: it lists no host: {EXPECTED} on a line", hint=hint)
    return _each_once(found, str(path), hint)


_MOST_WRONG = 10


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].strip():
            yield number, words


def _entry(text: str) -> ListedHost:
    """Parse one host. Raises ValueError with a message that names the expected form."""
    host, *options = text.replace(" =", "=").replace("= ", "=").split()
    slots: int | None = None
    bare, colon, number = host.rpartition(":")
    if host.startswith("["):
        inner, bracket, rest = host[1:].partition("]")
        if not bracket or not _is_address(inner) or (rest and not rest.startswith(":")):
            raise ValueError(f"{EXPECTED}; IPv6 as [fd00::2] or [fd00::2]:4")
        host = inner
        slots = _slots(rest[1:]) if rest else None
    elif colon and not _is_address(host):
        host, slots = bare, _slots(number)
    if not _is_address(host) and not _NAME.fullmatch(host):
        raise ValueError(f"{EXPECTED}: a host's name has letters, digits, `.`, `-` and `_`")
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in ("slots", "max_slots", "max-slots"):
            raise ValueError(f"`{_shown(option)}`: {EXPECTED}")
        many = _slots(value)
        if key == "slots":
            if slots is not None and slots != many:
                raise ValueError(f"two numbers of slots, {slots} and {many}: expected one")
            slots = many
    return ListedHost(host=host, slots=slots)


def _slots(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= MOST_SLOTS):
        raise ValueError(f"slots `{_shown(text)}`: expected a number from 1 to {MOST_SLOTS}")
    return int(text)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _each_once(listed: list[tuple[str, ListedHost]], origin: str, hint: str) -> tuple[ListedHost, ...]:
    """Return the hosts unchanged. Raises `BadUsage` if a host is listed twice, or if there are too many."""
    if len(listed) > MOST_HOSTS:
        raise BadUsage(f"{origin}: {len(listed)} hosts: expected at most {MOST_HOSTS}", hint=hint)
    seen: dict[str, str] = {}
    for place, each in listed:
        if (first := seen.setdefault(each.host.lower(), place)) != place:
            raise BadUsage(
                f"{origin}, {place}: the host {each.host} is there twice (first: {first}): expected each host once, "
                "with the number of its workers behind it",
                hint=hint,
            )
    return tuple(each for _, each in listed)


def _shown(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
