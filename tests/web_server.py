"""A web server that cuts, lies, stalls and refuses: what a path asks for.

/file/…         the content, with a strong ETag, in whole or by range
/plain/…        the content, from the beginning only, without an ETag
/cut/N/…        a first request gets N bytes of a longer answer, and the connection is closed; later ones all
/changed/N/…    the same, and after the cut it is another content with another ETag
/busy/N/…       503 to the first N requests
/status/N/…     status N
/nolength/…     the content without a Content-Length: the end of the connection is its end
/range/N/…      206 with bytes from N on, whatever the request says
/claims/TEXT/…  the content, with this text as its Content-Length
/short/…        less than its Content-Length says
/endless/…      no length, and no end
/stalls/…       100 bytes of the content, and then nothing
/chunkcut/…     chunks, and no last one
/login/…        the content for user ada with the password geheim, else 401
/moved/…        a redirect to `elsewhere` with the rest of the path
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGIN = "Basic " + base64.b64encode(b"ada:geheim").decode()


class Web:
    """One server on a port of 127.0.0.1. `content` is what it has; `asked` what it was asked for."""

    def __init__(self, content: bytes, context: Any = None, elsewhere: str = "") -> None:
        self.content = content
        self.elsewhere = elsewhere
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.counts: dict[str, int] = {}
        self.released = threading.Event()
        web = self

        class Handler(_Handler):
            server_web = web

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def web_server(content: bytes, context: Any = None, elsewhere: str = "") -> Iterator[Web]:
    web = Web(content, context, elsewhere)
    try:
        yield web
    finally:
        web.close()


class _Handler(BaseHTTPRequestHandler):
    server_web: Web
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):
            pass  # the other side has had enough, or speaks no TLS with us

    def do_GET(self) -> None:
        web = self.server_web
        web.asked.append((self.path, dict(self.headers.items())))
        kind, _, rest = self.path.strip("/").partition("/")
        count = web.counts[self.path] = web.counts.get(self.path, 0) + 1
        match kind:
            case "cut" | "changed":
                if kind == "changed" and count > 1:
                    web.content = bytes(reversed(web.content))
                    web.counts[self.path] = -(10**6)
                self._whole(ranges=True, stop=int(rest.partition("/")[0]) if count == 1 else None)
            case "busy":
                if count <= int(rest.partition("/")[0]):
                    self._status(503, {"Retry-After": "0"})
                else:
                    self._whole(ranges=True)
            case "status":
                self._status(int(rest.partition("/")[0]))
            case "plain":
                self._whole(ranges=False)
            case "nolength":
                self._open_end(web.content)
            case "range":
                begin = rest.partition("/")[0]
                self._head(206, {"Content-Range": f"bytes {begin}-{begin}/*", "Content-Length": "1", "ETag": '"a"'})
                self.wfile.write(b"x")
            case "claims":
                self._head(200, {"Content-Length": rest.partition("/")[0]})
                self.wfile.write(web.content)
                self.close_connection = True
            case "short":
                self._head(200, {"Content-Length": str(len(web.content) * 10)})
                self.wfile.write(web.content)
                self.close_connection = True
            case "endless":
                self._open_end(b"")
                while not web.released.is_set():
                    self.wfile.write(b"x" * 65536)
            case "stalls":
                self._head(200, {"Content-Length": str(len(web.content))})
                self.wfile.write(web.content[:100])
                self.wfile.flush()
                web.released.wait(60)
                self.close_connection = True
            case "chunkcut":
                self._head(200, {"Transfer-Encoding": "chunked"})
                self.wfile.write(f"{len(web.content):x}\r\n".encode() + web.content + b"\r\n")
                self.close_connection = True
            case "login" if self.headers.get("Authorization") != LOGIN:
                self._status(401, {"WWW-Authenticate": "Basic"})
            case "moved":
                self._status(302, {"Location": f"{web.elsewhere}/{rest}"})
            case _:
                self._whole(ranges=True)

    def do_HEAD(self) -> None:
        self.do_GET()  # only of paths that have no content

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _status(self, status: int, headers: dict[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": "0", **(headers or {})})

    def _open_end(self, content: bytes) -> None:
        self._head(200, {"Connection": "close"})
        self.wfile.write(content)
        self.close_connection = True

    def _whole(self, *, ranges: bool, stop: int | None = None) -> None:
        content = self.server_web.content
        tag = f'"{hash(content):x}"'
        wanted, at = self.headers.get("Range", ""), 0
        if ranges and wanted.startswith("bytes=") and self.headers.get("If-Range", tag) == tag:
            at = int(wanted.removeprefix("bytes=").partition("-")[0])
        headers = {"Content-Length": str(len(content) - at)}
        if ranges:
            headers["ETag"] = tag
        if at:
            headers["Content-Range"] = f"bytes {at}-{len(content) - 1}/{len(content)}"
        self._head(206 if at else 200, headers)
        self.wfile.write(content[at:] if stop is None else content[at:stop])
        if stop is not None:
            self.close_connection = True
