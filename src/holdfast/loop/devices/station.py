"""Faults as a station of the supervisor: where they come from, when they are judged, and what waits for a reset.

A run that has no fault pays next to nothing: files are opened before the workers start, and looked at once they are
well under way; the rules, the catalogues and the machine's book are loaded then too where the job has devices, and else
when the first fault comes.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import select
import selectors
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from holdfast.decide.phases import Phase
from holdfast.decide.placement import users
from holdfast.errors import HoldfastError
from holdfast.loop.devices.locks import DeviceLocks, Waiting
from holdfast.loop.devices.options import FaultOptions
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.faults import FaultEvent
from holdfast.model.jobs import JobSpec, NodeInfo, Seat
from holdfast.observe.devices.watch import Lines

if TYPE_CHECKING:
    from holdfast.loop.devices.judging import Faulting
    from holdfast.loop.devices.nvml_watch import NvmlWatch

LONGEST_PAUSE_S = 30.0
SLACK_S = 5.0
"""A report may have been begun so long before it was written down."""
_UNSEEN = (
    "Xids of the GPUs are not seen in this run. What helps: pip install 'holdfast[nvidia]', or --kernel-log FILE with "
    "a kernel log that this user may read"
)
SOCKET_NAME = "faults.sock"
FILE_NAME = "faults.jsonl"


_TO_LISTEN = (
    "holdfast.catalogue.faultcodes", "holdfast.observe.devices.public", "holdfast.observe.devices.kernel",
    "holdfast.observe.devices.sources", "holdfast.observe.devices.inbox",
)  # fmt: skip
_TO_JUDGE = (
    "yaml.reader", "yaml.scanner", "yaml.resolver", "yaml", "datetime", "subprocess", "holdfast.explain.severity",
    "holdfast.decide.faults", "holdfast.decide.faults.engine", "holdfast.decide.faults.tolerance",
    "holdfast.loop.devices.nvml_watch", "holdfast.loop.devices.resetting", "holdfast.loop.devices.judging",
    "holdfast.loop.devices.files",
    "holdfast.loop.faults",
)  # fmt: skip
"""What each imports, the imported before the importing, so that each step is short."""


class Source(Protocol):
    """Where faults come from (`holdfast.observe.devices`)."""

    @property
    def missing(self) -> str: ...
    def fileno(self) -> int: ...
    def take(self, now: float) -> list[FaultEvent]: ...
    def close(self) -> None: ...


class Checker(Protocol):
    """Whatever runs pre-checks."""

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]: ...


class FaultStation:
    """Registered in `selector` with this object as `data`. `pids`: rank → pid of the workers that live."""

    def __init__(
        self,
        options: FaultOptions,
        *,
        home: Path,
        job_dir: Path,
        node: NodeInfo,
        spec: JobSpec,
        checker: Checker,
        selector: selectors.BaseSelector,
        seats: Callable[[], Sequence[Seat]],
        avoided: Callable[[], Collection[str]],
        rank_of: Callable[[int], int | None],
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._home = home
        self._job_dir = job_dir
        self._node = node
        self._spec = spec
        self._checker = checker
        self._selector = selector
        self._seats = seats
        self._avoided = avoided
        self._rank_of = rank_of
        self._say = say
        self._phase = Phase.BACKOFF
        self._since = 0.0
        self._lines: list[tuple[str, Lines]] = []
        """What is opened first, to lose nothing: what it is, and the open file."""
        self._sources: dict[int, tuple[str, Source]] = {}
        """By fd: whether other runs read the same (its path, else empty), and the source."""
        self._judge: Faulting | None = None
        self._broken = False
        self._again_at: float | None = None
        self._pause_s = 0.25
        self._held: RunChecks | None = None
        self._to_reset: tuple[str, ...] = ()
        self._devices = DeviceLocks(home, node.name, say)
        self._others: Waiting | None = None
        """Another job resets a device that this one is to use."""
        self._nvml: NvmlWatch | None = None
        self._locks: dict[str, int] = {}
        self._folder = -1
        self._addresses: dict[str, str] = {}
        """`gpu@0000:3b:00` → `gpu1`, where a process of ours told."""

    # ------------------------------------------------------------------------------------------ the run's life

    def open(self, now: float) -> None:
        """The job is about to be submitted: from here on nothing that is reported is missed."""
        self._since = now
        options = self._options
        self._lines.append(("kernel", Lines(options.kernel_log)))
        self._lines.append(("file", Lines(options.file or self._job_dir / FILE_NAME)))
        if options.ascend_events is not None:
            self._lines.append(("ascend", Lines(options.ascend_events)))

    def entered(self, phase: Phase, now: float) -> list[ev.Event]:
        """The gang is in another phase."""
        self._phase = phase
        if phase is Phase.BACKOFF and self._node.devices:
            self._devices.let_go(self._node.devices)
        return self._judge.entered(phase, now) if self._judge is not None else []

    def listen(self, now: float) -> Iterator[object]:
        """Look at the files and at the socket from now on, and have the rules at hand where there are devices.

        In short steps, for whoever has something else to do between them.
        """
        for part in _TO_LISTEN:
            yield importlib.import_module(part)
        self._open()
        yield None
        if self._node.devices:
            for part in _TO_JUDGE:
                yield importlib.import_module(part)
            from holdfast.catalogue.faultcodes import all_codes

            yield all_codes()
            yield self._load(now)

    def close(self) -> None:
        for fd, (_, source) in self._sources.items():
            self._selector.unregister(fd)
            source.close()
        for _, lines in self._lines:
            lines.close()
        for fd in (*self._locks.values(), self._folder):
            if fd >= 0:
                os.close(fd)
        if self._others is not None:
            self._selector.unregister(self._others.pidfd)
            self._others.give_up()
        if self._judge is not None:
            self._judge.close()
        self._devices.close()

    # ------------------------------------------------------------------------------------------ as a station

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        if self._others is not None and fd == self._others.pidfd:
            self._selector.unregister(fd)
            self._others.ended()
            self._others = None
            # What followed from the other job's reset is in the book.
            return self.refresh(now)
        if fd in self._sources:
            return self._released(self._take(fd, now), now)
        return self._released(self._judge.ready(fd, now) if self._judge is not None else [], now)

    def next_wake(self) -> float | None:
        return self._judge.next_wake() if self._judge is not None else self._again_at

    def tick(self, now: float) -> list[ev.Event]:
        if self._judge is None and self._again_at is not None:
            return self.refresh(now)
        return self._released(self._judge.tick(now) if self._judge is not None else [], now)

    def pids(self) -> frozenset[int]:
        """Children of the supervisor that belong to resets and to the watching."""
        found = self._judge.pids() if self._judge is not None else frozenset()
        if self._others is not None:
            found |= {self._others.pid}
        return found | self._nvml.pids() if self._nvml is not None else found

    # ------------------------------------------------------------------------------------------ for other stations

    def note(self, events: Sequence[FaultEvent], now: float) -> list[ev.Event]:
        """Faults that this process itself has found."""
        if not events:
            return []
        judge = self._load(now, must=True)
        return judge.note(events, now) if judge is not None else []

    def refresh(self, now: float) -> list[ev.Event]:
        """Somebody else wrote to the machine's book."""
        judge = self._load(now)
        return self._released(judge.refresh(now) if judge is not None else [], now)

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]:
        """Begin the checks of the next attempt, once no device is being reset any more."""
        self._held = order
        found: list[ev.Event] = []
        if self._judge is not None and self._to_reset:
            devices, self._to_reset = self._to_reset, ()
            found = self._judge.reset_first(devices, now)
        return self._released(found, now)

    def awaiting_reset(self, devices: Sequence[str], now: float) -> tuple[str, ...]:
        """Before the job is submitted: those of its kept-out devices that are reset first, and are its own then."""
        if self._options.reset_command is None or not devices:
            return ()
        judge = self._load(now)
        self._to_reset = judge.awaiting_reset(devices) if judge is not None else ()
        return self._to_reset

    def last_words(self, now: float) -> list[ev.Event]:
        """An attempt has drained: what was reported up to now belongs to it, even if nobody has looked yet."""
        found: list[ev.Event] = []
        if any(_has_news(lines.fileno()) for _, lines in self._lines):
            self._open()
        for fd in list(self._sources):
            if _has_news(fd):
                found += self._take(fd, now)
        return found

    def complete(self, evidence: AttemptEvidence, started_at: float, now: float) -> AttemptEvidence:
        """Add the faults of the attempt that were not news to the gang."""
        if self._judge is None:
            return evidence
        seats = self._seats()
        names = {self._node.name, *self._node.devices}
        ranks = {name: used for name in names if (used := users(name, seats, (self._node,)))}
        known = {(fault.event.device, fault.event.code, fault.event.at) for fault in evidence.faults}
        more = [
            fault
            for fault in self._judge.overlapping(started_at, now, ranks)
            if (fault.event.device, fault.event.code, fault.event.at) not in known
        ]
        return replace(evidence, faults=(*evidence.faults, *more))

    # ------------------------------------------------------------------------------------------ inside

    def _released(self, events: list[ev.Event], now: float) -> list[ev.Event]:
        """What the checks waited for may be over now; the news goes first."""
        judge = self._judge
        if self._held is None or (judge is not None and judge.resetting) or not self._granted():
            return events
        order, self._held = self._held, None
        more = judge.begin(now) if judge is not None else []
        return [*events, *more, *self._checker.begin(order, now)]

    def _granted(self) -> bool:
        """Whether no other job resets what this one is to use; else its end is waited for."""
        avoided = self._avoided()
        devices = [device for device in self._node.devices if device not in avoided]
        if self._others is not None or (devices and not self._devices.share(devices)):
            if self._others is None:
                self._say(f"another job resets one of {', '.join(devices)}; the start waits for its end")
                self._others = self._devices.wait(devices, alone=False)
                self._selector.register(self._others.pidfd, selectors.EVENT_READ, self)
            return False
        return True

    def _take(self, fd: int, now: float) -> list[ev.Event]:
        path, source = self._sources[fd]
        events = [self._named(event) for event in source.take(now) if event.at >= self._since - 1.0]
        for text in _news(source):
            self._say(text)
        if source.fileno() < 0:
            del self._sources[fd]
            self._selector.unregister(fd)
            self._say(f"{source.missing}: {_UNSEEN}")
            source.close()
        if not events or (path and not self._is_first(path)):
            return []
        judge = self._load(now, must=True)
        if judge is None:
            return []
        found = judge.note(events, now)
        if path:
            from holdfast.loop.control import notify_all

            notify_all(self._home)
        return found

    def _named(self, event: FaultEvent) -> FaultEvent:
        """A device that only the bus knows is that of the worker whose process the driver names."""
        if "@" not in event.device:
            return event
        if event.device not in self._addresses and event.pid is not None:
            rank = self._rank_of(event.pid)
            device = next((seat.device for seat in self._seats() if seat.rank == rank), "")
            if device:
                self._addresses[event.device] = device
        return replace(event, device=self._addresses.get(event.device, event.device))

    def _is_first(self, path: str) -> bool:
        """Whether this run is the one that reports what stands there: of several that read it, each sees it."""
        if path not in self._locks:
            name = self._home / f".faults-{zlib.crc32(path.encode()):08x}.lock"
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
            self._locks[path] = fd
        return True

    def _open(self) -> None:
        from holdfast.observe.devices.sources import FileFaults, KernelFaults

        options, node = self._options, self._node.name
        opened, self._lines = self._lines, []
        for kind, lines in opened:
            match kind:
                case "kernel":
                    kernel = KernelFaults(node=node, lines=lines)
                    self._add(options.kernel_log, kernel)
                    if kernel.missing and any(name.startswith("gpu") for name in self._node.devices):
                        self._watch_nvml(kernel.missing)
                case "ascend":
                    self._add(str(lines.path), FileFaults(lines.path, node=node, ascend_events=True, lines=lines))
                case _:
                    self._add(
                        str(options.file or ""), FileFaults(lines.path, node=node, known=self._known, lines=lines)
                    )
        if opened:
            self._open_inbox()

    def _watch_nvml(self, why: str) -> None:
        from holdfast.loop.devices.nvml_watch import NvmlWatch as Watch
        from holdfast.observe.devices.discover import local_devices

        home, node = self._home, self._node
        gpus = [name for name in {*node.devices, *local_devices()} if name.startswith("gpu")]

        def before() -> None:
            DeviceLocks(home, node.name, lambda text: None).wait_here(gpus)

        self._say(f"{why}; NVML tells the GPUs' Xids instead")
        try:
            self._nvml = Watch(node=node.name, before=before)
        except OSError as error:
            self._say(f"no process can be started to wait for NVML ({error.strerror}): {_UNSEEN}")
            return
        self._add("nvml", self._nvml)

    def _open_inbox(self) -> None:
        from holdfast.observe.devices.inbox import Inbox

        path = self._options.socket or self._job_dir / SOCKET_NAME
        try:
            # A socket's path may have 107 bytes; a state directory may be deeper than that.
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._add("", Inbox(Path(f"/proc/self/fd/{self._folder}/{path.name}"), known=self._known))
        except OSError as error:
            self._say(f"{path}: faults cannot be reported there: {error.strerror or error}")

    def _add(self, path: str, source: Source) -> None:
        fd = source.fileno()
        if fd < 0:
            source.close()
            return
        self._sources[fd] = path, source
        self._selector.register(fd, selectors.EVENT_READ, self)

    def _known(self, code: str) -> bool:
        from holdfast.catalogue.faultcodes import all_codes, canonical

        key = canonical(code)
        return key in all_codes() or (self._judge is not None and self._judge.knows(key))

    def _load(self, now: float, *, must: bool = False) -> Faulting | None:
        """The rules and the machine's book; None where they cannot be had.

        A book that cannot be opened may be in somebody's hands for a moment, and what stands there stays there: it is
        tried again, more and more rarely. `must`: a fault is at hand, which is judged without the book then.
        """
        if self._judge is not None or self._broken:
            return self._judge
        from holdfast.loop.devices.desk import BUSY_MS, FaultDesk
        from holdfast.loop.devices.judging import Faulting as Judge
        from holdfast.loop.devices.resetting import Resets
        from holdfast.loop.faults import FaultBook, load_policy

        options = self._options
        try:
            loaded = load_policy(options.codes, options.rules)
            for warning in loaded.warnings:
                self._say(warning)
        except HoldfastError as error:
            self._broken = True
            self._say(f"faults of devices are not watched: {error.message}")
            return None

        def opened(at: float) -> FaultBook:
            since = self._since - SLACK_S
            return FaultBook(self._home, loaded.policy, at, writable=True, since=since, busy_ms=BUSY_MS)

        book: FaultBook | None = None
        try:
            book = opened(now)
        except HoldfastError as error:
            if not must:
                if self._again_at is None:
                    self._say(f"{error.message}; it is tried again")
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
                self._again_at = now + self._pause_s
                return None
            self._say(f"{error.message}; faults are judged in memory only until it can be written")
        desk = FaultDesk(book, loaded.policy, (), reopen=opened)
        desk.engine.register(self._node.devices)
        resets = Resets(
            options.reset_command,
            group=options.reset_group,
            grace=loaded.policy.grace,
            selector=self._selector,
            owner=self,
            logs=self._job_dir,
            tries=lambda devices: desk.tries(devices, now),
            note_tries=desk.note_tries,
            locks=DeviceLocks(self._home, self._node.name, self._say),
            say=self._say,
        )
        ours = frozenset({self._node.name, *self._node.devices})
        self._judge = Judge(desk, resets, self._spec, ours, self._say)
        if self._phase not in (Phase.BACKOFF, Phase.DONE):
            self._judge.begin(now)
        return self._judge


def _has_news(fd: int) -> bool:
    return fd >= 0 and bool(select.select([fd], [], [], 0)[0])


def _news(source: Source) -> list[str]:
    """What a source has to say about lines that it refused."""
    said: list[str] = getattr(source, "news", [])
    taken = list(said)
    said.clear()
    return taken
