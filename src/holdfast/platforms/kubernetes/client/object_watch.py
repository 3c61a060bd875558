"""Follow Kubernetes objects of one kind: list them, then watch for changes. Resume the watch if it breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from holdfast.platforms.kubernetes.client.api_server import meant
from holdfast.platforms.kubernetes.objects.client_messages import (
    DOUBT_S,
    ApiTrouble,
    Changed,
    Follow,
    FromClient,
    Listed,
    ObjectChange,
    Unseen,
)
from holdfast.untrusted import Malformed, json_value

#: Number of objects in one page of a list.
PAGE = 100
#: Duration of a watch, in seconds. The server ends it after this time, and the client starts the next. So a connection
#: that has died unnoticed is replaced.
WATCH_S = 60
SILENT_S = WATCH_S + 15.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
MOST_EVENT_BYTES = 4 << 20
_GONE = 410


class _Expired(Exception):
    """The server no longer has the changes since the last seen version, so the objects must be listed again."""


class _Trouble(Exception):
    def __init__(self, trouble: ApiTrouble, said: str) -> None:
        super().__init__(said)
        self.trouble = trouble


class ObjectWatch:
    """Follows the objects of one kind until its task is cancelled."""

    def __init__(self, client: Any, follow: Follow, say: Callable[[FromClient], None]) -> None:
        """`client`: the HTTP client.
        `follow`: selects the objects to follow.
        `say`: called with each message for the owner.
        """
        self._client = client
        self._follow = follow
        self._say = say
        #: The resource version at which the next watch starts. If empty, the objects are listed first.
        self._version = ""
        self._pause_s = FIRST_PAUSE_S
        #: When the API server began to refuse the requests, on the clock of the event loop.
        self._refused_at: float | None = None
        #: The last failure that was reported to the owner, so that it is not reported again.
        self._told = ""

    async def run(self) -> None:
        """Follow the objects until the task is cancelled."""
        import httpx2  # imported late: the package is optional

        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except _Expired:
                self._version = ""
            except _Trouble as error:
                await self._troubled(error.trouble, str(error))
            except httpx2.TimeoutException as error:
                await self._troubled(ApiTrouble.SLOW, f"the API server does not answer in time ({_named(error)})")
            except httpx2.HTTPError as error:
                await self._troubled(ApiTrouble.AWAY, f"the API server does not answer ({_named(error)})")

    async def _troubled(self, trouble: ApiTrouble, said: str) -> None:
        # A first failure may be a short interruption, so report only the second one. An API server that starts refuses
        # requests for a while, so report only a refusal that lasts.
        now = asyncio.get_running_loop().time()
        believed = self._pause_s > FIRST_PAUSE_S
        if trouble is not ApiTrouble.REFUSED:
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at, believed = now, False
        else:
            believed = now - self._refused_at >= DOUBT_S
        if believed and said != self._told:
            self._told = said
            self._say(Unseen(number=self._follow.number, trouble=trouble, said=said))
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        await pause(pause_s)

    def _well(self) -> None:
        self._pause_s, self._told, self._refused_at = FIRST_PAUSE_S, "", None

    async def _list(self) -> None:
        query = {**self._follow.query, "limit": str(PAGE)}
        first = True
        while True:
            answer = await self._client.get(self._follow.path, params=query)
            body = _body(answer)
            if answer.status_code == _GONE:
                raise _Expired  # the server has dropped the list's version between two pages
            trouble, _, said = meant(answer.status_code, body)
            if trouble is not ApiTrouble.NONE or not isinstance(body, dict):
                raise _Trouble(trouble, said or "the API server answers no list")
            meta = body.get("metadata") or {}
            go_on = str(meta.get("continue") or "")
            items = [without_managers(item) for item in body.get("items") or []]
            self._say(Listed(number=self._follow.number, items=items, first=first, last=not go_on))
            if not go_on:
                self._version = str(meta.get("resourceVersion") or "")
                self._well()
                return
            query["continue"], first = go_on, False

    async def _watch(self) -> None:
        query = {
            **self._follow.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        import httpx2

        timeout = httpx2.Timeout(10.0, read=SILENT_S)
        async with self._client.stream("GET", self._follow.path, params=query, timeout=timeout) as answer:
            if answer.status_code == _GONE:
                raise _Expired
            if answer.status_code != 200:
                await answer.aread()
                trouble, _, said = meant(answer.status_code, _body(answer))
                raise _Trouble(trouble, said)
            self._well()
            async for line in answer.aiter_lines():
                if line.strip():
                    self._event(line)

    def _event(self, line: str) -> None:
        """Report one line of a watch to the owner. Raises `_Expired` if the objects must be listed again."""
        try:
            event = json_value(line, most_bytes=MOST_EVENT_BYTES)
        except Malformed:
            raise _Expired from None  # the watch broke off within a line, so the objects are listed again
        kind, item = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
        if not isinstance(item, dict):
            raise _Expired
        if kind == "ERROR":
            if item.get("code") == _GONE:
                raise _Expired
            trouble, _, said = meant(int(item.get("code") or 500), item)
            raise _Trouble(trouble, said)
        version = str((item.get("metadata") or {}).get("resourceVersion") or "")
        if kind in tuple(ObjectChange):
            change = ObjectChange(str(kind))
            self._say(Changed(number=self._follow.number, change=change, item=without_managers(item)))
        self._version = version or self._version


async def pause(seconds: float) -> None:
    """Sleep for this many seconds, while other tasks run."""
    try:
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
    except TimeoutError:
        pass  # the time has passed


def without_managers(item: Any) -> Any:
    """Remove the field `managedFields`, which holdfast does not need. It takes half of an object's size."""
    if isinstance(item, dict) and isinstance(meta := item.get("metadata"), dict):
        meta.pop("managedFields", None)
    return item


def _body(answer: Any) -> Any:
    try:
        return json_value(answer.content)
    except Malformed:
        return None


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__
