"""Bars, as text and as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

_WIDTH = 40


def bars_text(values: Mapping[str, float], unit: str) -> str:
    """A line a value, the longest bar `_WIDTH` wide; every value shows at least a sliver."""
    if not values:
        return "nothing to draw"
    widest, most = max(map(len, values)), max(values.values())
    bars = {name: "█" * round(_WIDTH * value / most) or "▏" for name, value in values.items()}
    return "\n".join(f"{name:<{widest}}  {bars[name]} {value:.2f} {unit}" for name, value in values.items())


def bars_png(file: Path, titled: str, unit: str, groups: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """One panel a group; one bar a name, as long as the median, with a line from the least to the most of its values.

    Raises:
        SystemExit: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the plot needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(8, 1.2 + 0.32 * sum(len(bars) + 1 for bars in groups.values())), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(titled)
    panels = figure.subplots(
        len(groups), 1, squeeze=False, gridspec_kw={"height_ratios": [len(bars) + 1 for bars in groups.values()]}
    )
    for (name, bars), panel in zip(groups.items(), panels[:, 0], strict=True):
        medians = [median(values) for values in bars.values()]
        reach = [
            [middle - min(values) for middle, values in zip(medians, bars.values(), strict=True)],
            [max(values) - middle for middle, values in zip(medians, bars.values(), strict=True)],
        ]
        ours = ["tab:green" if label.startswith("holdfast") else "tab:gray" for label in bars]
        drawn = panel.barh(list(bars), medians, xerr=reach, color=ours, error_kw={"elinewidth": 0.8})
        panel.bar_label(drawn, labels=[f"{middle:.2f}" for middle in medians], padding=6)
        panel.invert_yaxis()
        panel.margins(x=0.12)
        panel.set_title(name, loc="left", fontsize="medium")
        panel.set_xlabel(unit)
    figure.savefig(file, dpi=120)
