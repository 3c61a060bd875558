"""The client process: reads the owner's requests, sends them to the API server, and writes the answers."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from holdfast.platforms.kubernetes.client.api_server import NoClient, client, configuration, meant
from holdfast.platforms.kubernetes.client.object_watch import ObjectWatch
from holdfast.platforms.kubernetes.objects.client_messages import (
    MOST_LINE_BYTES,
    Answered,
    ApiTrouble,
    Call,
    Drop,
    Follow,
    FromClient,
    Method,
    ToClient,
    Unseen,
)
from holdfast.untrusted import Malformed, json_as, json_value

#: Maximum number of simultaneous requests. Further requests wait in the pipe.
AT_A_TIME = 32
_PATCH = "application/merge-patch+json"


def main() -> int:
    """Serve the owner's requests until standard input ends."""
    try:
        config = configuration()
    except NoClient as error:
        return _none(str(error))
    asyncio.run(_Serving(config).serve())
    return 0


def _none(said: str) -> int:
    """Answer every request with the error `said`, because no cluster is configured."""
    for line in sys.stdin.buffer:
        try:
            asked = json_as(line, ToClient, most_bytes=MOST_LINE_BYTES)
        except Malformed:
            return 1
        if isinstance(asked, Call):
            _say(Answered(number=asked.number, trouble=ApiTrouble.MISSING, said=said))
        elif isinstance(asked, Follow):
            _say(Unseen(number=asked.number, trouble=ApiTrouble.MISSING, said=said))
    return 0


def _say(answer: FromClient) -> None:
    """Write a message to the owner. A full pipe blocks this process, so the watches pause and memory stays bounded."""
    data = memoryview(msgspec.json.encode(answer) + b"\n")
    while data:
        data = data[os.write(1, data) :]


class _Serving:
    """Serves the owner's requests. Each request runs in a task of its own."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            self._client = client(self._config)
        except NoClient as error:
            said, self._client = str(error), None
        while line := await reader.readline():
            try:
                asked = json_as(line, ToClient, most_bytes=MOST_LINE_BYTES)
            except Malformed:
                return  # the owner has another version of holdfast, so its requests cannot be read
            match asked:
                case Drop():
                    if (task := self._tasks.pop(asked.number, None)) is not None:
                        task.cancel()
                case Call() if self._client is None:
                    _say(Answered(number=asked.number, trouble=ApiTrouble.MISSING, said=said))
                case Follow() if self._client is None:
                    _say(Unseen(number=asked.number, trouble=ApiTrouble.MISSING, said=said))
                case Call():
                    await self._room.acquire()
                    self._begin(asked.number, self._call(asked)).add_done_callback(lambda _: self._room.release())
                case Follow():
                    self._begin(asked.number, ObjectWatch(self._client, asked, _say).run())
        for task in self._tasks.values():
            task.cancel()

    def _begin(self, number: int, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))
        return task

    async def _call(self, call: Call) -> None:
        import httpx2

        try:
            _say(await asyncio.wait_for(self._made(call), call.limit_s))
        except (TimeoutError, httpx2.TimeoutException):
            said = f"the API server has not answered within {call.limit_s:g} s"
            _say(Answered(number=call.number, trouble=ApiTrouble.SLOW, said=said))
        except httpx2.HTTPError as error:
            said = f"the API server does not answer ({str(error) or type(error).__name__})"
            _say(Answered(number=call.number, trouble=ApiTrouble.AWAY, said=said))
        except Exception as error:  # a credential plug-in may raise any error
            _say(Answered(number=call.number, trouble=ApiTrouble.FAILED, said=f"the request cannot be made: {error}"))

    async def _made(self, call: Call) -> Answered:
        headers = {"Accept": "application/json"}
        content = None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = _PATCH if call.method is Method.PATCH else "application/json"
        answer = await self._client.request(
            call.method.value, call.path, params=dict(call.query), content=content, headers=headers
        )
        try:
            body = json_value(answer.content) if answer.content else None
        except Malformed:
            # The body of a log request is plain text.
            body = answer.text[:MOST_LINE_BYTES] if answer.is_success else None
        trouble, reason, said = meant(answer.status_code, body)
        return Answered(
            number=call.number,
            status=answer.status_code,
            body=body if trouble is ApiTrouble.NONE else None,
            reason=reason,
            trouble=trouble,
            said=said,
        )
