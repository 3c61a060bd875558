"""A server that answers as Kubernetes' API does, with the troubles that a test asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: A status and an object; a list of objects as an answer to a watch: they are sent, then the connection ends.
ApiReply = tuple[int, Any]


class Asked:
    """One request."""

    def __init__(self, method: str, path: str, query: dict[str, str], body: Any, token: str) -> None:
        self.method, self.path, self.query, self.body, self.token = method, path, query, body, token

    @property
    def watches(self) -> bool:
        return self.query.get("watch") == "true"


@contextmanager
def api(answer: Callable[[Asked], ApiReply | None], place: Path) -> Iterator[dict[str, str]]:
    """An environment in which the client finds this server. `answer`: None: the connection is cut."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, parts.path, query, body, self.headers.get("Authorization", ""))
            found = answer(asked)
            if found is None:
                self.close_connection = True
                self.connection.close()
                return
            status, item = found
            lines = [json.dumps(each).encode() + b"\n" for each in item] if isinstance(item, list) else None
            data = b"".join(lines) if lines is not None else json.dumps(item).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - the names that http.server looks for

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in http.server
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    config = place / "kubeconfig"
    config.write_text(kubeconfig(url, {"token": "secret"}))
    try:
        yield {"KUBECONFIG": str(config), "PATH": "/usr/bin:/bin"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(url: str, user: dict[str, Any]) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def status(code: int, reason: str, message: str) -> ApiReply:
    """A refusal, as the API server words it."""
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


def list_reply(version: int, *items: Any, more: str = "") -> ApiReply:
    return 200, {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def pod_document(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "managedFields": [{"manager": "x"}]}}
