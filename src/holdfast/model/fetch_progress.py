"""The text about a fetch for users: lines of progress, a bar, and one sentence at its end."""

from __future__ import annotations

from holdfast.model.fetch_messages import (
    FetchAgain,
    FetchBegan,
    FetchDone,
    FetchFailed,
    FetchMoved,
    FetchWaits,
    FetchWord,
)
from holdfast.model.human_format import duration

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
LEAST_BAR = 10


def size(count: float) -> str:
    """Return a number of bytes as `812 B` or `4.2 GB`, in powers of ten as is usual for disks and networks."""
    unit = 0
    while count >= 999.95 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def progress(word: FetchMoved) -> str:
    """Return the progress of a fetch as `1.2 of 4.0 GB, 85.3 MB/s, 33 s left`; unknown parts are left out."""
    if word.most_bytes is None:
        text = f"{word.doing}: {size(word.bytes)}"
    else:
        text = f"{word.doing}: {size(word.bytes)} of {size(word.most_bytes)}"
    if word.per_s > 0:
        text += f", {size(word.per_s)}/s"
        if word.most_bytes is not None and word.most_bytes > word.bytes:
            text += f", {duration(round((word.most_bytes - word.bytes) / word.per_s))} left"
    return text


def bar(word: FetchMoved, width: int) -> str:
    """Return a progress bar of one line with at most `width` columns, for a terminal that redraws it."""
    text = f"{word.name}  {progress(word)}"
    room = width - len(text) - 5
    if word.most_bytes and room >= LEAST_BAR:
        cells = min(room, 40)
        full = min(cells, cells * word.bytes // word.most_bytes)
        text = f"{word.name}  [{'#' * full}{'.' * (cells - full)}]  {text[len(word.name) + 2 :]}"
    return text[: max(0, width - 1)]


def fetch_sentence(word: FetchWord) -> str:
    """Return a message of the fetching process as one sentence, without the prefix `holdfast:`."""
    match word:
        case FetchBegan():
            return f"prerequisite {word.name}: fetching {word.uri} to {word.into}"
        case FetchMoved():
            return f"prerequisite {word.name}: {progress(word)}"
        case FetchWaits():
            return f"prerequisite {word.name}: {word.who} fetches it already; this one waits for that"
        case FetchAgain():
            return (
                f"prerequisite {word.name}: try {word.tried} of {word.tries} failed: {word.trouble.phrase}: "
                f"{word.trouble.words}; the next in {word.pause_s:.1f} s"
            )
        case FetchDone():
            return f"prerequisite {word.name}: {done(word)}"
        case FetchFailed():
            return f"prerequisite {word.trouble.name}: {word.trouble.phrase}: {word.trouble.words}"


def done(word: FetchDone) -> str:
    """Return a sentence about a complete prerequisite: `4.0 GB in 33 s at /usr/local/pai/model, 1.0 GB of it from an
    earlier fetch, try 2`.
    """
    if word.there:
        return f"{size(word.bytes)} at {word.into}, whole from an earlier fetch"
    text = f"{size(word.bytes)} in {duration(word.took_s)} at {word.into}"
    if word.resumed_bytes:
        text += f", {size(word.resumed_bytes)} of it from an earlier fetch"
    return f"{text}, try {word.tries}" if word.tries > 1 else text
