"""Fetches a file from a web server, and resumes with a range request if the server supports that.

The fetch depends on the server's exact status, range, validator and length. So it uses Python's own HTTP client, which
also respects the proxy variables. Credentials are sent to the host in the URI, but not to the target of a redirect.
"""

from __future__ import annotations

import base64
import netrc
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import quote, urlsplit

from holdfast.fetch.fetch_failures import FetchError, reaching, refused
from holdfast.fetch.prerequisite_uris import Uri
from holdfast.fetch.source_api import BLOCK, Entry, Opened
from holdfast.model.phrases import Phrase
from holdfast.version import __version__

#: Variables that may name a file of certificate authorities. The authorities in all these files are trusted.
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
MOST_WAIT_S = 300.0
MOST_DIGITS = 30


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities and those from the variables in BUNDLES."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not os.environ.get("SSL_CERT_DIR"):
        # A bundled Python searches for authorities at the paths of the machine on which it was built.
        for path in _SYSTEM:
            if Path(path).is_file():
                context.load_verify_locations(cafile=path)
    for name in BUNDLES:
        path = os.environ.get(name, "")
        try:
            if path and Path(path).is_dir():
                context.load_verify_locations(capath=path)
            elif path:
                context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise FetchError(
                Phrase.TLS_VERIFY_FAILED,
                f"{name}={path} is no file of certificate authorities: {error.strerror or error}",
                f"Set {name} to a file in PEM, or unset it.",
            ) from error
    return context


class WebSource:
    """One file on a web server. `stall_s`: how long the server may send nothing before the fetch fails, in seconds."""

    def __init__(self, uri: Uri, stall_s: float) -> None:
        self._uri = uri
        self._stall_s = stall_s
        self._response: HTTPResponse | None = None
        self._opener: urllib.request.OpenerDirector | None = None

    def entries(self) -> list[Entry]:
        # Some servers refuse a HEAD request or answer it differently, so send none.
        return [Entry(path="")]

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        # If the server has no such range, or sends another one, request the whole file once.
        found = self._requested(offset, mark) or (self._requested(0, "") if offset else None)
        if found is None:
            raise FetchError(
                Phrase.DOWNLOAD_FAILED, f"the server sent another range of {self._uri.shown} than the request's"
            )
        return found

    def _requested(self, offset: int, mark: str) -> Opened | None:
        """Request the file from byte `offset` on. Return None if the server has no such range, or sends another one."""
        self.close()
        shown = self._uri.shown
        with reaching(shown):
            # Quote the address, because urllib sends invalid characters such as a quotation mark unchanged.
            request = urllib.request.Request(quote(self._uri.url, safe="%/:=&?~#+!$,;'@()*[]"))
            request.add_header("User-Agent", f"holdfast/{__version__}")
            # Request the bytes as stored, without compression.
            request.add_header("Accept-Encoding", "identity")
            request.add_header("Accept", "*/*")
            if (login := self._login()) is not None:
                request.add_unredirected_header("Authorization", login)
            if offset:
                request.add_header("Range", f"bytes={offset}-")
                if mark:
                    request.add_header("If-Range", mark)
            if self._opener is None:
                self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trusted()))
            try:
                response: HTTPResponse = self._opener.open(request, timeout=self._stall_s)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 416 and offset:
                    return None
                raise refused(error.code, shown, error.reason, wait_s=_wait(error.headers.get("Retry-After"))) from None
        self._response = response
        at = _began(response) if response.status == 206 else 0
        if at not in (0, offset):
            return None
        length = _number(response.headers.get("Content-Length", ""))
        size = at + length if length is not None and not response.chunked else None
        return Opened(at, size, _mark(response), self._blocks(response, size - at if size is not None else None))

    def _blocks(self, response: HTTPResponse, length: int | None) -> Iterator[bytes]:
        shown, got = self._uri.shown, 0
        while True:
            with reaching(shown):
                # `read1` returns the data that have arrived, so that no received byte is lost when the connection
                # breaks.
                block = response.read1(BLOCK)
            if not block:
                break
            got += len(block)
            yield block
        if length is not None and got < length:
            raise FetchError(
                Phrase.DOWNLOAD_FAILED, f"{shown} ended early: {got} of {length} bytes came, and the connection broke"
            )

    def _login(self) -> str | None:
        user, password = self._uri.user, self._uri.password
        if not user and not password:
            host = urlsplit(self._uri.url).hostname or ""
            try:
                known = netrc.netrc().authenticators(host)
            except (OSError, netrc.NetrcParseError):
                return None
            if known is None:
                return None
            user, password = known[0] or "", known[2] or ""
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def close(self) -> None:
        if self._response is not None:
            try:
                self._response.close()
            except (OSError, HTTPException):
                pass  # the connection is already broken
            self._response = None


def _mark(response: HTTPResponse) -> str:
    """Return the value for a later If-Range header: a strong ETag, or else the date of the last change."""
    tag = response.headers.get("ETag", "")
    if tag.startswith('"'):
        return str(tag)
    return (
        "" if response.headers.get("Accept-Ranges", "").lower() == "none" else response.headers.get("Last-Modified", "")
    )


def _began(response: HTTPResponse) -> int:
    """Return the offset of the first byte in a 206 (partial) response. Return -1 if the headers do not contain it."""
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    begin = rest.partition("-")[0]
    at = _number(begin) if unit.lower() == "bytes" else None
    return -1 if at is None else at


def _number(text: str) -> int | None:
    """Parse a number in a header. Return None if the text is no number, or has more than MOST_DIGITS digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def _wait(text: str | None) -> float | None:
    """Parse the seconds in a Retry-After header. Return None for a date."""
    seconds = _number((text or "").strip())
    return None if seconds is None else min(float(seconds), MOST_WAIT_S)
