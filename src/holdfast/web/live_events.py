"""Server-sent events: an open page gets an event when the journal has a new entry, or a file has grown.

inotify reports writes to the state directory. SQLite then tells, within microseconds, whether another process has
changed the journal: without this check, the server's own reads would cause events. The server has one connection per
state directory, which is open only while a page listens.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sqlite3
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from holdfast.record.database import FILE_NAME, Unusable, open_for_reading

MOST_LISTENERS = 32
#: Maximum number of directories watched for one page.
MOST_FOLDERS = 16
#: Minimum seconds between two events to one page.
PAUSE_S = 1.0
#: Seconds after which a page gets an event even without a change. It is needed on a network file system, where inotify
#: reports only this machine's writes.
BEAT_S = 15.0
#: The same for the page of a running job. Its progress and a rank's last lines change without an event, and its ranks
#: may write too often to follow each line.
RUNNING_BEAT_S = 5.0

_MODIFY, _CREATE, _MOVED_TO = 0x002, 0x100, 0x080
_EVENT = struct.Struct("iIII")


class EventListener:
    """One open page, which gets events."""

    def __init__(self, home: Path | None, folders: tuple[Path, ...], beat_s: float = BEAT_S) -> None:
        """Create the page's listener.

        `home`: the state directory that the page shows; None: all. `folders`: directories whose files it shows.
        `beat_s`: the longest time without an event, in seconds.
        """
        self.home = home
        self.beat_s = beat_s
        self.folders = folders[:MOST_FOLDERS]
        self.news = asyncio.Event()


async def _is_set(event: asyncio.Event, limit_s: float) -> bool:
    """Wait for the event; return False after `limit_s` without it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
    return event.is_set()


class Live:
    """Sends events to all open pages. Use it only in the event loop's thread."""

    def __init__(self, homes: tuple[Path, ...]) -> None:
        self._homes = homes
        self._listeners: list[EventListener] = []
        self._fd: int | None = None
        self._watched: dict[int, Path] = {}
        self._journals: dict[Path, tuple[sqlite3.Connection, int]] = {}
        self._ended = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MOST_LISTENERS

    async def news(self, listener: EventListener) -> AsyncIterator[str]:
        """Yield the events for one page, until the page is closed or the server ends."""
        self._begin(listener)
        try:
            yield "retry: 3000\n\n"
            # Do not wait in another asyncio task, which would be left pending when the browser leaves.
            while not self._ended.is_set():
                await _is_set(listener.news, listener.beat_s)
                if self._ended.is_set():
                    return
                listener.news.clear()
                yield "event: change\ndata: \n\n"
                # Changes during the pause are part of the next event.
                await _is_set(self._ended, PAUSE_S)
        finally:
            self._listeners.remove(listener)
            if not self._listeners:
                self._close()

    def end(self) -> None:
        """End all event streams, because the server ends."""
        self._ended.set()
        for listener in self._listeners:
            listener.news.set()

    def _begin(self, listener: EventListener) -> None:
        self._listeners.append(listener)
        if self._fd is None:
            self._open()
        for folder in (*self._homes, *listener.folders):
            self._watch(folder)
        for home in self._homes:
            self._follow(home)

    def _open(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(libc, "inotify_init1") else -1
        if fd >= 0:  # without inotify, pages are only updated every BEAT_S
            self._fd = fd
            asyncio.get_running_loop().add_reader(fd, self._read)

    def _watch(self, folder: Path) -> None:
        if self._fd is None or folder in self._watched.values():
            return
        libc = ctypes.CDLL(None, use_errno=True)
        number = libc.inotify_add_watch(self._fd, os.fsencode(folder), _MODIFY | _CREATE | _MOVED_TO)
        if number >= 0:
            self._watched[number] = folder

    def _follow(self, home: Path) -> None:
        if home in self._journals:
            return
        with suppress(Unusable, sqlite3.Error):  # the page shows this error when it loads
            if (db := open_for_reading(home)) is not None:
                self._journals[home] = (db, _version(db))

    def _read(self) -> None:
        assert self._fd is not None, "only an open descriptor is read"
        changed: dict[Path, set[bytes]] = {}
        with suppress(BlockingIOError):
            while data := os.read(self._fd, 65536):
                at = 0
                while at < len(data):
                    number, _, _, length = _EVENT.unpack_from(data, at)
                    name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                    at += _EVENT.size + length
                    if number in self._watched:
                        changed.setdefault(self._watched[number], set()).add(name)
        for folder, names in changed.items():
            if folder in self._homes and all(name.startswith(FILE_NAME.encode()) for name in names):
                if self._is_news(folder):
                    self._tell(folder)
            else:
                self._tell(folder)

    def _is_news(self, home: Path) -> bool:
        """Return whether another process has written to the journal."""
        self._follow(home)
        if home not in self._journals:
            return False
        db, before = self._journals[home]
        try:
            now = _version(db)
        except sqlite3.Error:
            del self._journals[home]
            return True
        self._journals[home] = (db, now)
        return now != before

    def _tell(self, folder: Path) -> None:
        for listener in self._listeners:
            if folder in listener.folders or (folder in self._homes and listener.home in (None, folder)):
                listener.news.set()

    def _close(self) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
        self._fd, self._watched = None, {}
        for db, _ in self._journals.values():
            db.close()
        self._journals = {}


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA data_version").fetchone()[0])
