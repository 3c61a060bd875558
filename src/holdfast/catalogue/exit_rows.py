"""The catalogue of exits: rows of data that map lines of a log to their meaning. The rows are in `exits/*.yaml`.

Each phrase has one row in one of the files. A file is a YAML list of rows:

```yaml
- phrase: AcceleratorOutOfMemory     # identity
  code: 226                          # final exit code, see the blocks below
  blame: workload                    # holdfast.model.exit_report.Blame
  rerun: never                       # holdfast.model.exit_report.Rerun
  what: the accelerator's memory could not hold what the program asked for
  reason: "{who}: the accelerator's memory is full"       # default; may use {fields}
  solution: "Use a smaller batch …"
  wordings:
    - id: torch-cuda-oom             # unique over all files
      pattern: 'CUDA out of memory\\. Tried to allocate (?P<asked>[\\d.]+ [KMGT]i?B)'
      reason: "{who}: asked for {asked}, {free} of {total} free on GPU {gpu}"
      samples: ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has …"]
```

**Patterns** are in re2's syntax and match one line at a time, without its prefixes (rank tags, timestamps, ANSI). `^`
and `$` match the ends of that bare line. Named groups become fields. Case matters unless the pattern starts with
`(?i)`. A pattern that can match the empty string is refused.

**Fields** that every reason and solution may use: `{who}` (`rank 3 on node7`, or `the program`), `{rank}`, `{node}`,
`{time}`, `{line}` (the matched line, cut), `{message}` (the exception's message), `{exception}` (its type),
`{signal}`, `{exit}`, `{source}`, and the named groups of the wording's pattern and of `fields`. If a reason or solution
of a wording uses an unknown field, the row's is used instead. A field may have a default for the case that it is
unknown: `{asked?an unknown amount}`.

**fields** (optional, on a row): further patterns with named groups, which are searched in the lines around a hit (the
block of its exception, and 10 lines before and after it): `fields: ['GPU (?P<gpu>\\d+) has a total capacity of
(?P<total>[\\d.]+ \\w+)']`.

**explains**, **implies**, **quotes** (optional, on a row): lists of other phrases, which together are a partial order
without a circle. Where one log states several classes, the specific one counts: a class comes before those that it
`explains` (it brings them about) and `implies` (it is a narrower kind of them), and behind those that it `quotes` (its
lines only repeat theirs).

**strength** of a wording:
- `first_hand` (default): gives the cause. In a chain of exceptions the innermost first-hand one is the cause.
- `hint`: a general text (`Connection refused`, `Permission denied` without a path …) that counts only if there is no
  first-hand line.
- `consequence`: reports that something else was lost or gave up. It counts only if there is nothing better.
- `advice`: counts only together with its `beside`.

`beside` (optional, any strength): a pattern that must also match somewhere in the same worker's text.
`within` (optional, any strength): a pattern that must match in the chain of exceptions (with its frames) to which the
hit belongs; for any other line, anywhere in the same worker's text.
`unless` (optional, any strength): a pattern that must not match in the text in which `within` is searched.

**where** is the place of the line: `any` (default: an exception's line, or a line in the end of the log) | `exception`
(only the final line of a traceback) | `kernel` (a line of the kernel log, which takes precedence over the program's
own lines) | `scheduler` (a line of Slurm, the kubelet, a container engine or another scheduler, with the same
precedence).

**blame**, **rerun**, **solution**, **reason** on a wording override the row's for this wording. The code is the
row's: one phrase has one code.

**samples**: lines or blocks for which the whole explainer must give this phrase; every wording has at least one.

Codes: `holdfast.catalogue.exit_codes` has the blocks, and refuses a row whose code is outside the block of its blame.

Loading: YAML is slow to parse, so the rows are stored as JSON with a key made from the files' content: beside the rows
(`exits/rows.json`, written when a wheel is built: `python -m holdfast.catalogue.exit_rows`), or else in the user's
cache directory. If neither can be read, the YAML is parsed each time, which is only slower.
"""

from __future__ import annotations

import enum
import functools
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.catalogue.pattern_atoms import atoms
from holdfast.model.exit_report import Blame, Rerun
from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_file
from holdfast.untrusted import MOST_BYTES, Malformed, convert, json_as, yaml_value

#: Version of the stored rows' format. It is part of the cache's key, and is increased when the rows' meaning changes.
FORMAT = 7


class Strength(enum.StrEnum):
    FIRST_HAND = "first_hand"
    HINT = "hint"
    CONSEQUENCE = "consequence"
    ADVICE = "advice"


class Where(enum.StrEnum):
    ANY = "any"
    EXCEPTION = "exception"
    KERNEL = "kernel"
    SCHEDULER = "scheduler"


class Wording(Noun, frozen=True, kw_only=True):
    """One pattern of log text by which a failure class (phrase) is recognised.

    The module's docstring explains each field.
    """

    id: str
    pattern: str
    reason: str = ""
    solution: str = ""
    strength: Strength = Strength.FIRST_HAND
    beside: str = ""
    within: str = ""
    unless: str = ""
    where: Where = Where.ANY
    blame: Blame | None = None
    rerun: Rerun | None = None
    #: Whether the row's author knows that the failure is transient. Decisions depend only on `rerun`.
    transient: bool | None = None
    samples: tuple[str, ...] = ()
    #: Strings of which each match contains one, computed from `pattern` when rows are stored (`pattern_atoms.py`).
    atoms: tuple[str, ...] | None = None


class ExitRow(Noun, frozen=True, kw_only=True):
    """One failure class (phrase): its meaning, its blame, whether to run again, and the wordings by which it is
    recognised.
    """

    phrase: str
    code: int
    blame: Blame
    rerun: Rerun
    what: str
    reason: str = ""
    solution: str = ""
    fields: tuple[str, ...] = ()
    #: Failure classes that this one brings about.
    explains: tuple[str, ...] = ()
    #: Broader failure classes of which this one is a narrower kind.
    implies: tuple[str, ...] = ()
    #: Failure classes whose statements this one's only repeat.
    quotes: tuple[str, ...] = ()
    wordings: tuple[Wording, ...] = ()


class Catalogue:
    """All rows, ordered by the names of their files."""

    def __init__(
        self,
        rows: Sequence[ExitRow],
        source: str = "built-in",
        *,
        first: frozenset[str] = frozenset(),
        further: Any = (),
    ) -> None:
        """Create a catalogue of these rows.

        source: origin of the rows, for messages.
        first: ids of patterns (wordings) that take precedence.
        further: rows in other schemas.
        """
        self.rows = tuple(rows)
        #: Ids of the user's own patterns (wordings). They take precedence over others that match the same line.
        self.first = first
        #: Rows in other schemas (`holdfast.explain.openpai_rows.PaiRow`), which are matched by other rules.
        self.further = tuple(further)
        self.source = source
        self.by_phrase = {row.phrase: row for row in self.rows}
        self.wordings: tuple[tuple[ExitRow, Wording], ...] = tuple((row, w) for row in self.rows for w in row.wordings)

    def knows(self, phrase: str) -> bool:
        """Return whether this catalogue, or the built-in one, has the failure class."""
        return bool(phrase) and (phrase in self.by_phrase or phrase in load().by_phrase)

    def comes_before(self, phrase: str, other: str) -> bool:
        """Return whether the class `phrase` counts if a log states it and the class `other`."""
        return other in self._followers.get(phrase, ())

    @functools.cached_property
    def _followers(self) -> dict[str, frozenset[str]]:
        """Each failure class → all classes that it comes before."""
        direct = followers(self.rows)
        found: dict[str, frozenset[str]] = {}
        for phrase in direct:
            reached: set[str] = set()
            left = list(direct[phrase])
            while left:
                if (each := left.pop()) not in reached:
                    reached.add(each)
                    left += direct.get(each, ())
            found[phrase] = frozenset(reached - {phrase})
        return found

    def row(self, phrase: str) -> ExitRow:
        """Return the row of a failure class. If this catalogue lacks it, return the built-in row."""
        if row := self.by_phrase.get(phrase) or load().by_phrase.get(phrase):
            return row
        return ExitRow(
            phrase=phrase,
            code=255,
            blame=Blame.UNKNOWN,
            rerun=Rerun.UNKNOWN,
            what="nothing recognised",
            solution="Read the last lines of the worker's log.",
        )

    def merged(self, others: Sequence[ExitRow], source: str, further: Any = ()) -> Catalogue:
        """Return a catalogue with the rows `others` added in front.

        If `others` has a row for a known failure class, its wordings come before the known wordings, and its other
        fields replace the known ones. `source`: the origin of the rows, for messages. `further`: rows in other schemas.
        """
        first = frozenset(wording.id for row in others for wording in row.wordings)
        mine = dict(self.by_phrase)
        front = []
        for row in others:
            own = stored(row)
            if old := mine.pop(row.phrase, None):
                own = msgspec.structs.replace(own, wordings=own.wordings + old.wordings)
            front.append(own)
        return Catalogue((*front, *mine.values()), source, first=first | self.first, further=further)


def followers(rows: Iterable[ExitRow]) -> dict[str, set[str]]:
    """Return each failure class → the classes before which its row, or theirs, places it."""
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row.phrase, set()).update((*row.explains, *row.implies))
        for quoted in row.quotes:
            found.setdefault(quoted, set()).add(row.phrase)
    return found


def circles(rows: Iterable[ExitRow]) -> list[tuple[str, ...]]:
    """Return the circles in the order of failure classes, each as the classes on it; [] if the order has none."""
    direct = followers(rows)
    found: list[tuple[str, ...]] = []
    over: set[str] = set()

    def visit(phrase: str, way: tuple[str, ...]) -> None:
        if phrase in way:
            found.append(way[way.index(phrase) :])
            return
        if phrase in over:
            return
        for other in sorted(direct.get(phrase, ())):
            visit(other, (*way, phrase))
        over.add(phrase)

    for phrase in sorted(direct):
        visit(phrase, ())
    return found


def rows_dir() -> Path:
    """Return the directory of the built-in rows."""
    return Path(__file__).parent / "exits"


def row_files() -> list[Path]:
    return sorted(rows_dir().glob("*.yaml"))


def parse_rows(text: str | bytes) -> list[ExitRow]:
    """Parse the rows of a YAML text. Raises `Malformed` if it is not a list of rows."""
    return convert(yaml_value(text) or [], list[ExitRow])


def read_rows(files: Iterable[Path] | None = None) -> list[ExitRow]:
    """Read all catalogue rows with their samples from YAML, for tests and lint."""
    return [row for file in (row_files() if files is None else files) for row in parse_rows(file.read_bytes())]


@functools.cache
def load() -> Catalogue:
    """Load the built-in catalogue, once per process. This takes a few milliseconds if the stored rows are current."""
    sources = [file.read_bytes() for file in row_files()]
    # An installed package has only the stored rows, without samples, because only tests need samples.
    key = _key(sources) if sources else ""
    for place in _stored_places(key):
        if rows := _read_stored(place, key):
            return Catalogue(rows)
    parsed = [stored(row) for source in sources for row in parse_rows(source)]
    _store(_stored_places(key)[-1], key, parsed)
    return Catalogue(parsed)


def _key(sources: Sequence[bytes]) -> str:
    """Return the cache key, which changes with the rows.

    The key does not protect against malice, because a user who can change the rows can also change the stored rows.
    """
    crc = 0
    for source in sources:
        crc = zlib.crc32(source, crc)
    return f"{FORMAT}-{sum(map(len, sources))}-{crc:08x}"


class _Stored(Noun, frozen=True, kw_only=True):
    key: str
    rows: tuple[ExitRow, ...]


def _stored_places(key: str) -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path(os.environ.get("HOME") or "/nonexistent") / ".cache")
    return [rows_dir() / "rows.json", Path(cache) / "holdfast" / f"exits-{key}.json"]


def _read_stored(place: Path, key: str) -> tuple[ExitRow, ...]:
    try:
        stored = json_as(read_file(place, MOST_BYTES), _Stored)
    except (OSError, Malformed):
        return ()
    return stored.rows if key in (stored.key, "") else ()


def stored(row: ExitRow) -> ExitRow:
    """Return the row in the form in which it is stored: without samples, and with the atoms of its patterns."""
    wordings = tuple(msgspec.structs.replace(w, samples=(), atoms=atoms(w.pattern)) for w in row.wordings)
    return msgspec.structs.replace(row, wordings=wordings)


def _store(place: Path, key: str, rows: Sequence[ExitRow]) -> None:
    import tempfile

    data = msgspec.json.encode(_Stored(key=key, rows=tuple(rows)))
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in place.parent.glob("exits-*.json"):
            old.unlink()
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(place)
    except OSError:
        return  # If the user's home is read-only, only the next load is slower.


def snapshot() -> bytes:
    """Return the contents for `exits/rows.json`, from the current rows."""
    sources = [file.read_bytes() for file in row_files()]
    rows = tuple(stored(row) for source in sources for row in parse_rows(source))
    return msgspec.json.encode(_Stored(key=_key(sources), rows=rows))


def write_snapshot() -> Path:
    """Write `exits/rows.json`.

    With this file an installed package loads fast for every user, from the first call on.
    """
    place = rows_dir() / "rows.json"
    place.write_bytes(snapshot())
    return place


if __name__ == "__main__":
    print(write_snapshot())
