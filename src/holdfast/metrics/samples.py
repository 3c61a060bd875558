"""The values of metrics, and how they are written in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.metrics.metric_table import METRICS, Metric, MetricKind

Labels = tuple[str, ...]
#: Length limit of a label value, in characters. Longer values are cut.
MOST_LABEL = 128
INFINITE = float("inf")
#: Maps the name of a series to the number of its labels.
_WIDTHS = {
    f"{metric.name}{end}": len(metric.labels) + (end == "_bucket")
    for metric in METRICS
    for end in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
}


class Samples:
    """The values of all metrics, by the values of their labels. Values of counters and histograms accumulate."""

    def __init__(self) -> None:
        #: Maps a series' name to its numbers by label values. A histogram consists of `…_bucket`, `…_sum` and
        #: `…_count`.
        self.numbers: dict[str, dict[Labels, float]] = {}

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge, in place of its earlier number."""
        self.numbers.setdefault(metric.name, {})[_fitting(metric, labels)] = value

    def states(self, metric: Metric, states: tuple[str, ...], present: str, *labels: str) -> None:
        """Set the gauge of the present state to 1 and those of the other states to 0."""
        for state in states:
            self.set(metric, float(state == present), *labels, state)

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add `value` to a counter, or observe a duration of `value` seconds in a histogram."""
        key = _fitting(metric, labels)
        if metric.kind is not MetricKind.HISTOGRAM:
            self._add(metric.name, key, value)
            return
        for bound in (*metric.buckets, INFINITE):
            self._add(f"{metric.name}_bucket", (*key, _bound(bound)), float(value <= bound))
        self._add(f"{metric.name}_sum", key, value)
        self._add(f"{metric.name}_count", key, 1.0)

    def merge(self, name: str, labels: Labels, value: float) -> None:
        """Add the saved total of a series. Ignore a series whose number of labels has changed."""
        if _WIDTHS.get(name) == len(labels):
            self._add(name, labels, value)

    def _add(self, name: str, labels: Labels, value: float) -> None:
        series = self.numbers.setdefault(name, {})
        series[labels] = series.get(labels, 0.0) + value

    def text(self) -> str:
        """Return the text in Prometheus' format, version 0.0.4.

        It has no timestamps, because the textfile collector rejects them.
        """
        return "".join(line for metric in METRICS for line in self._lines(metric))

    def _lines(self, metric: Metric) -> Iterator[str]:
        histogram = metric.kind is MetricKind.HISTOGRAM
        names = [f"{metric.name}{end}" for end in ("_bucket", "_sum", "_count")] if histogram else [metric.name]
        if not any(self.numbers.get(name) for name in names):
            return
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
        for name in names:
            labels = (*metric.labels, "le") if name.endswith("_bucket") and histogram else metric.labels
            for values, number in self.numbers.get(name, {}).items():
                told = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
                yield f"{name}{{{told}}} {_number(number)}\n" if told else f"{name} {_number(number)}\n"


def _fitting(metric: Metric, labels: Labels) -> Labels:
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, and got {labels}")
    return tuple(label[:MOST_LABEL] for label in labels)


def _bound(bound: float) -> str:
    return "+Inf" if bound == INFINITE else _number(bound)


def _number(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _escaped(value: str) -> str:
    # A lone surrogate cannot be encoded in UTF-8, so replace it. A label may contain any other character.
    value = value.encode("utf-8", "replace").decode("utf-8")
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
