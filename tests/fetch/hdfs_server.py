"""A server that speaks WebHDFS as Hadoop's page of it says: a name node that redirects reads to a data node.

No package on PyPI has a real HDFS; this one has the protocol's own words for status, listings, reads and errors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

WEBHDFS = "/webhdfs/v1"


class Hdfs:
    """`files`: path → content. `asked`: the operations, in order."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        hdfs = self

        class Name(_Name):
            hdfs_of = hdfs

        class Data(_Data):
            hdfs_of = hdfs

        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Name, Data)]
        self.port, self.data_port = (server.server_address[1] for server in self._servers)
        self._threads = [threading.Thread(target=one.serve_forever, args=(0.05,), daemon=True) for one in self._servers]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def hdfs_server(files: dict[str, bytes]) -> Iterator[Hdfs]:
    hdfs = Hdfs(files)
    try:
        yield hdfs
    finally:
        hdfs.close()


class _Quiet(BaseHTTPRequestHandler):
    hdfs_of: Hdfs

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _Name(_Quiet):
    def do_GET(self) -> None:
        hdfs, parts = self.hdfs_of, urlsplit(self.path)
        path, query = parts.path.removeprefix(WEBHDFS).rstrip("/") or "/", parse_qs(parts.query)
        operation = query["op"][0].upper()
        hdfs.asked.append(operation)
        below = sorted({name[len(path) + 1 :].partition("/")[0] for name in hdfs.files if name.startswith(f"{path}/")})
        if path.startswith("/secret") and query.get("user.name") != ["ada"]:
            self._error(403, "AccessControlException", f"Permission denied: user=dr.who, access=READ, inode={path!r}")
        elif path not in hdfs.files and not below:
            self._error(404, "FileNotFoundException", f"File does not exist: {path}")
        elif operation == "GETFILESTATUS":
            self._json({"FileStatus": self._status(path, "")})
        elif operation == "LISTSTATUS":
            found = [self._status(f"{path}/{name}", name) for name in below] or [self._status(path, "")]
            self._json({"FileStatuses": {"FileStatus": found}})
        else:
            place = f"http://127.0.0.1:{hdfs.data_port}{self.path}"
            self.answer(307, b"", {"Location": place})

    def _status(self, path: str, suffix: str) -> dict[str, object]:
        content = self.hdfs_of.files.get(path)
        return {
            "pathSuffix": suffix,
            "type": "DIRECTORY" if content is None else "FILE",
            "length": len(content or b""),
            "modificationTime": 1_700_000_000_000 + hash(content) % 1000,
            "blockSize": 134217728,
            "permission": "644",
        }

    def _json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, kind: str, message: str) -> None:
        error = {"RemoteException": {"exception": kind, "javaClassName": f"x.{kind}", "message": message}}
        self.answer(status, json.dumps(error).encode(), {"Content-Type": "application/json"})


class _Data(_Quiet):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        content = self.hdfs_of.files[parts.path.removeprefix(WEBHDFS)]
        at = int(query.get("offset", ["0"])[0])
        end = at + int(query["length"][0]) if "length" in query else len(content)
        self.answer(200, content[at:end])
