"""Fetches from an object store or HDFS through fsspec: one object, or all objects under a prefix or directory.

It requests several byte ranges at a time, so that a partial file can be resumed and one stream does not limit the
speed. The mark is the object's version. A different mark shows that the object has changed since.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.fetch.fetch_failures import FetchError, reaching
from holdfast.fetch.prerequisite_uris import Uri, UriKind
from holdfast.fetch.source_api import MOST_ENTRIES, Entry, Opened
from holdfast.fetch.web_source import BUNDLES
from holdfast.model.phrases import Phrase

RANGE_BYTES = 8 << 20
#: How many byte ranges are requested at the same time. They take 32 MiB of memory.
AHEAD = 4
CONNECT_S = 15.0
WEBHDFS_PORT = 9870


class StoreSource:
    """An object or a tree in a store that fsspec supports. `stall_s`: time limit of one request, in seconds."""

    def __init__(self, uri: Uri, stall_s: float) -> None:
        self._uri = uri
        self._stall_s = stall_s
        with reaching(uri.shown, store=True):
            self._fs, self._path = _s3(uri, stall_s) if uri.kind is UriKind.S3 else _hdfs(uri, stall_s)
        self._pool: ThreadPoolExecutor | None = None

    def entries(self) -> list[Entry]:
        shown = self._uri.shown
        with reaching(shown, store=True):
            if not self._path.endswith("/"):
                try:
                    found = self._fs.info(self._path)
                except FileNotFoundError:
                    found = None
                if found is None:
                    raise FetchError(Phrase.DOWNLOAD_NOT_FOUND, f"the store has nothing at {shown}")
                if found.get("type") != "directory":
                    return [_entry("", found)]
            top = self._path.rstrip("/")
            files = dict(islice(self._files(top), MOST_ENTRIES + 1))
        if len(files) > MOST_ENTRIES:
            raise FetchError(Phrase.DOWNLOAD_TOO_LARGE, f"{shown} has more than {MOST_ENTRIES} files: pack them")
        found = [
            _entry(name[len(top) :].lstrip("/"), info)
            for name, info in sorted(files.items())
            if info.get("type") == "file" and not name.endswith("/")
        ]
        if not found:
            raise FetchError(Phrase.DOWNLOAD_NOT_FOUND, f"the store has nothing under {shown}")
        for entry in found:
            # An object's key may contain any characters, so it may not be a safe path.
            if any(part in ("", ".", "..") for part in entry.path.split("/")) or "\0" in entry.path:
                raise FetchError(Phrase.ARCHIVE_UNSAFE, f"{shown} has a key that is no path: {entry.path!r}")
        return found

    def _files(self, top: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and attributes of each file and directory under `top`. The caller limits the number of entries."""
        if self._uri.kind is UriKind.S3:
            # S3 lists all objects without directories, so let the library stop at the limit of entries.
            yield from self._fs.find(top, detail=True, max_items=MOST_ENTRIES + 1).items()
            return
        for _, folders, files in self._fs.walk(top, detail=True):
            yield from ((info["name"], info) for info in (*folders.values(), *files.values()))

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        size = entry.size or 0
        at = offset if mark and mark == entry.mark and offset <= size else 0
        path = f"{self._path.rstrip('/')}/{entry.path}" if entry.path else self._path
        return Opened(at, size, entry.mark, self._blocks(path, entry, at, size))

    def _blocks(self, path: str, entry: Entry, at: int, size: int) -> Iterator[bytes]:
        shown = self._uri.shown
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="range")
        ahead: deque[tuple[int, Future[bytes]]] = deque()
        begin = at
        while begin < size or ahead:
            while begin < size and len(ahead) < AHEAD:
                end = min(begin + RANGE_BYTES, size)
                ahead.append((end - begin, self._pool.submit(self._fs.cat_file, path, start=begin, end=end)))
                begin = end
            wanted, coming = ahead.popleft()
            with reaching(shown, store=True):
                block = coming.result()
            if len(block) != wanted:
                raise FetchError(
                    Phrase.DOWNLOAD_FAILED, f"{shown}: the store gave {len(block)} of the {wanted} bytes of a range"
                )
            yield block
        if size > at:
            with reaching(shown, store=True):
                self._fs.invalidate_cache()
                now = _entry(entry.path, self._fs.info(path)).mark
            if now != entry.mark:
                raise FetchError(Phrase.DOWNLOAD_CORRUPT, f"{shown} was changed while it was fetched")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _entry(path: str, info: dict[str, Any]) -> Entry:
    size = int(info.get("size") or 0)
    version = info.get("ETag") or info.get("LastModified") or info.get("modificationTime") or ""
    return Entry(path=path, size=size, mark=f"{version}-{size}" if version else "")


def _missing(what: str, error: ImportError) -> FetchError:
    return FetchError(
        Phrase.CREDENTIALS_MISSING,
        f"{what} needs packages that are not installed here: {error.name}",
        "pip install 'holdfast-run[data]' for the Python that runs holdfast, or take the holdfast image.",
    )


def _bundle() -> str:
    return next((path for name in reversed(BUNDLES) if (path := os.environ.get(name, ""))), "")


def _s3(uri: Uri, stall_s: float) -> tuple[Any, str]:
    try:
        from s3fs import S3FileSystem  # imported late: the extra `data` installs it
    except ImportError as error:
        raise _missing("s3://", error) from error
    options: dict[str, Any] = {}
    if uri.user:
        options |= {"key": uri.user, "secret": uri.password}
    client: dict[str, Any] = {}
    if endpoint := uri.options.get("endpoint"):
        client["endpoint_url"] = endpoint
    if region := uri.options.get("region"):
        client["region_name"] = region
    if bundle := _bundle():
        client["verify"] = bundle
    config = {
        "connect_timeout": CONNECT_S,
        "read_timeout": stall_s,
        "retries": {"max_attempts": 1, "mode": "standard"},
        "max_pool_connections": 2 * AHEAD,
    }
    fs = S3FileSystem(
        anon=uri.yes("anon", False),
        client_kwargs=client,
        config_kwargs=config,
        use_listings_cache=False,
        skip_instance_cache=True,
        **options,
    )
    # `ItemFetch` retries, so the library must not retry.
    fs.retries = 1
    parts = urlsplit(uri.url)
    return fs, f"{parts.netloc}{unquote(parts.path)}"


def _hdfs(uri: Uri, stall_s: float) -> tuple[Any, str]:
    try:
        from fsspec.implementations.webhdfs import WebHDFS  # imported late: the extra `data` installs it
    except ImportError as error:
        raise _missing("hdfs://", error) from error

    parts = urlsplit(uri.url)
    https = uri.yes("https", parts.scheme == "swebhdfs")
    user = uri.user or os.environ.get("HADOOP_USER_NAME") or None
    token = os.environ.get("HADOOP_DELEGATION_TOKEN") or None
    fs = WebHDFS(
        parts.hostname or "",
        port=parts.port or WEBHDFS_PORT,
        user=None if token else user,
        password=uri.password or None,
        token=token,
        kerberos=uri.yes("kerberos", False),
        use_https=https,
        session_verify=_bundle() or True,
        skip_instance_cache=True,
    )
    # The requests of this file system have no time limit, so set one.
    fs.session.request = partial(fs.session.request, timeout=(CONNECT_S, stall_s))
    return fs, unquote(parts.path) or "/"
