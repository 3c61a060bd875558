"""The kinds of fetch failures. Each is a failure class in the catalogue, which says who is to blame.

Two context managers translate exceptions: `reaching` for requests to a server, `writing` for access to this node's
disk. An errno has a different meaning in each.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from holdfast.model.phrases import Phrase

#: Failure classes after which another try may succeed.
PASSING = frozenset(
    {
        Phrase.DNS_FAILED,
        Phrase.DOWNLOAD_CORRUPT,
        Phrase.DOWNLOAD_FAILED,
        Phrase.DOWNLOAD_TIMED_OUT,
        Phrase.DOWNLOAD_UNREACHABLE,
        Phrase.NETWORK_UNREACHABLE,
        Phrase.OBJECT_STORE_THROTTLED,
    }
)


class FetchError(Exception):
    """A fetch failed.

    `phrase`: the failure class.
    `words`: one clause for the user. It may contain the URI in its printable form, but no secret.
    `solution`: advice for the user.
    `here`: whether this node caused the failure.
    `wait_s`: the pause before the next try that the server requests, in seconds.
    """

    def __init__(
        self, phrase: Phrase, words: str, solution: str = "", *, here: bool = False, wait_s: float | None = None
    ) -> None:
        super().__init__(words)
        self.phrase = phrase
        self.words = words
        self.solution = solution
        self.here = here
        #: The pause that the server requests (Retry-After), in seconds; None if it requests none.
        self.wait_s = wait_s

    @property
    def passes(self) -> bool:
        """Whether another try may succeed."""
        return self.phrase in PASSING


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn an OSError in the `with` block into a FetchError. The block uses this node's disk at `path`."""
    try:
        yield
    except OSError as error:
        raise _local(error, path) from error


def _local(error: OSError, path: object) -> FetchError:
    what = f"{error.filename or path}: {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC:
            return FetchError(Phrase.DISK_FULL, f"no space is left on the disk for {path}", here=True)
        case errno.EDQUOT:
            return FetchError(Phrase.QUOTA_EXCEEDED, f"the disk quota is used up: {path}", here=True)
        case errno.EROFS:
            return FetchError(Phrase.READ_ONLY_FILESYSTEM, f"the file system is read-only: {what}", here=True)
        case errno.EACCES | errno.EPERM:
            return FetchError(Phrase.PERMISSION_DENIED, f"this user may not write there: {what}")
        case errno.ENAMETOOLONG:
            return FetchError(Phrase.ARCHIVE_UNSAFE, f"a name is longer than this file system takes: {what[:300]}")
        case errno.EIO | errno.ESTALE:
            return FetchError(Phrase.STORAGE_IO_ERROR, f"the disk failed: {what}", here=True)
        case _:
            return FetchError(Phrase.PERMISSION_DENIED, what)


def refused(
    status: int, shown: str, reason: str = "", *, store: bool = False, wait_s: float | None = None
) -> FetchError:
    """Return the failure for a server's HTTP status of 400 or more.

    `shown`: the URI for messages. `reason`: the server's text beside the status. `store`: whether the server is a
    store of objects or files, such as S3 or WebHDFS. `wait_s`: the server's Retry-After, in seconds, or None.
    """
    said = f"{status} {reason}".strip()
    match status:
        case 401 | 403 | 407:
            phrase = Phrase.OBJECT_STORE_AUTH_FAILED if store else Phrase.DOWNLOAD_REFUSED
            return FetchError(phrase, f"the server refused access to {shown}: {said}")
        case 404 | 410:
            return FetchError(Phrase.DOWNLOAD_NOT_FOUND, f"the server has nothing at {shown}: {said}")
        case 408 | 504:
            return FetchError(Phrase.DOWNLOAD_TIMED_OUT, f"the server ran out of time for {shown}: {said}")
        case 429 | 503:
            return FetchError(
                Phrase.OBJECT_STORE_THROTTLED, f"the server asks to come later for {shown}: {said}", wait_s=wait_s
            )
        case _ if status >= 500:
            return FetchError(Phrase.DOWNLOAD_FAILED, f"the server failed for {shown}: {said}")
        case _:
            return FetchError(Phrase.DOWNLOAD_REFUSED, f"the server refused the request for {shown}: {said}")


@contextmanager
def reaching(shown: str, *, store: bool = False) -> Iterator[None]:
    """Turn an exception in the `with` block into a FetchError. The block sends a request to a server.

    `shown`: the URI for messages. `store`: whether the server is an object store or a file system.
    """
    try:
        yield
    except FetchError:
        raise
    except Exception as error:  # libraries wrap system errors in exceptions of their own
        raise _remote(error, shown, store) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, then its causes, the innermost last."""
    seen: set[int] = set()
    todo: list[object] = [error]
    while todo:
        one = todo.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        # aiohttp and botocore store the system error in an attribute.
        todo += [getattr(one, "os_error", None), (getattr(one, "kwargs", None) or {}).get("error")]


def _remote(error: Exception, shown: str, store: bool) -> FetchError:
    chain = list(_chain(error))
    host = shown.partition("://")[2].partition("/")[0] if "://" in shown else shown
    names = {type(one).__name__ for one in chain}
    for one in chain:
        if (status := _status(one)) >= 400:
            return refused(status, shown, store=store)
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return FetchError(Phrase.TLS_VERIFY_FAILED, f"the certificate of {host} is not valid: {one.verify_message}")
        if isinstance(one, socket.gaierror) or "ClientConnectorDNSError" in names or "NameResolutionError" in names:
            return FetchError(Phrase.DNS_FAILED, f"the name {host} has no address")
    if names & {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"}:
        return FetchError(
            Phrase.CREDENTIALS_MISSING,
            f"there are no credentials for {shown}",
            "Give the job keys or a role (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a mounted secret), "
            "or write #anon=yes behind the uri of a public bucket.",
        )
    for one in chain:
        if isinstance(one, ssl.SSLError):
            return FetchError(Phrase.TLS_VERIFY_FAILED, f"TLS with {host} failed: {one.reason or one}")
        if isinstance(one, ConnectionRefusedError):
            return FetchError(Phrase.DOWNLOAD_UNREACHABLE, f"{host} refused the connection")
        if isinstance(one, OSError) and one.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return FetchError(Phrase.NETWORK_UNREACHABLE, f"there is no route to {host}")
    if "ConnectTimeoutError" in names or "ConnectTimeout" in names:
        return FetchError(Phrase.DOWNLOAD_TIMED_OUT, f"{host} did not answer in time")
    if any(isinstance(one, TimeoutError) for one in chain) or names & {"ReadTimeoutError", "ReadTimeout"}:
        return FetchError(Phrase.DOWNLOAD_TIMED_OUT, f"{host} stopped sending")
    if any(isinstance(one, ConnectionError | HTTPException | EOFError) for one in chain):
        return FetchError(Phrase.DOWNLOAD_FAILED, f"the connection to {host} broke: {_said(chain)}")
    if isinstance(error, FileNotFoundError):
        return FetchError(Phrase.DOWNLOAD_NOT_FOUND, f"the server has nothing at {shown}")
    if isinstance(error, PermissionError):
        return refused(403, shown, store=store)
    if isinstance(error, OSError) and error.errno == errno.EBUSY:
        return refused(503, shown, store=store)
    if names & {"EndpointConnectionError", "ClientConnectorError", "NewConnectionError"}:
        return FetchError(Phrase.DOWNLOAD_UNREACHABLE, f"{host} cannot be reached: {_said(chain)}")
    return FetchError(Phrase.DOWNLOAD_FAILED, f"{shown} could not be fetched: {_said(chain)}")


def _status(error: Any) -> int:
    """Return the HTTP status in an error of botocore (a dict) or requests (a response). Return 0 if there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    else:
        found = getattr(response, "status_code", 0)
    return found if isinstance(found, int) else 0


def _said(chain: list[BaseException]) -> str:
    """Return the message of the innermost error whose message has no URL and no object address."""
    for one in reversed(chain):
        text = str(one).strip().split("\n")[0]
        if text and "://" not in text and " at 0x" not in text:
            return f"{text[:200]} ({type(one).__name__})"
    return type(chain[0]).__name__
