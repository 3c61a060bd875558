"""A client of Kubernetes' API that blocks, for `submit`, `jobs`, `show`, `logs` and `stop`.

The owner uses a client process instead (`holdfast.platforms.kubernetes.client`). The library lightkube provides the
connection and the credentials. It is imported only when a client is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.platforms.kubernetes.client.api_server import NoClient, configuration, meant
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble, Method
from holdfast.platforms.kubernetes.objects.discovery import ServerCapabilities, resources_of, version_of, versions_of
from holdfast.untrusted import Malformed, json_value

#: Time limit of a request, in seconds. It exceeds the ten seconds that Kubernetes gives a webhook.
LIMIT_S = 20.0
CONNECT_S = 5.0
MOST_LINE_BYTES = 4 << 20
_PATCH = "application/merge-patch+json"


class BlockingClient:
    """A connection to one API server: `with BlockingClient.here() as api: api.get("/version")`.

    The returned `Answered` says whether a request failed. Only `here`, `lines` and `log` raise exceptions.
    """

    def __init__(self, client: Any, server: str, namespace: str) -> None:
        """`client`: a lightkube client.
        `server`: address of the API server, for messages.
        `namespace`: default namespace of the requests.
        """
        self._client = client
        #: Address of the API server, for messages.
        self.server = server
        #: Namespace of the kubeconfig's context, or of the pod in which this process runs.
        self.namespace = namespace

    @classmethod
    @contextmanager
    def here(cls) -> Iterator[BlockingClient]:
        """Connect to the API server that KUBECONFIG, a pod's service account or `~/.kube/config` names.

        Raises `NoClient`.
        """
        config = configuration()
        import httpx2  # imported late: the import takes a quarter of a second
        from lightkube.config.client_adapter import Client, ConnectionParams
        from lightkube.core.exceptions import ConfigError

        try:
            client = Client(config, ConnectionParams(timeout=httpx2.Timeout(LIMIT_S, connect=CONNECT_S)))
        except (ConfigError, OSError, ValueError, AssertionError) as error:
            raise NoClient(f"the cluster {config.cluster.server} cannot be asked: {error}") from None
        try:
            yield cls(client, str(config.cluster.server), config.namespace or "default")
        finally:
            client.close()

    def get(self, path: str, **query: str) -> Answered:
        return self.ask(Method.GET, path, query=query)

    def create(self, path: str, body: Any, *, only_judge: bool = False) -> Answered:
        """Create an object. `only_judge`: the server validates the object and does not store it."""
        return self.ask(Method.POST, path, body=body, query={"dryRun": "All"} if only_judge else {})

    def patch(self, path: str, body: Any) -> Answered:
        """Apply a JSON merge patch to an object."""
        return self.ask(Method.PATCH, path, body=body)

    def delete(self, path: str) -> Answered:
        """Delete an object. Kubernetes then deletes its dependents in the background."""
        return self.ask(Method.DELETE, path, query={"propagationPolicy": "Background"})

    def ask(
        self, method: Method, path: str, *, query: Mapping[str, str] | None = None, body: Any = None, text: bool = False
    ) -> Answered:
        """Send one request and wait for the answer. `text`: the answer is plain text, such as a log, and not JSON.

        `query`: query parameters of the URL. `body`: the object that is sent as JSON.
        """
        import httpx2

        headers = {"Accept": "*/*" if text else "application/json"}
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = _PATCH if method is Method.PATCH else "application/json"
        try:
            found = self._client.request(method.value, path, params=dict(query or {}), content=content, headers=headers)
        except httpx2.TimeoutException:
            return Answered(
                number=0, trouble=ApiTrouble.SLOW, said=f"the API server {self.server} has not answered in time"
            )
        except httpx2.HTTPError as error:
            words = str(error) or type(error).__name__
            return Answered(
                number=0, trouble=ApiTrouble.AWAY, said=f"the API server {self.server} does not answer ({words})"
            )
        except Exception as error:  # a credential plug-in may raise any error
            return Answered(number=0, trouble=ApiTrouble.FAILED, said=f"{self.server} cannot be asked: {error}")
        return _answer(found, text)

    @contextmanager
    def lines(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[str]]:
        """Yield the lines of a streamed answer such as a watch.

        Raises `BrokenAnswer` if the request or the stream fails.
        """
        import httpx2

        with self._stream(path, query, timeout=httpx2.Timeout(None, connect=CONNECT_S)) as found:
            yield found.iter_lines()

    @contextmanager
    def log(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """Yield a pod's log in blocks as they arrive. Raises `BrokenAnswer` if the request or the stream fails."""
        with self._stream(path, query) as found:
            yield found.iter_bytes()

    @contextmanager
    def _stream(self, path: str, query: Mapping[str, str], **how: Any) -> Iterator[Any]:
        """Yield a streamed answer. Raises `BrokenAnswer` if the request or the stream fails."""
        import httpx2

        try:
            with self._client.stream("GET", path, params=dict(query), **how) as found:
                if not found.is_success:
                    found.read()
                    raise BrokenAnswer(_answer(found, False))
                yield found
        except httpx2.HTTPError as error:
            words = str(error) or type(error).__name__
            raise BrokenAnswer(
                Answered(number=0, trouble=ApiTrouble.AWAY, said=f"the connection to {self.server} ended ({words})")
            ) from None

    def has(self) -> ServerCapabilities:
        """Return the server's version and API groups, as far as this user may read them."""
        kinds = {}
        for version in versions_of(self.get("/apis").body):
            found = self.get(f"/apis/{version}")
            if found.ok:
                kinds[version] = resources_of(found.body)
        return ServerCapabilities(version=version_of(self.get("/version").body), kinds=kinds)


class BrokenAnswer(Exception):
    """A streamed request failed, or its stream broke off. `answer`: the kind of failure, with its description."""

    def __init__(self, answer: Answered) -> None:
        super().__init__(answer.said)
        self.answer = answer


def _answer(found: Any, text: bool) -> Answered:
    if text and found.is_success:
        return Answered(number=0, status=found.status_code, body=found.text)
    try:
        body = json_value(found.content) if found.content else None
    except Malformed:
        body = None
    trouble, reason, said = meant(found.status_code, body)
    return Answered(number=0, status=found.status_code, body=body, trouble=trouble, reason=reason, said=said)
