"""The sources of device faults of a run. Each has `fileno()`, `take(now)`, `missing` and `close()`."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.catalogue.fault_codes import vendors
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.observe.devices import ascend_events as ascend
from holdfast.observe.devices import reported_faults
from holdfast.observe.devices.device_discovery import behind, gpu_addresses, interfaces_of, pci_address
from holdfast.observe.devices.growing_files import GrowingFile
from holdfast.observe.devices.kernel_faults import (
    NIC_DOWN,
    NIC_PCIE,
    NODE_PCIE,
    PCIE_FATAL,
    faults_in,
    function_in,
    gpu_begun,
    interface_in,
    is_continued,
)
from holdfast.observe.devices.reported_faults import FaultRejected, kind_of

TOLD_MOST = 20
#: Equal Xids within this many seconds count as one, because the driver often logs an Xid several times.
ECHO_S = 1.0


class FaultSource(Protocol):
    """A source of device faults. `fileno()`: readable when `take` has work; -1: there will never be work."""

    #: Which faults this source cannot see, as a sentence; "" if it sees all.
    missing: str

    def fileno(self) -> int: ...
    def take(self, now: float) -> list[FaultEvent]: ...
    def close(self) -> None: ...


class KernelFaults:
    """Reads Xids and node faults from `/dev/kmsg` or a log daemon's file."""

    def __init__(
        self,
        path: str | os.PathLike[str] = "/dev/kmsg",
        *,
        node: str = "",
        names: Mapping[str, str] | None = None,
        from_start: bool = False,
        lines: GrowingFile | None = None,
        root: Path = Path("/"),
    ) -> None:
        """Open the kernel log.

        `node`: this node's name, for events. `names`: PCI address → device; None: the system's. `from_start`: read the
        log from its beginning. `lines`: the log, if it is already open. `root`: the directory that contains /sys and
        /proc.
        """
        self._lines = lines if lines is not None else GrowingFile(path, from_start=from_start)
        self.missing = self._lines.missing
        self._node = node
        self._names = gpu_addresses(root) if names is None else names
        self._root = root
        #: Messages about times at which the log is unreadable.
        self.news = self._lines.news
        self._said: dict[tuple[str, str], float] = {}
        #: The interfaces without a link. The node's fault ends when all have a link again.
        self._down: set[str] = set()
        #: (device, fault code) → the PCI functions that a fatal PCIe error has disconnected.
        self._pcie: dict[tuple[str, str], set[str]] = {}
        self._begun = ""

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
        found = faults_in(line, at, node=self._node, names=self._names)
        goes_on = not found and bool(self._begun) and is_continued(line)
        if goes_on:
            # A log daemon splits the driver's long messages, and only the first line names the device. So join this
            # line with it.
            found = faults_in(f"{self._begun} {line.partition('NVRM:')[2]}", at, node=self._node, names=self._names)
        if "NVRM:" in line:
            self._begun = "" if found else gpu_begun(line) or (self._begun if goes_on else "")
        return [each for event in found for each in self._on_the_bus(event)]

    def _on_the_bus(self, event: FaultEvent) -> list[FaultEvent]:
        """Assign a PCIe error to the accelerators and network adapters behind its PCI function."""
        if event.code not in (PCIE_FATAL, NODE_PCIE):
            return [event]
        function = function_in(event.text)
        affected = behind(function, self._root)
        if event.assertion is Assertion.RECOVER:
            return self._back_on_the_bus(event, affected)
        found = [event] if event.code == PCIE_FATAL else []
        if event.code == NODE_PCIE:
            devices = dict.fromkeys(self._names.get(pci_address(each), "") for each in affected)
            found = [
                replace(event, device=device, code=PCIE_FATAL, severity=Severity.CRITICAL)
                for device in devices
                if device
            ]
            if names := [name for each in affected for name in interfaces_of(each, self._root)]:
                found.append(replace(event, code=NIC_PCIE, text=f"{event.text} ({', '.join(names)})"))
        for each in found or [event]:
            self._pcie.setdefault((each.device, each.code), set()).update(affected)
        return found or [event]

    def _back_on_the_bus(self, event: FaultEvent, affected: tuple[str, ...]) -> list[FaultEvent]:
        found = []
        for (device, code), functions in list(self._pcie.items()):
            if functions.isdisjoint(affected):
                continue
            functions.difference_update(affected)
            if not functions:
                del self._pcie[device, code]
                found.append(replace(event, device=device, code=code))
        return found

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
    """Watches a file of JSON lines: reported faults, or Ascend's events (`ascend_events=True`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        node: str = "",
        ascend_events: bool = False,
        known: Callable[[str], bool] = reported_faults.in_catalogue,
        from_start: bool = False,
        lines: GrowingFile | None = None,
    ) -> None:
        """Open the file.

        `node`: this node's name, for Ascend's events. `known`: whether a fault code is known. `from_start`: read the
        file from its beginning. `lines`: the file, if it is already open.
        """
        self._lines = lines if lines is not None else GrowingFile(path, from_start=from_start)
        self.missing = self._lines.missing
        self.path = Path(path)
        self.refused: Counter[str] = Counter()
        #: Messages about refused lines, one for each. After `TOLD_MOST` of them, refused lines are only counted.
        self.news = self._lines.news
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
                    events += reported_faults.read_line(line, now, source=self.path.name, known=self._known)
            except FaultRejected as error:
                self._refuse(kind_of(str(error)), str(error))
        if more := self._lines.too_long - self.refused["too long"]:
            self._refuse("too long", f"it is longer than {reported_faults.LONGEST} bytes", more)
        return events

    def _refuse(self, kind: str, why: str, count: int = 1) -> None:
        told = self.refused.total()
        self.refused[kind] += count
        if told < TOLD_MOST:
            self.news.append(f"{self.path}: a line is refused: {why}")
            if told + count >= TOLD_MOST:
                self.news.append(f"{self.path}: lines that are refused from now on are counted, and not told")

    def close(self) -> None:
        self._lines.close()


def vendor_sources(node: str) -> list[FaultSource]:
    """Return the sources of vendors' modules: the result of `open_source(node)` in each `<vendor>.py` of this
    package.
    """
    found: list[FaultSource] = []
    for vendor in vendors():
        name = f"{__package__}.{vendor}"
        if importlib.util.find_spec(name) is not None:
            opens = getattr(importlib.import_module(name), "open_source", None)
            if opens is not None:
                found.append(opens(node))
    return found
