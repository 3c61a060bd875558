"""Sources of faults as a run uses them: each has `fileno()`, `take(now)`, `missing` and `close()`."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.catalogue.faultcodes import vendors
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.observe.devices import ascend, public
from holdfast.observe.devices.discover import gpu_addresses
from holdfast.observe.devices.kernel import NIC_DOWN, faults_in, interface_in
from holdfast.observe.devices.public import Refused
from holdfast.observe.devices.watch import Lines

ECHO_S = 1.0
"""The driver often says one Xid several times at once; within this time they are one occurrence."""


class Source(Protocol):
    """Where faults come from. `fileno()` is readable when `take` has something, -1 where nothing will ever come."""

    missing: str
    """Empty, or one sentence about what is not seen."""

    def fileno(self) -> int: ...
    def take(self, now: float) -> list[FaultEvent]: ...
    def close(self) -> None: ...


class KernelFaults:
    """Xids and node faults from `/dev/kmsg` or a file that a log daemon writes."""

    def __init__(
        self,
        path: str | os.PathLike[str] = "/dev/kmsg",
        *,
        node: str = "",
        names: Mapping[str, str] | None = None,
        from_start: bool = False,
        lines: Lines | None = None,
    ) -> None:
        """`lines`: the log, where somebody has opened it already."""
        self._lines = lines if lines is not None else Lines(path, from_start=from_start)
        self.missing = self._lines.missing
        self._node = node
        self._names = gpu_addresses() if names is None else names
        self._said: dict[tuple[str, str], float] = {}
        self._down: set[str] = set()
        """Interfaces without a link. The fault is the node's: it is over when the last of them has its link back."""

    def fileno(self) -> int:
        return self._lines.fileno()

    def take(self, now: float) -> list[FaultEvent]:
        events: list[FaultEvent] = []
        for line, at in self._lines.take(now):
            events += [event for event in self._found(line, at) if self._is_news(event)]
        return events

    def close(self) -> None:
        self._lines.close()

    def _found(self, line: str, at: float) -> list[FaultEvent]:
        return faults_in(line, at, node=self._node, names=self._names)

    def _is_news(self, event: FaultEvent) -> bool:
        key = event.device, event.code
        if event.code == NIC_DOWN:
            change = self._down.discard if event.assertion is Assertion.RECOVER else self._down.add
            change(interface_in(event.text))
            if event.assertion is Assertion.RECOVER and self._down:
                return False
        if event.assertion is Assertion.RECOVER:
            self._said.pop(key, None)
            return True
        before = self._said.get(key)
        if len(self._said) > 4096:
            self._said.clear()
        self._said[key] = event.at
        return before is None or not 0 <= event.at - before < ECHO_S


class FileFaults:
    """A watched file of JSON lines: public faults, or Ascend's own events (`ascend=True`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        node: str = "",
        ascend_events: bool = False,
        known: Callable[[str], bool] = public.in_catalogue,
        from_start: bool = False,
        lines: Lines | None = None,
    ) -> None:
        """`lines`: the file, where somebody has opened it already."""
        self._lines = lines if lines is not None else Lines(path, from_start=from_start)
        self.missing = self._lines.missing
        self.path = Path(path)
        self.refused: Counter[str] = Counter()
        self.news: list[str] = []
        """One sentence a refused line, the latest hundred, for whoever prints them."""
        self._node = node
        self._ascend = ascend_events
        self._known = known

    def fileno(self) -> int:
        return self._lines.fileno()

    def take(self, now: float) -> list[FaultEvent]:
        events: list[FaultEvent] = []
        for line, _ in self._lines.take(now):
            if not line.strip():
                continue
            try:
                if self._ascend:
                    events.append(ascend.read_line(line, now, node=self._node))
                else:
                    events += public.read_line(line, now, source=self.path.name, known=self._known)
            except Refused as error:
                self.refused["malformed"] += 1
                self.news.append(f"{self.path}: a line is refused: {error}")
        del self.news[:-100]
        return events

    def close(self) -> None:
        self._lines.close()


def vendor_sources(node: str) -> list[Source]:
    """Sources that a vendor's own module here opens: `open_source(node)` of `<vendor>.py`, found by being there."""
    found: list[Source] = []
    for vendor in vendors():
        name = f"{__package__}.{vendor}"
        if importlib.util.find_spec(name) is not None:
            opens = getattr(importlib.import_module(name), "open_source", None)
            if opens is not None:
                found.append(opens(node))
    return found
