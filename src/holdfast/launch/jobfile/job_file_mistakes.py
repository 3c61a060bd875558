"""Collects all mistakes of a job file, each with its place in the file and the expected value."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.untrusted import Malformed, convert

#: Limit on the number of mistakes that the message lists. It only counts the others.
MOST_SHOWN = 12

T = TypeVar("T", bound=msgspec.Struct)


class Mistakes:
    """Collects mistakes, so that the user can correct all of them at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[tuple[str, str]] = []
        #: Lists of known keys that a mistake's message already contains. Each list is printed only once.
        self._listed: set[tuple[str, ...]] = set()

    def __len__(self) -> int:
        return len(self._found)

    def add(self, where: str, problem: str) -> None:
        """Add a mistake. `where`: the path inside the file, such as `roles.worker.count`; "" for the file itself.
        `problem`: the mistake, and the expected value.
        """
        self._found.append((where, problem))

    def end(self) -> None:
        """If there is any mistake, raise `BadUsage`."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise wrong(self._path, *self._found[0])
        lines = [f"`{place}`: {said}" if place else said for place, said in self._found[:MOST_SHOWN]]
        if more := len(self._found) - len(lines):
            lines.append(f"and {more} more")
        raise BadUsage(
            f"job file {self._path} has {len(self._found)} mistakes:\n  - " + "\n  - ".join(lines),
            hint=_edit(self._path),
        )

    def unknown(self, where: str, data: Mapping[Any, Any], known: list[str]) -> set[str]:
        """Add a mistake for every unknown key of the section `where`. It is probably a typing error, so it must not be
        ignored.

        Return the known keys that were probably meant.
        """
        nearest: set[str] = set()
        for key in data:
            if key not in known:
                import difflib  # imported late, because only a mistake needs it

                near = difflib.get_close_matches(str(key), known, n=1)
                nearest.update(near)
                said = f"there is no key `{str(key)[:60]}`" + (f"; did you mean `{near[0]}`?" if near else "")
                if tuple(known) not in self._listed:
                    self._listed.add(tuple(known))
                    said += f"{'' if near else ';'} expected some of: {', '.join(known)}"
                self.add(where, said)
        return nearest

    def read(self, where: str, data: Any, kind: type[T], example: str) -> T | None:
        """Convert a mapping of the file, at the path `where`, to the struct `kind`. If it is invalid, add the mistakes
        and return None.

        Each key is converted separately, so that every key with a wrong type is reported. `example`: an example of such
        a mapping, for the message.
        """
        if not isinstance(data, dict):
            self.add(where, f"expected a mapping {example}, got {kind_of(data)}")
            return None
        before = len(self)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        meant = self.unknown(where, data, list(fields))
        found: dict[str, Any] = {}
        for key, field in fields.items():
            if key in data:
                try:
                    found[field.name] = convert(data[key], field.type)
                except Malformed as error:
                    self.add(*_place_of(error, f"{where}.{key}"))
            elif field.required and key not in meant:
                self.add(where, f"the key `{key}` is missing")
        return kind(**found) if len(self) == before else None

    def seconds(self, where: str, value: float | str, *, least: float = 0.0) -> float:
        """Return the duration at the path `where` in seconds; 0, with a mistake added, if it is no duration of `least`
        seconds or more.
        """
        found = amounts.seconds(value)
        if found is not None and found >= least:
            return found
        self.add(where, f"expected {amounts.DURATION}, {'more than 0' if least else '0 or more'}, got {value!r}")
        return 0.0

    def entries(self, where: str, data: Any, example: str) -> Iterator[tuple[str, Any]]:
        """Yield the pairs of a mapping (at the path `where`) whose keys are names that the user chooses. `example`: an
        example of such a mapping, for messages.
        """
        if data is None:
            return
        if not isinstance(data, dict):
            self.add(where, f"expected a mapping {example}, got {kind_of(data)}")
            return
        for name, value in data.items():
            if isinstance(name, str):
                yield name, value
            else:
                self.add(where, f"expected a name in quotes, got {name!r}")


def wrong(path: Path, where: str, problem: str) -> BadUsage:
    """Return the error for one mistake. It names the file, the path inside the file (`where`), and the problem."""
    place = f": `{where}`" if where else ""
    return BadUsage(f"job file {path}{place}: {problem}", hint=_edit(path))


def _edit(path: Path, line: int | None = None) -> str:
    return f"{os.environ.get('EDITOR') or 'vi'} {f'+{line} ' if line is not None else ''}{path}"


def malformed(path: Path, error: Malformed) -> BadUsage:
    """Return the error for a job file, or a section of it, that is not valid YAML."""
    where = f", line {error.line}, column {error.column}" if error.line is not None else ""
    return BadUsage(f"job file {path}{where}: {error}{error.excerpt}", hint=_edit(path, error.line))


def kind_of(value: Any) -> str:
    """Return the type of a value in words."""
    words = {type(None): "nothing", list: "a list", dict: "a mapping", str: "text", int: "a number"}
    return words.get(type(value), type(value).__name__)


def no_such(what: str, name: str, known: Collection[str]) -> str:
    """Return the message for an unknown name. `what`: the kind of thing, such as `deployment`. The message suggests the
    nearest known name.
    """
    import difflib  # imported late, because only a mistake needs it

    near = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"there is no {what} {name!r}; expected one of: {', '.join(known) or 'none is there'}{meant}"


def _place_of(error: Malformed, where: str) -> tuple[str, str]:
    """Split msgspec's error message into the path of the wrong value (below `where`) and the problem."""
    problem, _, inside = str(error).partition(" - at `$")
    inside = inside.rstrip("`").replace("[...]", "")
    if missing := re.search(r"missing required field `(.*?)`", problem):
        problem = f"the key `{missing[1]}` is missing"
    else:
        problem = problem[0].lower() + problem[1:]
        if problem.startswith("expected `str`, got") and problem.endswith(("`int`", "`float`", "`bool`")):
            problem += "; a number or true and false as text stands in quotes"
    return (where + inside).strip("."), problem
