"""A fast first pass over a log: finds the lines that may match the catalogue, and the patterns that each may match.

Each match of a pattern contains at least one of the pattern's atoms (words). The gate is one pattern that matches any
atom of the catalogue. It searches a block, and only the lines at which it stops are matched with the exact patterns.

If the gate stops too often (a log full of words that failures contain), the rest of the block is matched line by line.
Lines that differ only in digits share one result. Either way the result is, for each pattern (wording), the first lines
of the block that match it.

Measured on the built-in rows and a training log, the gate is nearly as fast as a search for two words. A set of all
exact patterns has a quarter of that speed, and a set of widened patterns half of it.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import re2

from holdfast.catalogue.exit_rows import Wording
from holdfast.catalogue.pattern_atoms import atoms, ordinary

#: Memory limit of an automaton, in bytes. re2 builds the automaton while it searches, and drops it when it is full.
SET_MEMORY = 64 << 20
#: If the gate (one pattern for all atoms) stops this often in one block, the rest of the block is read line by
#: line. At most this many new line shapes are then stored.
MOST_STOPS = 32
#: A block that matches more catalogue patterns than this counts as crowded: its lines are then searched one by one, and
#: not with the set of all patterns.
_FEW = 24
_PIECE_BYTES = 8 << 10
#: If more lines than this may match a catalogue pattern, search the whole text for it instead of each line.
_SCANNED = 64
MOST_COUNTED = 4096
#: If the gate (one pattern for all atoms) stops this often at a word in one block, the word counts as common in this
#: log.
USUAL = 8
#: The gate is rebuilt at most this often, each time without one more word that is common in the log.
MOST_LEARNT = 8
KNOWN_MOST = 4096
#: Maximum length in characters of a line whose shape (the line with 0 for each digit) is cached. At most `KNOWN_MOST`
#: shapes are cached.
KNOWN_LINE = 512

_ANCHORS = re.compile(r"^(\(\?[a-z]+\))?\^|(?<!\\)\$$")
_GAP = re.compile(r"(\[\^\\n\]|(?<!\\)\.)\{\d+,\d*\}\??")
_NAMED = re.compile(r"\(\?P<\w+>")
_DIGITS = {ord(digit): "0" for digit in "123456789"}
_DIGIT_BYTES = bytes.maketrans(b"123456789", b"0" * 9)
_BLIND = re.compile(r"\{\d*,?\d*\}|\(\?P<\w+>|0-9|\\x[0-9a-fA-F]{2}")


def options() -> Any:
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.max_mem = SET_MEMORY
    return chosen


def unanchored(pattern: str) -> str:
    """Remove `^` and `$` at the ends of a pattern, because a line in a raw block still has its prefixes."""
    return _ANCHORS.sub(lambda m: m[1] or "", pattern)


def widened(pattern: str) -> str:
    """Return a pattern that matches at least wherever the exact pattern matches.

    A gap of limited length, such as `.{0,80}`, becomes unlimited, because limited gaps make an automaton too large.
    """
    wide = _GAP.sub(r"\1*", unanchored(pattern))
    return f"(?m:{_NAMED.sub('(?:', wide)})"


def shape(text: str) -> str:
    """Return the shape of a line: the line with 0 for each digit. Thousands of lines of a log have the same shape."""
    return text.translate(_DIGITS)


def is_blind(pattern: str) -> bool:
    """Return whether the pattern treats all digits alike, so that lines that differ only in digits match alike."""
    return not any(map(str.isdigit, _BLIND.sub("", pattern)))


class Prefilter:
    """Finds the catalogue patterns (`Wording`) that a line or a block may match. A wording is identified by its index.

    wordings: the wordings to find.
    compiled: returns the compiled pattern for text.
    """

    def __init__(self, wordings: Sequence[Wording], compiled: Callable[[str], Any]) -> None:
        self._wordings = wordings
        self._compiled = compiled
        self._grams: dict[str, list[tuple[str, int]]] | None = None
        self._always: list[int] = []
        self._known: dict[str, tuple[int, ...]] = {}
        #: Shape of a raw line → the indices of catalogue patterns (wordings) that the line may match.
        self._judged: dict[bytes, tuple[int, ...]] = {}
        self._exacts: dict[int, tuple[Any, bool]] = {}
        self._widened: dict[int, Any] = {}
        self._numbered: dict[int, tuple[bytes, ...]] = {}
        #: Whether the last block at which the gate stopped often also matched many catalogue patterns.
        self._crowded = False
        self._gate: Any = None
        self._usual: set[str] = set()
        self._learnt = 0
        self._words: set[str] = set()
        self._all: tuple[Any, list[int]] | None = None

    def likely(self, text: str) -> tuple[int, ...]:
        """Return the indices of catalogue patterns that the line may match, in order: patterns with an atom in the
        line, and patterns that have no atom."""
        key = shape(text.lower())
        if (known := self._known.get(key)) is not None:
            return known
        grams = self._grams if self._grams is not None else self._index()
        found = {
            index
            for gram in {key[at : at + 3] for at in range(len(key) - 2)} & grams.keys()
            for atom, index in grams[gram]
            if atom in key
        }
        answer = tuple(sorted(found.union(self._always)))
        if len(key) <= KNOWN_LINE:
            if len(self._known) >= KNOWN_MOST:
                self._known.clear()
            self._known[key] = answer
        return answer

    def _index(self) -> dict[str, list[tuple[str, int]]]:
        """Index the atoms by the three characters in their middle, with 0 for each digit."""
        grams: dict[str, list[tuple[str, int]]] = {}
        for index, wording in enumerate(self._wordings):
            if not wording.atoms:
                self._always.append(index)
            for atom in wording.atoms or ():
                plain = shape(atom)
                middle = len(plain) // 2
                grams.setdefault(plain[middle - 1 : middle + 2], []).append((plain, index))
        self._grams = grams
        return grams

    def places(self, block: bytes, most: int) -> list[tuple[int, int]]:
        """Return sorted pairs (offset, index of a catalogue pattern): for each pattern the first `most` lines of the
        block that match it."""
        block = _valid(block)
        found: list[tuple[int, int]] = []
        left = Counter[int]()
        gate = self._gate or self._open_gate()
        at = stops = vain = 0
        while (match := gate.search(block, at)) is not None:
            begin = block.rfind(b"\n", 0, match.start()) + 1
            end = block.find(b"\n", match.start())
            end = len(block) if end < 0 else end
            hits = self._judge(block[begin:end], left, most)
            for index, place in hits or ():
                left[index] += 1
                found.append((begin + place, index))
            vain += hits is None
            stops += 1
            at = end + 1
            if at >= len(block):
                break
            if stops >= MOST_STOPS:
                found += self._rest(block, at, most, left)
                break
        if vain >= MOST_STOPS // 2:
            self._learn(block)
        return sorted(found)

    def _judge(self, line: bytes, left: Counter[int], most: int) -> list[tuple[int, int]] | None:
        """Match a line exactly.

        Return (index of a catalogue pattern, offset in the line) for each matching pattern that fewer than `most` lines
        matched so far. None: no pattern matches, so the gate (one pattern for all atoms) stopped for nothing. `left`:
        index of a pattern → number of lines that matched so far.
        """
        text = line.decode()
        key = line.translate(_DIGIT_BYTES)
        known = self._judged.get(key)
        hits: list[tuple[int, int]] | None = None
        kept = []
        for index in self.likely(text) if known is None else known:
            pattern, blind = self._exact(index)
            if left[index] >= most:
                hits = hits or []
            elif hit := _offset(pattern, line):
                hits = [*(hits or ()), (index, hit - 1)]
            elif blind:
                continue
            kept.append(index)
        if known is None and len(key) <= KNOWN_LINE:
            if len(self._judged) >= KNOWN_MOST:
                self._judged.clear()
            self._judged[key] = tuple(kept)
        return hits

    def _exact(self, index: int) -> tuple[Any, bool]:
        """Return a catalogue pattern in its form for raw lines, and whether it treats all digits alike."""
        if (known := self._exacts.get(index)) is None:
            pattern = unanchored(self._wordings[index].pattern)
            known = self._exacts[index] = (self._compiled(pattern), is_blind(pattern))
        return known

    def _rest(self, block: bytes, at: int, most: int, left: Counter[int]) -> list[tuple[int, int]]:
        """Return pairs (offset, index of a catalogue pattern) for the block from `at` on, for patterns that fewer than
        `most` lines matched so far. `left`: index of a pattern → number of lines that matched so far.
        """
        rest = block[at:]
        crowd, told = (True, set[int]()) if self._crowded else self._by_set(rest)
        # In a crowded block (with matches of many patterns), `_by_shape` also returns the lines that may match each
        # pattern.
        likely = self._by_shape(rest, left, most) if crowd else dict.fromkeys(told)
        low = b""
        found = []
        for index, lines in likely.items():
            if left[index] >= most:
                continue
            if words := self._numbered_words(index):
                low = low or rest.lower()
                if not any(word in low for word in words):
                    continue
            for start, end in self._spans(rest, index) if lines is None or len(lines) > _SCANNED else lines:
                if hit := _offset(self._exact(index)[0], rest[start:end]):
                    left[index] += 1
                    found.append((at + start + hit - 1, index))
                    if left[index] >= most:
                        break
        self._crowded = sum(1 for times in left.values() if times) > _FEW
        return found

    def _spans(self, text: bytes, index: int) -> Iterator[tuple[int, int]]:
        """Yield the beginning and the end of each line in the text that may match the catalogue pattern with this
        index."""
        wide = self._wide(index)
        begin = 0
        while begin < len(text) and (match := wide.search(text, begin)) is not None:
            start = text.rfind(b"\n", 0, match.start()) + 1
            end = text.find(b"\n", match.start())
            end = len(text) if end < 0 else end
            yield start, end
            begin = end + 1

    def _by_set(self, text: bytes) -> tuple[bool, set[int]]:
        """Search the text with the set of all patterns.

        Return whether the text is crowded (it matches more than `_FEW` patterns), and the catalogue patterns that it
        may match. Each further pattern that the set finds makes it slower, so a first piece of the text decides whether
        to use it for the rest.
        """
        chosen, numbers = self._all if self._all is not None else self._set()
        found: set[int] = set()
        if not numbers:
            return False, found
        cut = text.find(b"\n", min(_PIECE_BYTES, len(text) - 1)) + 1 or len(text)
        found.update(numbers[number] for number in chosen.Match(text[:cut]) or ())
        if len(found) > _FEW:
            return True, found
        found.update(numbers[number] for number in chosen.Match(text[cut:]) or ())
        return False, found

    def _by_shape(self, text: bytes, left: Counter[int], most: int) -> dict[int, list[tuple[int, int]]]:
        """Return the catalogue patterns that the text may match, each with its lines.

        Lines of the same shape share one result.
        """
        groups: dict[int, tuple[tuple[int, ...], list[tuple[int, int]]]] = {}
        get = self._judged.get
        begin = learnt = 0
        stop = -1
        for line, key in zip(text.split(b"\n"), text.translate(_DIGIT_BYTES).split(b"\n"), strict=True):
            end = begin + len(line)
            kept = get(key)
            if kept is None and line:
                # Also store a line shape at which the gate does not stop, because a look-up is faster than the gate.
                learn = learnt < MOST_STOPS and len(line) <= KNOWN_LINE
                if not learn and stop < begin:
                    match = self._gate.search(text, begin)
                    stop = match.start() if match is not None else len(text)
                if learn or stop <= end:
                    learnt += 1
                    kept = tuple(index for index, _ in self._judge(line, left, most) or ())
            if kept:
                # Lines of one shape share one tuple, so the tuple's identity is enough as a key.
                if (group := groups.get(id(kept))) is None:
                    groups[id(kept)] = (kept, [(begin, end)])
                else:
                    group[1].append((begin, end))
            begin = end + 1
        likely: dict[int, list[tuple[int, int]]] = {}
        for kept, lines in groups.values():
            for index in kept:
                if left[index] < most and len(known := likely.setdefault(index, [])) <= _SCANNED:
                    known += lines
        for lines in likely.values():
            lines.sort()
        return likely

    def _numbered_words(self, index: int) -> tuple[bytes, ...]:
        """Return the atoms of a catalogue pattern if each of them has a digit; else empty.

        If the result is not empty, a text that matches the pattern must contain one of these atoms exactly.
        """
        if (known := self._numbered.get(index)) is None:
            words = self._wordings[index].atoms or ()
            numbered = bool(words) and all(any(map(str.isdigit, word)) for word in words)
            known = self._numbered[index] = tuple(word.encode() for word in words) if numbered else ()
        return known

    def _set(self) -> tuple[Any, list[int]]:
        chosen = re2.Set.SearchSet(options())
        numbers = []
        for index, wording in enumerate(self._wordings):
            try:
                chosen.Add(widened(wording.pattern))
            except re2.error:
                continue
            numbers.append(index)
        if numbers:
            chosen.Compile()
        self._all = (chosen, numbers)
        return self._all

    def _wide(self, index: int) -> Any:
        if (known := self._widened.get(index)) is None:
            known = self._widened[index] = _bytes(widened(self._wordings[index].pattern)) or re2.compile(_NEVER)
        return known

    def _open_gate(self) -> Any:
        """Compile the gate: one alternation of atoms (for catalogue patterns with rare atoms) and of widened patterns
        (for the others)."""
        words: set[str] = set()
        whole: list[str] = []
        for wording in self._wordings:
            found = wording.atoms or ()
            if not self._usual.isdisjoint(found):
                found = atoms(wording.pattern, self._usual)
            if found and not any(ordinary(atom) or atom in self._usual for atom in found):
                words.update(found)
            else:
                whole.append(widened(wording.pattern))
        # A word that begins with another listed word is redundant.
        least: list[str] = []
        for word in sorted(words):
            if not (least and word.startswith(least[-1])):
                least.append(word)
        parts = [f"(?i:{'|'.join(map(re.escape, least))})"] if least else []
        self._gate = _bytes("|".join([*parts, *whole]) or _NEVER)
        if self._gate is None:
            # re2 refuses one of the patterns, so leave it out. `Matcher.compiled` reports it.
            usable = [part for part in whole if _bytes(part) is not None]
            self._gate = _bytes("|".join([*parts, *usable]) or _NEVER)
        self._words = set(least)
        return self._gate

    def _learn(self, block: bytes) -> None:
        """Record the words that are common in this log.

        The next gate has the whole patterns instead of these words.
        """
        if self._learnt == MOST_LEARNT:
            return
        stops = Counter(
            match[0].lower().decode() for match in itertools.islice(self._gate.finditer(block), MOST_COUNTED)
        )
        usual = {word for word, times in stops.items() if times >= USUAL and word in self._words}
        if usual:
            self._learnt += 1
            self._usual |= usual
            self._gate = None


_NEVER = r"[^\s\S]"


def _bytes(pattern: str) -> Any:
    """Compile a pattern for bytes; None if re2 refuses it."""
    try:
        return re2.compile(pattern.encode(), options())
    except re2.error:
        return None


def _offset(pattern: Any, line: bytes) -> int:
    """Return the offset in bytes at which the pattern matches the line, plus 1; 0: no match."""
    text = line.decode()
    match = pattern.search(text)
    if match is None:
        return 0
    return 1 + (match.start() if text.isascii() else len(text[: match.start()].encode()))


def _valid(block: bytes) -> bytes:
    """Replace every byte that is not UTF-8 by a question mark, because re2 cannot match across such a byte.

    The length stays.
    """
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError:
        codecs.register_error("holdfast-marks", _marks)
        return block.decode("utf-8", "holdfast-marks").encode()
    return block


def _marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)  # Python calls this handler only when decoding fails
    return "?" * (error.end - error.start), error.end
