"""Admits only requests with the token of the link that `holdfast web` printed.

The token is compared in constant time. A browser keeps it in a cookie that no other site and no script can read. A
request for an unknown host name (DNS rebinding) is refused. A request that changes anything needs a second token, which
only holdfast's own pages have.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_LET_IN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>holdfast</title>
<link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0;url={to}"></head><body><p><a href="{to}">To the page</a></p></body></html>"""
_NO_TOKEN = (
    "This page wants the link that `holdfast web` has printed: it ends with ?token=…\n"
    "Its terminal has it; a new `holdfast web` prints a new one.\n"
)


def form_token(token: str) -> str:
    """Return the token for forms, derived from the link's token. The link's token cannot be computed from it."""
    return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


class TokenAuth:
    """Checks the host name and the token of every request, and adds security headers to each response."""

    def __init__(self, app: ASGIApp, *, token: str, port: int, names: Sequence[str] = ()) -> None:
        """Wrap `app`.

        `token`: the secret of the link. `port`: the server's port, a part of the cookie's name. `names`: host names of
        this machine that requests may use, in addition to numeric addresses and `localhost`.
        """
        self._app = app
        self._token = token
        # a browser shares cookies between all ports of a host, so the name has the port
        self._cookie = f"holdfast-{port}"
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, sealed)

    def _answer(self, scope: Scope) -> Response | None:
        headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
        if not self._is_ours(headers.get("host", "")):
            return PlainTextResponse("This server answers under its own name only.\n", 421)
        if scope["path"].startswith("/static/"):
            return None
        if self._fits(self._in_cookie(headers)) or self._fits(headers.get("authorization", "")[len("Bearer ") :]):
            return None if "token" not in query else self._without_token(scope, query)
        if self._fits(query.get("token", "")):
            return None if scope["path"].endswith((".json", "/metrics")) else self._without_token(scope, query)
        return PlainTextResponse(_NO_TOKEN, 401)

    def _is_ours(self, host: str) -> bool:
        """Return whether the host name is this server's.

        DNS rebinding needs a name, so any numeric address is accepted.
        """
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        name = name.strip("[]").lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True

    def _in_cookie(self, headers: Headers) -> str:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self._cookie].value if self._cookie in cookies else ""

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode())

    def _without_token(self, scope: Scope, query: QueryParams) -> Response:
        """Answer with a small page that sets the cookie and sends the browser to the same address without the token.

        With a redirect, the cookie would be missing if a link on another site led to the address.
        """
        rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
        to = "/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else "")
        safe = "".join(char if char.isalnum() or char in "/?&=%.-_~+:" else "" for char in to).replace("&", "&amp;")
        answer = HTMLResponse(_LET_IN.format(to=safe))
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer
