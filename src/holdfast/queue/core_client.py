"""Sends requests to the core of this machine's queue, and starts a core if none runs."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.queue.core_messages import (
    ANSWER_BYTES,
    AwaitEnd,
    CoreAnswer,
    ListQueue,
    QueueRow,
    Request,
    answer_of,
    line_of,
)
from holdfast.queue.core_place import CorePlace
from holdfast.queue.core_records import counts
from holdfast.safe_files import open_file
from holdfast.untrusted import Malformed

#: How long a command waits for the core's answer, in seconds.
ANSWER_S = 30.0
#: How long a command waits for a new core to listen, in seconds.
START_S = 20.0
MOST_LOG_BYTES = 1 << 20
#: Variables of a job or a login that the core must not inherit.
_OF_A_STARTER = ("HOLDFAST_JOB", "HOLDFAST_ATTEMPT", "HOLDFAST_PLATFORM_RUN", "RANK", "LOCAL_RANK", "WORLD_SIZE")


class NoCore(HoldfastError):
    """No core runs, or it does not answer."""


def ask(home: Path, request: Request, *, start: bool, limit_s: float | None = ANSWER_S) -> CoreAnswer | None:
    """Send a request to the core, and return its answer. Return None if no core runs and `start` is false.

    `start`: start a core if none runs. `limit_s`: how long to wait for the answer; None: without a limit. A core that
    dies is back at once, so a lost connection is tried again. Raises `NoCore`.
    """
    place = CorePlace.here(home)
    for _ in range(3):
        try:
            connection = place.connect(ANSWER_S)
        except OSError:
            if not start:
                return None
            start_core(place)
            continue
        with connection:
            try:
                return _answer(connection, request, limit_s)
            except TimeoutError:
                raise NoCore(
                    f"the core of {home} did not answer within {limit_s:g} s", hint=f"tail {place.log}"
                ) from None
            except (OSError, Malformed):
                continue
    raise NoCore(f"the core of {home} ends again and again", hint=f"tail {place.log}")


def ask_if_any(home: Path, request: Request, *, limit_s: float | None = ANSWER_S) -> CoreAnswer | None:
    """Send a request to the core, and start one if jobs wait or run. Return None if there is no core and no job."""
    return ask(home, request, start=any(counts(CorePlace.here(home).records)), limit_s=limit_s)


class EndWatch:
    """One command's wait for the end of a job. A core that dies is back at once, so the watch connects again."""

    def __init__(self, home: Path, job_id: str) -> None:
        self._place = CorePlace.here(home)
        self._request = line_of(AwaitEnd(id=job_id))
        self._connection: socket.socket | None = None

    def ended(self, limit_s: float) -> bool:
        """Wait for at most `limit_s` seconds. Return whether the job has ended. Raises `NoCore`."""
        if self._connection is None:
            self._connection = self._connected()
            if self._connection is None:
                return True  # no core runs, and its records have no job
            self._connection.sendall(self._request)
        if not select.select([self._connection], [], [], limit_s)[0]:
            return False
        try:
            answered = bool(self._connection.recv(1 << 16))
        except OSError:
            answered = False
        if not answered:
            self.close()
        return answered

    def _connected(self) -> socket.socket | None:
        for _ in range(3):
            try:
                return self._place.connect(ANSWER_S)
            except OSError:
                if not any(counts(self._place.records)):
                    return None
                start_core(self._place)
        raise NoCore(f"the core of {self._place.home} ends again and again", hint=f"tail {self._place.log}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rows_of(home: Path) -> tuple[QueueRow, ...]:
    """Return the jobs that wait or run. Raises `NoCore`."""
    answer = ask_if_any(home, ListQueue())
    return answer.rows if answer is not None else ()


def _answer(connection: socket.socket, request: Request, limit_s: float | None) -> CoreAnswer:
    connection.settimeout(limit_s)
    connection.sendall(line_of(request))
    read = bytearray()
    while not read.endswith(b"\n") and len(read) < ANSWER_BYTES:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionResetError("the core ended")
        read += part
    return answer_of(bytes(read))


def start_core(place: CorePlace) -> None:
    """Start a core, apart from this process: in a session of its own, in `/`, with no inherited descriptor. Return when
    it listens, or when another core does. Raises `NoCore`.
    """
    try:
        place.make()
        log = open_file(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise NoCore(
            f"the core cannot start: {error.filename or place.directory}: {error.strerror}", hint=f"ls -ld {place.home}"
        ) from None
    ready, told = os.pipe()
    try:
        if os.fstat(log).st_size > MOST_LOG_BYTES:
            os.ftruncate(log, 0)
        environment = {name: value for name, value in os.environ.items() if name not in _OF_A_STARTER}
        subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast", "core", "serve", "--ready-fd", str(told)],
            cwd="/",
            env={**environment, "HOLDFAST_HOME": str(place.home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(told,),
        ).returncode = 0  # this process ends before the core, so nothing waits for it
        os.close(told)
        told = -1
        _await(ready, place)
    finally:
        os.close(ready)
        os.close(log)
        if told >= 0:
            os.close(told)


def _await(fd: int, place: CorePlace) -> None:
    """Wait until the new core has closed its end of the pipe: it listens, or has ended since another core runs."""
    if not select.select([fd], [], [], START_S)[0]:
        raise NoCore(f"the core did not start within {START_S:g} s", hint=f"tail {place.log}")
    try:
        place.connect(ANSWER_S).close()
    except OSError:
        raise NoCore("the core ended at its start", hint=f"tail {place.log}") from None
