"""Groups messages of many jobs with the same cause: the first is sent, then the tenth, the hundredth and so on.

All jobs of a state directory record their messages in one small file, which is replaced as a whole under a lock. The
file contains digests and job ids, but no texts. If it cannot be read or written, every message is sent.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import replace

from holdfast.clock import Clock
from holdfast.model.codec import encode
from holdfast.model.failure_groups import alike, group_of
from holdfast.model.notice_messages import NoticeKind
from holdfast.model.noun_base import Noun
from holdfast.safe_files import open_file, read_file, replace_file
from holdfast.untrusted import Malformed, json_as

#: How long after the first message further messages with the same cause belong to its group, in seconds.
WINDOW_S = 900.0
MOST_TOLD = 200
MOST_JOBS = 20
FILE_NAME = "notices.json"
#: How long to wait for the lock, in seconds. A process that holds it for longer is stuck, so the message is sent.
LOCK_WAIT_S = 3
_MOST_BYTES = 1 << 20
_FINE_PARTS = 7
#: Positions of exception, place, collective and text in a fingerprint.
_WORDS = slice(2, 6)


class MessageGroup(Noun, frozen=True, kw_only=True):
    """The messages about one cause that were recorded up to now."""

    key: str
    #: Time of the first message, in seconds since the epoch.
    since: float
    jobs: int
    #: Ids of the last jobs that had this cause, the newest last.
    last: tuple[str, ...]
    unsent: int = 0


class GroupBook(Noun, frozen=True, kw_only=True):
    """All groups of messages, as stored in the file."""

    told: tuple[MessageGroup, ...] = ()


def key_of(urls: Sequence[str], kind: NoticeKind, fingerprint: str, name: str) -> str:
    """Return the key of a notice's cause. A receiver needs only one of several notices with the same key.

    `urls`: addresses of the receivers.
    `kind`: kind of the notice.
    `fingerprint`: fingerprint of the failure.
    `name`: the job's name.
    A failure without exception, place and text may have any cause, so jobs with different names get different keys.
    The same applies to all hangs.
    """
    parts = fingerprint.split("|")
    told_apart = len(parts) == _FINE_PARTS and any(parts[_WORDS])
    cause = alike(fingerprint) if kind is NoticeKind.HANG_FOUND else group_of(fingerprint)
    known = kind is NoticeKind.DEVICE_HELD or (told_apart and kind is not NoticeKind.HANG_FOUND)
    words = (*urls, kind.value, cause, "" if known else name)
    return blake2b("\0".join(words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def with_message(book: GroupBook, key: str, job: str, now: float) -> tuple[GroupBook, str | None]:
    """Return the book with this message added, and a text about other jobs for the end of the message.

    The text is None if the message must not be sent. The function does no input or output.
    """
    old = next((one for one in book.told if one.key == key), None)
    if old is None or not 0 <= now - old.since < WINDOW_S:
        new = MessageGroup(key=key, since=now, jobs=1, last=(job,))
        words: str | None = ""
        if old is not None and old.unsent:
            words = f"Before, {old.jobs} jobs had the same within {WINDOW_S / 60:g} minutes; {_unsent(old.unsent)}."
    elif job in old.last:
        return book, None  # another owner process of this job has sent the message
    else:
        jobs, last = old.jobs + 1, (*old.last, job)[-MOST_JOBS:]
        if f"{jobs}".strip("0") == "1":
            words = f"{jobs} jobs had the same in {_minutes(now - old.since)}; {_unsent(old.unsent)}: {', '.join(last)}"
            new = replace(old, jobs=jobs, last=last, unsent=0)
        else:
            words = None
            new = replace(old, jobs=jobs, last=last, unsent=old.unsent + 1)
    others = sorted((one for one in book.told if one.key != key), key=lambda one: one.since)
    return GroupBook(told=(*others[-(MOST_TOLD - 1) :], new)), words


def enter(home: Path, key: str, job: str) -> str | None:
    """Record this message in the state directory. Return the text about other jobs, or None, as in `with_message`.

    If the file cannot be used, the text is empty.
    """
    try:
        with _Locked(home) as book:
            new, words = with_message(book.read(), key, job, Clock().now())
            book.write(new)
            return words
    except (OSError, Malformed):
        return ""


def failed(home: Path, key: str, job: str) -> None:
    """Forget a message whose delivery failed, so that an equal message of the next job is not withheld."""
    try:
        with _Locked(home) as book:
            others = tuple(one for one in book.read().told if one.key != key or one.last[-1:] != (job,))
            book.write(GroupBook(told=others))
    except (OSError, Malformed):
        pass  # `enter` cannot use the file either, so it lets every message be sent


def _minutes(seconds: float) -> str:
    whole = max(1, round(seconds / 60))
    return f"{whole} minute{'s'[: whole != 1]}"


def _unsent(number: int) -> str:
    return f"{number} of them sent no message"


class _Locked:
    """Reads and writes the file under its lock. Entering the context raises OSError if the lock is not free in time."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE_NAME
        self._fd = -1

    def __enter__(self) -> _Locked:
        self._fd = open_file(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LOCK_WAIT_S)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._fd)
            raise
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self) -> GroupBook:
        try:
            return json_as(read_file(self._path, _MOST_BYTES), GroupBook)
        except FileNotFoundError:
            return GroupBook()
        except Malformed:
            return GroupBook()  # the file is damaged, or from another version: start with an empty book

    def write(self, book: GroupBook) -> None:
        replace_file(self._path, encode(book))


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError("another process holds the lock")
