"""The web application: addresses, their pages and JSON forms, static files, and live events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from holdfast.errors import HoldfastError
from holdfast.metrics.prometheus_text import CONTENT_TYPE, metrics_text
from holdfast.model.codec import encode
from holdfast.record.job_directory import logs_of
from holdfast.record.owner_lock import OwnerLiveness, life_of
from holdfast.record.state_directory import job_dir
from holdfast.report.swimlane import STYLE
from holdfast.web import (
    checks_page,
    devices_page,
    failure_group_page,
    failures_page,
    front_page,
    goodput_page,
    jobs_page,
    moment_page,
    rank_page,
    web_job_page,
)
from holdfast.web.html_rendering import Rendering
from holdfast.web.live_events import BEAT_S, RUNNING_BEAT_S, EventListener, Live
from holdfast.web.log_excerpt import blocks
from holdfast.web.offered_changes import Forbidden, fields_of, release_of, report_of, typed
from holdfast.web.page_parts import BadRequest, Home, NoSuchPage, Page, PageRequest
from holdfast.web.rank_page import log_asked
from holdfast.web.token_access import TokenAuth, form_token

#: All pages, in the order of the navigation.
PAGES: tuple[Page, ...] = (
    front_page.PAGE,
    jobs_page.PAGE,
    devices_page.PAGE,
    failures_page.PAGE,
    goodput_page.PAGE,
    checks_page.PAGE,
    failure_group_page.PAGE,
    moment_page.PAGE,
    web_job_page.PAGE,
    rank_page.PAGE,
)

_STATUS: dict[type[HoldfastError], int] = {NoSuchPage: 404, BadRequest: 400, Forbidden: 403}
_STATIC = Path(__file__).parent / "static"


class _Number(IntegerConvertor):
    """A number in an address. Python reads no integer of thousands of digits, and an error would be the answer."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", _Number())


class ServerSetup(NamedTuple):
    """The settings of a server. `clock` returns seconds since the epoch."""

    homes: tuple[Home, ...]
    token: str
    port: int
    clock: Callable[[], float]
    #: Further host names of this machine that requests may use.
    names: tuple[str, ...] = ()


class WebSite:
    """The web application with all pages of one server."""

    def __init__(self, setup: ServerSetup, pages: Sequence[Page] = PAGES) -> None:
        self._setup = setup
        self._pages = tuple(pages)
        self._rendering = Rendering(self._pages, form_token(setup.token))
        self._live: Live | None = None

    def app(self) -> ASGIApp:
        """Return the application, wrapped in the token check."""
        setup = self._setup
        inner = Starlette(
            routes=[
                *(route for page in self._pages for route in self._routes(page)),
                Route("/devices/release", self._release, methods=["POST"]),
                Route("/devices/report", self._report, methods=["POST"]),
                Route("/events", self._events),
                Route("/metrics", self._metrics),
                Route("/favicon.ico", lambda _: Response(status_code=204)),
                Route("/job/{job}/{attempt:number}/{rank:number}/{stream}.log", self._download),
                Route("/static/swimlane.css", lambda _: Response(STYLE, media_type="text/css")),
                Mount("/static", StaticFiles(directory=_STATIC)),
            ],
            exception_handlers={HTTPException: self._told, HoldfastError: self._wrong, sqlite3.Error: self._wrong},
            lifespan=self._lifespan,
        )
        # A slash too many names no other page: `/job//` is the address of a job that does not exist, not of `/job/`.
        inner.router.redirect_slashes = False
        return TokenAuth(inner, token=setup.token, port=setup.port, names=setup.names)

    def _routes(self, page: Page) -> Iterable[Route]:
        async def html(request: Request) -> Response:
            ask = self._ask(request)
            value = await run_in_threadpool(page.read, ask)
            text = await run_in_threadpool(self._rendering.page, page.template, value, ask, request.url.path)
            return HTMLResponse(text)

        async def twin(request: Request) -> Response:
            value = await run_in_threadpool(page.read, self._ask(request))
            return Response(encode(value), media_type="application/json")

        # The `.json` route comes first, because the placeholder `{job}` would also match a name that ends with `.json`.
        return (Route(f"{'/now' if page.path == '/' else page.path}.json", twin), Route(page.path, html))

    async def _metrics(self, _: Request) -> Response:
        """Answer Prometheus. It must send the token in a header: `authorization` in its configuration."""
        homes = [home.path for home in self._setup.homes]
        text = await run_in_threadpool(metrics_text, homes, self._setup.clock())
        return Response(text, media_type=CONTENT_TYPE)

    def _ask(self, request: Request) -> PageRequest:
        path = {name: str(value) for name, value in request.path_params.items()}
        return PageRequest(self._setup.homes, self._setup.clock(), path, dict(request.query_params))

    async def _release(self, request: Request) -> Response:
        return await self._change(request, release_of)

    async def _report(self, request: Request) -> Response:
        return await self._change(request, report_of)

    async def _change(self, request: Request, words_of: Callable[[Mapping[str, str]], list[str]]) -> Response:
        given = await fields_of(request, self._setup.token)
        home = PageRequest(self._setup.homes, self._setup.clock(), {}, {"home": given.get("home", "")}).home()
        done, said = await typed(home, words_of(given))
        return HTMLResponse(self._rendering.done("Done" if done else "Not done", said), 200 if done else 409)

    async def _download(self, request: Request) -> Response:
        name, path = await run_in_threadpool(log_asked, self._ask(request))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(blocks(path), media_type="text/plain; charset=utf-8", headers=headers)

    async def _events(self, request: Request) -> Response:
        assert self._live is not None, "the server has begun"
        if self._live.is_full:
            return Response("event: full\ndata: \n\n", media_type="text/event-stream")
        listener = await run_in_threadpool(self._listener, request.query_params.get("at", ""))
        return StreamingResponse(self._live.news(listener), media_type="text/event-stream")

    def _listener(self, at: str) -> EventListener:
        """Return a listener for changes of the journals, and of the log files of the job in the page's address."""
        for home in self._setup.homes:
            for part in at.partition("?")[0].split("/"):
                folder = job_dir(home.path, part)
                if part and part not in (".", "..") and folder.is_dir():
                    beat_s = RUNNING_BEAT_S if life_of(folder) is OwnerLiveness.ALIVE else BEAT_S
                    return EventListener(home.path, (folder, *_newest(logs_of(home.path, part), at)), beat_s)
        return EventListener(None, ())

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._live = Live(tuple(home.path for home in self._setup.homes))
        yield

    def end(self) -> None:
        """End the event streams, because the server ends."""
        if self._live is not None:
            self._live.end()

    def _told(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "registered for it"
        words = {404: "There is no such page.", 405: "This address does not take that."}
        return self._page(request, error.status_code, words.get(error.status_code, str(error.detail)), "/")

    def _wrong(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HoldfastError):
            return self._page(request, 503, f"the journal cannot be read at the moment: {error}", request.url.path)
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 503)
        return self._page(request, status, error.message, error.hint or "/")

    def _page(self, request: Request, status: int, text: str, to: str) -> Response:
        if request.url.path.endswith(".json"):
            return Response(json.dumps({"error": text}), status, media_type="application/json")
        if request.method == "HEAD":
            return PlainTextResponse("", status)
        to = to if to.startswith("/") else "/"
        return HTMLResponse(self._rendering.trouble(status, text, to), status)


def _newest(logs: Path, at: str) -> tuple[Path, ...]:
    """Return the log directories of the rank in the address, newest attempt first."""
    rank = at.partition("?")[0].rpartition("/")[2]
    if not rank.isdigit():
        return (logs,)
    return (logs, *sorted(logs.glob(f"attempt-*/*-{rank}"), reverse=True))
