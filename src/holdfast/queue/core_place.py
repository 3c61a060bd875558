"""Where a core keeps its files: one directory for each state directory and machine, with a lock and a socket."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from holdfast.model.noun_base import Noun
from holdfast.record.database import make_private_dir
from holdfast.safe_files import open_file

MACHINE_ID = Path("/etc/machine-id")
LOCK_NAME, SOCKET_NAME, RECORDS_NAME, LOG_NAME = "core.lock", "core.sock", "queue.db", "core.log"
#: The variable that makes files of this directory devices, for tests and trials without accelerators.
PRETEND = "HOLDFAST_PRETEND_DEVICES"


def machine_id() -> str:
    """Return an id of this machine that differs from those of machines with the same home directory."""
    try:
        return MACHINE_ID.read_text(encoding="ascii").strip()[:32] or os.uname().nodename
    except (OSError, UnicodeDecodeError):
        return os.uname().nodename


class CorePlace(Noun, frozen=True, kw_only=True):
    """The files of one core. `home`: the state directory. `machine`: the machine whose devices the core gives out."""

    home: Path
    machine: str

    @classmethod
    def here(cls, home: Path) -> CorePlace:
        return cls(home=home, machine=machine_id())

    @property
    def directory(self) -> Path:
        return self.home / "core" / self.machine

    @property
    def records(self) -> Path:
        return self.directory / RECORDS_NAME

    @property
    def log(self) -> Path:
        return self.directory / LOG_NAME

    def make(self) -> None:
        """Create the directory, readable by its user alone. Raises OSError."""
        make_private_dir(self.directory)

    def lock(self) -> int | None:
        """Take the core's lock, and return its descriptor. Return None if another core has the lock. Raises OSError."""
        fd = open_file(self.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def listen(self) -> socket.socket:
        """Bind the core's socket, in place of an earlier core's. Call it with the lock held. Raises OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Bind through /proc/self/fd, because a socket's path is limited to 107 bytes.
        directory = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        try:
            (self.directory / SOCKET_NAME).unlink(missing_ok=True)
            listener.bind(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            (self.directory / SOCKET_NAME).chmod(0o600)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        finally:
            os.close(directory)
        listener.setblocking(False)
        return listener

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to the core. Raises OSError: FileNotFoundError or ConnectionRefusedError if none runs."""
        directory = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.settimeout(timeout_s)
            client.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        except OSError:
            client.close()
            raise
        finally:
            os.close(directory)
        return client
