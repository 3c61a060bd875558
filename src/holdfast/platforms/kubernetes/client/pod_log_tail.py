"""Follow the logs of many pods at once, including pods that start later."""

from __future__ import annotations

import asyncio
import calendar
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.platforms.kubernetes.client.api_server import client, configuration
from holdfast.platforms.kubernetes.client.object_watch import ObjectWatch
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Pod, pod
from holdfast.platforms.kubernetes.objects.client_messages import (
    Changed,
    Follow,
    FromClient,
    Listed,
    ObjectChange,
    Unseen,
)
from holdfast.platforms.kubernetes.objects.job_status import is_over

#: How long logs are still read after the job's end, in seconds. A kubelet reports the end of a container about a second
#: late.
LAST_S = 10.0
#: Maximum number of pods whose logs are followed. Each takes a connection, and the client opens at most a hundred.
MOST_PODS = 90
#: How often in a row to try to resume a pod's log after it broke off.
MOST_TRIES = 5


class LogStart(msgspec.Struct, frozen=True, kw_only=True):
    """The position in each pod's log at which reading starts."""

    #: Time of the first line to read, in seconds since the epoch, rounded down; None: read from the log's start.
    since: float | None = None
    #: How many of the log's last lines to read before following it; None: all.
    lines: int | None = None
    #: Returns whether a line counts toward `lines`, from its pod, its time and its text; None: each line counts.
    fits: Callable[[Pod, int | None, bytes], bool] | None = None


class Tail:
    """Follows the logs of one job's pods."""

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        take: Callable[[Pod, int | None, bytes], None],
        say: Callable[[str], None],
        wanted: Callable[[Pod], bool],
        start: LogStart,
    ) -> None:
        """Prepare to follow the logs of job `name`. `run` follows them.

        `take(pod, at, line)`: called for each line; `at` is in nanoseconds since the epoch, or None if unknown.
        `say`: called with a sentence about a failure.
        `wanted(pod)`: returns whether to follow the pod.
        `start`: where reading begins in each log.
        """
        self._namespace = namespace
        self._name = name
        self._take = take
        self._say = say
        self._wanted = wanted
        self._start = start
        #: Maps a pod's uid to the task that reads its log.
        self._read: dict[str, asyncio.Task[None]] = {}
        #: Uids of pods whose containers have not started yet, as far as their kubelets have reported.
        self._awaited: set[str] = set()
        #: Whether a complete list of the job's pods has been received.
        self._listed = False
        #: Set while every known pod's container has started.
        self._settled = asyncio.Event()
        #: Set when the job has ended.
        self._over = asyncio.Event()
        #: Whether the message about more than `MOST_PODS` pods has been printed.
        self._many = False

    async def run(self) -> None:
        """Follow the logs until the job has ended and they are read to the end. Raises `NoClient`."""
        async with client(configuration()) as server:
            self._server = server
            here = f"/namespaces/{self._namespace}"
            own = {"fieldSelector": f"metadata.name={self._name}"}
            label = {"labelSelector": object_names.selector(self._name)}
            follows = (
                Follow(number=1, path=f"/apis/batch/v1{here}/jobs", query=own),
                Follow(number=2, path=f"/api/v1{here}/pods", query=label),
            )
            tasks = [asyncio.create_task(ObjectWatch(server, each, self._on_message).run()) for each in follows]
            await self._over.wait()
            try:
                await asyncio.wait_for(self._the_rest(), LAST_S)
            except TimeoutError:
                pass  # `LAST_S` has passed: some pod hangs, or its kubelet never reported its start
            for task in (*tasks, *self._read.values()):
                task.cancel()

    async def _the_rest(self) -> None:
        """After the job's end, wait for pods that kubelets report late, and read their logs to the end."""
        await self._settled.wait()
        if self._read:
            await asyncio.wait(self._read.values())

    def _on_message(self, news: FromClient) -> None:
        match news:
            case Listed(number=1):
                # The job has been deleted if the complete list of jobs does not contain it.
                if not news.items or any(is_over(item) for item in news.items):
                    self._over.set()
            case Changed(number=1):
                if news.change is ObjectChange.DELETED or is_over(news.item):
                    self._over.set()
            case Listed():
                for item in news.items:
                    self._of_pod(pod(item))
                self._listed = self._listed or news.last
            case Changed():
                found = pod(news.item)
                if news.change is ObjectChange.DELETED:
                    self._awaited.discard(found.uid)
                else:
                    self._of_pod(found)
            case Unseen():
                self._say(news.said)
        if self._listed and not self._awaited:
            self._settled.set()
        else:
            self._settled.clear()

    def _of_pod(self, found: Pod) -> None:
        """Start to read the log of a pod whose container has started."""
        container = container_of(found)
        state = found.container(container)
        if not self._wanted(found) or found.uid in self._read:
            return
        if state is None or not (state.running or state.end):
            if not found.over:
                self._awaited.add(found.uid)
            return
        self._awaited.discard(found.uid)
        if len(self._read) >= MOST_PODS:
            if not self._many:
                self._say(f"the job has more pods than {MOST_PODS}: the others are not followed; type --rank to choose")
            self._many = True
            return
        self._read[found.uid] = asyncio.create_task(self._follow(found, container))

    async def _follow(self, found: Pod, container: str) -> None:
        import httpx2  # imported late: the package is optional

        path = f"/api/v1/namespaces/{self._namespace}/pods/{found.name}/log"
        last: int | None = None
        since, lines, tries = self._start.since, self._start.lines, 0
        while tries < MOST_TRIES:
            tries += 1
            try:
                if lines is not None and self._start.fits is not None:
                    last = await self._last_that_fit(found, path)
                    since, lines = since if last is None else last / 1e9, None
                query = {**query_of(found, since=since, lines=lines), "follow": "true"}
                async for line in self._lines_of(path, query):
                    at, text = timed(line)
                    if last is not None and at is not None and at <= last:
                        continue  # this line was read before the log broke off
                    last, tries = at if at is not None else last, 0
                    self._take(found, at, text)
                return
            except httpx2.HTTPStatusError as error:
                if error.response.status_code in (400, 404):
                    return  # the container has not started, or the pod no longer exists
            except httpx2.HTTPError:
                if last is not None:
                    since, lines = last / 1e9, None

    async def _last_that_fit(self, found: Pod, path: str) -> int | None:
        """Pass on the last lines for which `fits` is true.

        Return the time of the log's last line, in nanoseconds since the epoch; None if unknown.
        """
        start = self._start
        assert start.lines is not None and start.fits is not None, "the caller's condition"
        kept: deque[tuple[int | None, bytes]] = deque(maxlen=start.lines)
        last = None
        async for line in self._lines_of(path, query_of(found, since=start.since, lines=None)):
            at, text = timed(line)
            last = at if at is not None else last
            if start.fits(found, at, text):
                kept.append((at, text))
        for at, text in kept:
            self._take(found, at, text)
        return last

    async def _lines_of(self, path: str, query: Mapping[str, str]) -> Any:
        import httpx2

        timeout = httpx2.Timeout(None, connect=10.0)
        async with self._server.stream("GET", path, params=dict(query), timeout=timeout) as answer:
            answer.raise_for_status()
            rest = b""
            async for block in answer.aiter_bytes():
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    yield line + b"\n"
            if rest:
                yield rest


def follow(tail: Tail) -> None:
    """Follow the logs until the job has ended."""
    asyncio.run(tail.run())


# ------------------------------------------------------------------------------------- splitting a pod's log into lines


#: Maximum length of a log line, in bytes. Longer lines are split.
MOST_LINE_BYTES = 1 << 20


def container_of(found: Pod) -> str:
    """Return the name of the container whose log is shown as the pod's log."""
    return object_names.TASK if found.labels.get(object_names.PART) == object_names.AGENT else object_names.OWNER


def query_of(found: Pod, *, since: float | None, lines: int | None) -> Mapping[str, str]:
    """Return the query parameters for a pod's log.

    `since`: time of the first line, in seconds since the epoch, rounded down.
    `lines`: how many of the log's last lines to read.
    """
    query = {"container": container_of(found), "timestamps": "true"}
    if since is not None:
        query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.floor(max(since, 0.0))))
    if lines is not None:
        query["tailLines"] = str(lines)
    return query


def lines_in(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join blocks of bytes and yield whole lines with their line ends. The last line may have no line end."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > MOST_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


def timed(line: bytes) -> tuple[int | None, bytes]:
    """Split a line into its time, in nanoseconds since the epoch, and its text. The time may be missing (None)."""
    moment, space, text = line.partition(b" ")
    at = _nanoseconds(moment.rstrip(b"\n").decode("ascii", "replace"))
    return (at, text) if at is not None and (space or moment.endswith(b"\n")) else (None, line)


@lru_cache(maxsize=64)
def _seconds(text: str) -> int:
    """Parse a time to whole seconds since the epoch. Results are cached, because many lines have the same second.
    Raises ValueError.
    """
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _nanoseconds(text: str) -> int | None:
    """Parse an RFC 3339 time such as `2026-11-22T21:30:00.123456789Z` or `…+01:00` to nanoseconds since the epoch."""
    try:
        whole = _seconds(text[:19])
        rest = text[19:]
        digits = rest[1:].partition("Z")[0].partition("+")[0].partition("-")[0] if rest.startswith(".") else ""
        zone = rest[len(digits) + bool(digits) :]
        if zone not in ("Z", ""):
            hours, _, minutes = zone[1:].partition(":")
            whole -= {"+": 1, "-": -1}[zone[0]] * (int(hours) * 3600 + int(minutes) * 60)
        return whole * 1_000_000_000 + int(digits[:9].ljust(9, "0") or 0)
    except (ValueError, KeyError):
        return None
