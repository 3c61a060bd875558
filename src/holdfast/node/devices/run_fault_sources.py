"""The fault sources of a run: the kernel log or NVML, a watched file, Ascend's events, and the run's own socket.

Files are opened before the workers start, so that no line is lost, and read later. If several runs see the same fault,
only one of them reports it.
"""

from __future__ import annotations

import fcntl
import os
import select
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.launch.launch_spec import KERNEL_LOG, FaultOptions
from holdfast.model.faults import FaultEvent
from holdfast.model.job_spec import JobSpec, NodeInfo
from holdfast.node import devices
from holdfast.node.devices.device_locks import DeviceLocks
from holdfast.observe.devices.device_discovery import local_devices
from holdfast.observe.devices.growing_files import GrowingFile
from holdfast.safe_files import open_file

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.model.events import Event
    from holdfast.node.devices.nvml_watch import NvmlWatch
    from holdfast.reactor import Reactor

_UNSEEN = (
    "Xids of the GPUs are not seen in this run. What helps: pip install 'holdfast-run[nvidia]', or --kernel-log FILE "
    "with a kernel log that this user may read"
)
SOCKET_NAME = "faults.sock"
FILE_NAME = "faults.jsonl"


class RunFaultSource(Protocol):
    """A source of fault events (`holdfast.observe.devices`)."""

    @property
    def missing(self) -> str: ...
    def fileno(self) -> int: ...
    def take(self, now: float) -> list[FaultEvent]: ...
    def close(self) -> None: ...


class WatchedJob(msgspec.Struct, frozen=True):
    """The job whose devices are watched, on one node."""

    spec: JobSpec
    options: FaultOptions
    node: NodeInfo
    #: holdfast's state directory.
    home: Path
    #: The job's directory. It contains the run's own file and socket for faults.
    directory: Path


class FaultSources:
    """Reads the fault sources.

    `reported(events, now)`: gets the events that this run reports. `device_of(pid)`: the device of a worker's process.
    `known(code)`: whether the rules or a catalogue contain the code. `say`: prints a message to the user.
    """

    def __init__(
        self,
        job: WatchedJob,
        *,
        reactor: Reactor,
        clock: Clock,
        reported: Callable[[list[FaultEvent], float], list[Event]],
        device_of: Callable[[int], str],
        known: Callable[[str], bool],
        say: Callable[[str], None],
    ) -> None:
        self._job = job
        self._reactor = reactor
        self._clock = clock
        self._reported = reported
        self._device_of = device_of
        self._known = known
        self._say = say
        self._since = 0.0
        #: (kind of source, file) for each file that is open and not read yet.
        self._lines: list[tuple[str, GrowingFile]] = []
        #: Descriptor → (path, source). The path is "" if this run alone can read the source.
        self._sources: dict[int, tuple[str, RunFaultSource]] = {}
        self._nvml: NvmlWatch | None = None
        self._locks: dict[str, int] = {}
        self._folder = -1
        #: PCI address → device: `gpu@0000:3b:00` → `gpu1`. A fault that names a worker's process shows the pair.
        self._addresses: dict[str, str] = {}

    def open(self, now: float) -> None:
        """Open the files of the fault sources before the job starts, so that no report is missed."""
        self._since = now
        options = self._job.options
        self._lines.append(("kernel", GrowingFile(options.kernel_log, clock=self._clock)))
        self._lines.append(("file", GrowingFile(options.file or self._job.directory / FILE_NAME, clock=self._clock)))
        if options.ascend_events is not None:
            self._lines.append(("ascend", GrowingFile(options.ascend_events, clock=self._clock)))

    def start(self) -> None:
        """Start to read the files of the fault sources, and open the socket. A second call does nothing."""
        options, node = self._job.options, self._job.node.name
        opened, self._lines = self._lines, []
        for kind, lines in opened:
            match kind:
                case "kernel":
                    kernel = devices.KernelFaults(node=node, lines=lines)
                    self._add(options.kernel_log, kernel)
                    if kernel.missing and any(name.startswith("gpu") for name in self._job.node.devices):
                        self._watch_nvml(kernel.missing)
                    elif kernel.missing and options.kernel_log != KERNEL_LOG:
                        self._say(kernel.missing)
                case _ if lines.missing:
                    self._say(lines.missing)
                case "ascend":
                    self._add(
                        str(lines.path), devices.FileFaults(lines.path, node=node, ascend_events=True, lines=lines)
                    )
                case _:
                    self._add(
                        str(options.file or ""),
                        devices.FileFaults(lines.path, node=node, known=self._known, lines=lines),
                    )
        if opened:
            for source in devices.vendor_sources(node):
                self._add(type(source).__name__, source)
            self._open_inbox()

    def _ready(self, fd: int, now: float) -> list[Event]:
        return self._reported(self.take(fd, now), now)

    def take(self, fd: int, now: float) -> list[FaultEvent]:
        """Return the new events of a source that this run must report; none if another run reports the source."""
        path, source = self._sources[fd]
        events = [self._named(event) for event in source.take(now) if event.at >= self._since - 1.0]
        for text in _news(source):
            self._say(text)
        if source.fileno() < 0:
            del self._sources[fd]
            self._reactor.forget(fd)
            self._say(f"{source.missing}: {_UNSEEN}")
            source.close()
        if not events or (path and not self._is_first(path)):
            return []
        return events

    def unread(self) -> list[int]:
        """Return the descriptors of the sources that have unread data."""
        if any(_has_news(lines.fileno()) for _, lines in self._lines):
            self.start()
        return [fd for fd in self._sources if _has_news(fd)]

    def refused(self) -> Counter[str]:
        """Return the number of rejected lines of the fault sources, by reason."""
        found: Counter[str] = Counter()
        for _, source in self._sources.values():
            found.update(getattr(source, "refused", {}))
        return found

    def close(self) -> None:
        for fd, (_, source) in self._sources.items():
            self._reactor.forget(fd)
            source.close()
        for _, lines in self._lines:
            lines.close()
        for fd in (*self._locks.values(), self._folder):
            if fd >= 0:
                os.close(fd)

    def _named(self, event: FaultEvent) -> FaultEvent:
        """Replace a PCI address by the device's name. The driver's message names a worker's process, whose device is
        known.
        """
        if "@" not in event.device:
            return event
        known = event.device in self._addresses or event.pid is None
        if not known and (device := self._device_of(event.pid or 0)):
            self._addresses[event.device] = device
        return replace(event, device=self._addresses.get(event.device, event.device))

    def _is_first(self, path: str) -> bool:
        """Return whether this run reports the source's faults. Of several runs that read one source, only the holder of
        the source's lock reports.
        """
        if path not in self._locks:
            name = self._job.home / f".faults-{zlib.crc32(path.encode()):08x}.lock"
            try:
                fd = open_file(name, os.O_WRONLY | os.O_CREAT)
            except OSError:
                return True  # report the faults without a lock file too, because a double report is better than none
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
            self._locks[path] = fd
        return True

    def _watch_nvml(self, why: str) -> None:
        home, node = self._job.home, self._job.node
        gpus = [name for name in {*node.devices, *local_devices()} if name.startswith("gpu")]

        def before() -> None:
            DeviceLocks(home, node.name, lambda text: None).wait_here(gpus)

        self._say(f"{why}; NVML tells the GPUs' Xids instead")
        try:
            self._nvml = devices.NvmlWatch(node=node.name, before=before)
        except OSError as error:
            self._say(f"no process can be started to wait for NVML ({error.strerror}): {_UNSEEN}")
            return
        self._add("nvml", self._nvml)

    def _open_inbox(self) -> None:
        path = self._job.options.socket or self._job.directory / SOCKET_NAME
        try:
            # A socket's path may have at most 107 bytes, and the state directory's path may be longer. So use the
            # folder's descriptor.
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            short = Path(f"/proc/self/fd/{self._folder}/{path.name}")
            self._add("", devices.FaultSocket(short, known=self._known, clock=self._clock))
        except OSError as error:
            self._say(f"{path}: faults cannot be reported there: {error.strerror or error}")

    def _add(self, path: str, source: RunFaultSource) -> None:
        fd = source.fileno()
        if fd < 0:
            source.close()
            return
        self._sources[fd] = path, source
        self._reactor.watch(fd, self._ready)


def _has_news(fd: int) -> bool:
    return fd >= 0 and bool(select.select([fd], [], [], 0)[0])


def _news(source: RunFaultSource) -> list[str]:
    """Return and clear the source's messages about invalid fault reports."""
    said: list[str] = getattr(source, "news", [])
    taken = list(said)
    said.clear()
    return taken
