"""Finds a worker's progress in its output: the last step, epoch or iteration number.

It reads the end of the logs once, at the end of an attempt. For each name (such as `step`) it returns the last number,
and whether lower ones came before it. Only a rising series is progress; a single number at the start of an attempt is
none. It ignores lines about validation, resuming, downloads or configuration, and numbers without a name.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.lazy_pattern import Lazy
from holdfast.model.progress_facts import Count

#: This many characters at the end of a stream are parsed first. They usually suffice, and parsing few is quick, while a
#: restart waits for the result.
LAST_CHARS = 1 << 10
#: This many characters are parsed at a time if the first ones do not suffice.
CHUNK_CHARS = 16 << 10
#: At most this many chunks are parsed, if the end of a stream has no step number but a long traceback or many warnings.
MOST_CHUNKS = 6
#: If the parsed chunks have no step number, a word of `_HINTS` is searched in this many earlier characters.
FAR_CHARS = 1 << 20
MOST_EPOCH = 10**6
#: A larger number is a time or a size, not a step.
MOST_STEP = 10**9

_ANSI = Lazy(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: A line with a step, epoch or iteration number also contains one of these texts, in lower case.
_HINTS = ("epoch", "step", "iter", "it [", "%|", "update", "batch", "round", "episode", "━", "==>", "=>.", "train: ")
_UNIT = r"(?!\.?\d|[ \t]*(?:ms|us|ns|s|sec|secs|seconds|min|minutes|h|hours)\b|[ \t]*%|:\d)"
_EPOCH = Lazy(
    r"(?i)(?<![\w./-])(?:(?:train(?:ing)?|current|cur|global|trainer)[ _/])?epoch(?:\(train\))?"
    r"['\"]?\s*[:=#]?\s*['\"]?[\[(]?\s*(?P<epoch>\d{1,7}(?:\.\d+)?)" + _UNIT + r"(?:\s*(?:/|of)\s*\d+)?['\"]?[\])]?"
)
_TIMM = Lazy(r"^\W*Train: (?P<epoch>\d+) \[\s*(?P<at>\d+)/(?P<total>\d+)")
#: Matches an epoch before a progress bar without the word `epoch`, as of torchtune (`2|130|Loss: 0.5: 12%|`) or
#: Ultralytics (`2/100 2.4G`).
_EPOCH_FIRST = (
    Lazy(r"^\s*(?P<epoch>\d{1,6})\|\d+\|Loss:"),
    Lazy(r"^\s+(?P<epoch>\d{1,6})/\d+\s+\d+(?:\.\d+)?G\s"),
)
#: Matches a position within an epoch, directly after the epoch's number.
_INSIDE = Lazy(r"\s*[:|,-]?\s*(?:\d{1,3}%\s*\|[^|]{0,200}\|\s*|[━╸╺ ]{3,}|[\[(]\s*)?(?P<at>\d+)\s*/\s*(?P<total>\d+)")
_STEP = Lazy(
    r"(?i)(?<![\w./-])(?:trainer/|train/)?(?P<what>(?:(?:global|train|training|optim|optimizer)[ _])?"
    r"(?:step|iteration|iter|update|batch|round|episode)|num_updates|total_timesteps|it(?=\s*[:=]))"
    r"(?:\(train\))?['\"]?\s*[:=#|]?\s*['\"]?[\[(]?\s*(?P<at>\d[\d,]*)" + _UNIT
)
_BARS = (
    Lazy(r"\d{1,3}%\s*\|[^|]{0,200}\|\s*(?P<at>\d+)/(?P<total>\d+)(?=\s|$)"),
    Lazy(r"^\s*(?P<at>\d+)/(?P<total>\d+)\s+(?:\[[=>.]+\]|[━╸╺]{3,})"),
    Lazy(r"[━╸╺]{3,}\s+(?P<at>\d+)/(?P<total>\d+)(?=\s|$)"),
    Lazy(r"(?:^|\s)(?P<at>\d+)it (?P<total>)\[\d"),
)
#: Matches words before a number that is no count of training steps, or is only the starting point.
_NOT_WORK = Lazy(
    r"(?i)(?<![a-z/])(?:val(?:id(?:ation|ating)?)?|eval(?:uat\w*)?|test(?:ing)?|sanity|predict\w*|infer\w*"
    r"|resum\w*|restor\w*|load\w*|skip\w*)(?![\w=]|\.py|/)"
)
_CONFIGURES = Lazy(
    r"(?i)(?:\b|_)(?:max|maximum|num|number of|n|total|last|best|start|first|initial|target|final|stop|every|per|warmup"
    r"|until|from|to|save|log|next)[\s_:=]*$"
)
#: Matches labels of progress bars that count no training steps.
_SIDE_WORK = Lazy(
    r"(?i)(?<![a-z])(?:download|upload|fetch|sav|map|filter|token|generat|resolv|extract|writ|convert|process|cach|collat"
    r"|shard|compil|pars|copy|copi|read|build|creat|running|prepar|import|index|sort|hash|scan|shuffl|pack|pad)"
)


def counts_in(*streams: str) -> tuple[Count, ...]:
    """Return the last step, epoch and iteration numbers (counts) at the ends of a worker's streams; empty if there are
    none.
    """
    found: dict[str, Count] = {}
    for text in streams:
        for count in _of_stream(text):
            # If both streams have a count of this name, prefer a rising one, then the higher one, which is newer.
            known = found.get(count.name)
            if known is None or (not count.alone, _place(count)) > (not known.alone, _place(known)):
                found[count.name] = count
    return _one_bar(found)


def counts_of_lines(text: str, epoch: float | None) -> Iterator[Count]:
    """Yield every step, epoch and iteration number (count) in the text, in order. `epoch`: the epoch at the text's
    beginning.
    """
    return _every_count(text, epoch)


def _of_stream(text: str) -> list[Count]:
    end = len(text)
    for _ in range(MOST_CHUNKS):
        end = _last_hint(text, end)
        if end < 0:
            return []
        begin = _line_start(text, end - LAST_CHARS)
        counts = _of_chunk(text[begin:end], None)
        if all(name.startswith("bar of ") for name in counts):
            # The text has no step number, or only those of progress bars. Parse more of it to choose the right bar.
            begin = _line_start(text, end - CHUNK_CHARS)
            counts = _of_chunk(text[begin:end], None)
        if counts:
            if "epoch" not in counts and (before := _epoch_before(text, begin)) is not None:
                counts = _of_chunk(text[begin:end], before)
                counts.setdefault("epoch", Count(name="epoch", value=before, alone=True))
            return _as_series(counts, text, begin)
        end = begin
    return []


def _as_series(counts: dict[str, Count], text: str, begin: int) -> list[Count]:
    """Search the text before `begin` for lower counts of the same names. Return the counts, marked as rising if there
    are any.

    An epoch also counts as rising if a count within it does, because a program may print one line for each epoch.
    """
    for place in _earlier(text, begin):
        if not any(count.alone for count in counts.values()):
            break
        start = _line_start(text, place - CHUNK_CHARS)
        before = _every_count(text[start:place], _epoch_before(text, start))
        for name, count in counts.items():
            if count.alone and any(_lower(other, count) for other in before if other.name == name):
                counts[name] = replace(count, alone=False)
    rising = {count.epoch for count in counts.values() if not count.alone}
    if "epoch" in counts and counts["epoch"].value in rising:
        counts["epoch"] = replace(counts["epoch"], alone=False)
    return list(counts.values())


def _earlier(text: str, begin: int) -> Iterator[int]:
    """Yield the ends of a few earlier chunks that may contain step numbers: the nearest first, the log's beginning
    last.
    """
    end = begin
    for _ in range(MOST_CHUNKS):
        end = _last_hint(text, end) if end > 0 else -1
        if end < 0:
            return
        yield end
        end = _line_start(text, end - CHUNK_CHARS)
    if end > 0:
        yield min(end, CHUNK_CHARS)


def _place(count: Count) -> tuple[float, float]:
    return (count.epoch or 0, count.value)


def _lower(one: Count, other: Count) -> bool:
    """Return whether the first step number is lower than the second; False if only one of the two has an epoch."""
    return (one.epoch is None) == (other.epoch is None) and _place(one) < _place(other)


def _line_start(text: str, place: int) -> int:
    """Return the beginning of the line at this position, or the position itself if the line is very long."""
    if place <= 0:
        return 0
    low = max(0, place - CHUNK_CHARS)
    start = max(text.rfind("\n", low, place), text.rfind("\r", low, place)) + 1
    return start or (0 if low == 0 else place)


def _last_hint(text: str, end: int) -> int:
    """Return the end of the last line before `end` that may contain a step or epoch number; -1: there is none."""
    lower = text[max(0, end - CHUNK_CHARS) : end].lower()
    base = max(0, end - CHUNK_CHARS)
    last = max(lower.rfind(hint) for hint in _HINTS)
    if last < 0 and base > 0:
        lower = text[max(0, end - FAR_CHARS) : end].lower()
        base = max(0, end - FAR_CHARS)
        last = max(lower.rfind(hint) for hint in _HINTS)
    if last < 0:
        return -1
    line_end = text.find("\n", base + last)
    return end if line_end < 0 else min(end, line_end + 1)


def _epoch_before(text: str, end: int) -> float | None:
    """Return the last epoch in the `FAR_CHARS` before this position, or None if there is none."""
    low = text[max(0, end - FAR_CHARS) : end].lower()
    place = len(low)
    for _ in range(MOST_CHUNKS):
        place = low.rfind("epoch", 0, place)
        if place < 0:
            return None
        begin = max(low.rfind("\n", 0, place), low.rfind("\r", 0, place)) + 1
        stop = min((at for at in (low.find("\n", place), low.find("\r", place)) if at >= 0), default=len(low))
        told = _of_chunk(low[begin:stop], None).get("epoch") if stop - begin <= CHUNK_CHARS else None
        if told is not None:
            return told.value
        place = begin
    return None


def _of_chunk(text: str, epoch: float | None) -> dict[str, Count]:
    """Return the last step, epoch or iteration number (count) of each name in the text. A count is `alone` if no lower
    one of its name comes before it.

    `epoch`: the epoch at the text's beginning.
    """
    found: dict[str, Count] = {}
    for count in _every_count(text, epoch):
        known = found.get(count.name)
        rises = known is not None and (not known.alone or _lower(known, count))
        found[count.name] = count if rises else replace(count, alone=True)
    return found


def _every_count(text: str, epoch: float | None) -> Iterator[Count]:
    for line in _lines(text):
        for count in _of_line(line, epoch):
            yield count
            if count.name == "epoch":
                epoch = count.value


def _lines(text: str) -> Iterator[str]:
    for raw in text.replace("\r", "\n").split("\n"):
        if not any(digit in raw for digit in "0123456789"):
            continue
        line = raw[:2000]
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        lower = line.lower()
        if any(hint in lower for hint in _HINTS):
            yield line


def _of_line(line: str, epoch: float | None) -> Iterator[Count]:
    """Yield the step, epoch and iteration numbers (counts) of one line, the epoch first."""
    inside = None
    if timm := _TIMM.match(line):
        epoch, inside = float(timm["epoch"]), timm
        yield Count(name="epoch", value=epoch)
    elif bare := next((found for pattern in _EPOCH_FIRST if (found := pattern.match(line))), None):
        epoch = float(bare["epoch"])
        yield Count(name="epoch", value=epoch)
    else:
        for told in _EPOCH.finditer(line):
            value = float(told["epoch"])
            if value < MOST_EPOCH and _is_work(line[: told.start()]):
                epoch, inside = value, _INSIDE.match(line, told.end())
                yield Count(name="epoch", value=value)
                break
    for told in _STEP.finditer(line):
        number = int(told["at"].replace(",", ""))
        if number < MOST_STEP and _is_work(line[: told.start()]):
            name = told["what"].lower().replace(" ", "_")
            yield Count(name=name, value=float(number), epoch=epoch)
    if inside is not None:
        yield Count(name=f"batch of {inside['total']}", value=float(inside["at"]), epoch=epoch)
        return
    for bar in _BARS:
        if told_bar := bar.compiled.search(line):
            label = line[: told_bar.start()]
            if _is_work(label) and not _SIDE_WORK.search(label):
                total = f" of {told_bar['total']}" if told_bar["total"] else ""
                yield Count(name=f"bar{total}", value=float(told_bar["at"]), epoch=epoch)
            return


def _is_work(label: str) -> bool:
    """Return whether a number that follows this text (`label`) counts training steps."""
    near = label[-60:]
    return not _NOT_WORK.search(near) and not _CONFIGURES.search(near)


def _one_bar(found: dict[str, Count]) -> tuple[Count, ...]:
    """Of several progress bars keep the longest, because the others count repeated parts of it. Return the remaining
    counts.
    """
    bars = [name for name in found if name.startswith("bar of ")]
    longest = max(bars, key=lambda name: int(name.removeprefix("bar of ")), default="")
    return tuple(count for name, count in found.items() if name not in bars or name == longest)
