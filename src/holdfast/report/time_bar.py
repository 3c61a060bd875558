"""Shows how an attempt's time was spent, as a bar with a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.model.human_format import duration

#: The mark and name of each part, in the order of time.
_LOOKS = {
    "backoff": ("·", "back-off"),
    "checking": ("░", "checks"),
    "preparing": ("▒", "prepare"),
    "first_output": ("▓", "go → first output"),
    "starting": ("▪", "starting"),
    "running": ("█", "running"),
    "detection": ("◌", "detection"),
    "draining": ("▚", "draining"),
    "decision": ("▞", "decision"),
}
#: Phases that contain the time to the first output. A record has that time as a separate part.
_AFTER_GO = ("starting", "running", "detection", "draining")
_BAR = 30


def bar(parts: Mapping[str, float], width: int) -> list[str]:
    """Return the bar `▒▓▓███████▚` and its legend `▒ prepare 1.9 s, ▓ go → first output 3 s …`, on one line if both
    fit.

    Each bar has its own scale: the bar of three days is as wide as that of 0.2 s. Every part that took time gets at
    least one mark, and its time in the legend.
    """
    shown = in_a_row(parts)
    if not shown:
        return []
    marks = "".join(_look(name)[0] * count for name, count in zip(shown, _shares([*shown.values()]), strict=True))
    names = [f"{_look(name)[0]} {_look(name)[1]} {duration(seconds)}" for name, seconds in shown.items()]
    whole = f"{marks}  {', '.join(names)}"
    return [whole] if len(whole) <= width else [marks, *_filled(names, width)]


def in_a_row(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts that took time, in order. The time to the first output is subtracted from the phases that
    contain it.
    """
    cut = {name: max(0.0, seconds) for name, seconds in parts.items()}
    left, before = cut.get("first_output", 0.0), 0.0
    for name in _AFTER_GO:
        taken = min(left, cut.get(name, 0.0))
        if taken > 0:
            cut[name] -= taken
            left -= taken
            before += taken
    cut["first_output"] = before
    order = [*_LOOKS, *(name for name in cut if name not in _LOOKS)]
    return {name: cut[name] for name in order if cut.get(name, 0.0) > 0}


def way_back(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the seconds from the first sign of trouble in one attempt to the first output of the next.

    None: the next attempt wrote no output.
    """
    if "first_output" not in after:
        return None
    trouble = sum(before.get(name, 0.0) for name in ("detection", "draining", "decision"))
    return trouble + sum(after.get(name, 0.0) for name in ("backoff", "checking", "preparing", "first_output"))


def _look(name: str) -> tuple[str, str]:
    return _LOOKS.get(name, ("▫", name))


def _shares(spans: Sequence[float]) -> list[int]:
    """Return the number of marks for each span: at least one each, and `_BAR` in total."""
    total = sum(spans)
    shares = [max(1, round(_BAR * span / total)) for span in spans]
    while sum(shares) != _BAR:
        widest = shares.index(max(shares))
        shares[widest] += 1 if sum(shares) < _BAR else -1
    return shares


def _filled(names: Sequence[str], width: int) -> list[str]:
    """Join the names into lines without breaking a name."""
    lines = [names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + 3 <= width:
            lines[-1] += f", {name}"
        else:
            lines[-1] += ","
            lines.append(name)
    return lines
