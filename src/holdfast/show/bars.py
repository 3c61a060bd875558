"""Where an attempt's time went, as one line."""

from __future__ import annotations

from holdfast.record.words import duration

_MARKS = {
    "checking": "░", "preparing": "▒", "starting": "▓", "running": "█", "detection": "◌", "draining": "▚",
    "decision": "▞", "backoff": "·",
}  # fmt: skip
_OTHER = "▪"
_OVERLAPS = "first_output"
"""Counts from the go, beside the phases: a number behind the bar, not a part of it."""
_BAR = 30


def bar(parts: dict[str, float], width: int) -> str:
    """`░▒▒██████▚ running 12 s, preparing 1.9 s …`: parts in the order of their keys, the longest named first.

    A part of any length gets at least one mark, so that nothing that happened is invisible.
    """
    shown = {name: seconds for name, seconds in parts.items() if seconds > 0 and name != _OVERLAPS}
    total = sum(shown.values())
    if not total:
        return ""
    marks = "".join(_MARKS.get(name, _OTHER) * max(1, round(_BAR * seconds / total)) for name, seconds in shown.items())
    names = [
        f"{_MARKS.get(name, _OTHER)} {name} {duration(seconds)}"
        for name, seconds in sorted(shown.items(), key=lambda item: -item[1])
    ]
    if _OVERLAPS in parts:
        names.append(f"first output {duration(parts[_OVERLAPS])} after the go")
    text = marks
    for number, name in enumerate(names):
        more = ("  " if number == 0 else ", ") + name
        if len(text) + len(more) > width:
            break
        text += more
    return text
