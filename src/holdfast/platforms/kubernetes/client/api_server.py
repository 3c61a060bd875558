"""Find the API server and the credentials, as kubectl does or from a pod's service account. Classify its answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.platforms.kubernetes.objects.client_messages import ApiTrouble
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

#: Time limit for connecting to the API server, in seconds.
TRY_S = 10.0


class NoClient(Exception):
    """This process cannot send requests to an API server. The message gives the reason in one sentence."""

    trouble = ApiTrouble.MISSING


def configuration() -> SingleConfig:
    """Read KUBECONFIG if it is set, else the pod's service account, else `~/.kube/config`. Raises `NoClient`."""
    try:
        from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        raise NoClient(f"{error.name} is not installed: pip install 'holdfast-run[kubernetes]'") from None
    named = [path for path in os.environ.get("KUBECONFIG", "").split(":") if path]
    try:
        if named:
            found = KubeConfig.from_file(next((path for path in named if Path(path).is_file()), named[0]))
        elif Path(SERVICE_ACCOUNT, "token").exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            found = KubeConfig.from_service_account()
        else:
            found = KubeConfig.from_file("~/.kube/config")
        config = found.get()
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        raise NoClient(f"no cluster is configured: {error}") from None
    except Exception as error:  # the YAML parser raises exceptions of its own for an invalid file
        raise NoClient(f"the configuration of the cluster cannot be read: {error}") from None
    assert config is not None, "it raises where there is none"
    return config


def client(config: SingleConfig) -> Any:
    """Return an HTTP client with the server's certificate and the user's credentials. Raises `NoClient`.

    If the server rejects a service account's token, the client reads the token's file again, because the kubelet renews
    the file every hour.
    """
    import httpx2
    from lightkube.config.client_adapter import AsyncClient, ConnectionParams
    from lightkube.core.exceptions import ConfigError

    try:
        return AsyncClient(config, ConnectionParams(timeout=httpx2.Timeout(TRY_S)))
    except (ConfigError, OSError, ValueError, AssertionError) as error:
        raise NoClient(f"the cluster {config.cluster.server} cannot be asked: {error}") from None


# ---------------------------------------------------------------------------------- the meaning of the server's answers


_WORDS = 600
_INVALID = frozenset({400, 405, 406, 413, 415, 422})
#: HTTP statuses that mean "try again later". A server sends 500 while it starts or stops, or while it has no etcd.
_AWAY = frozenset({408, 429, 500, 502, 503, 504})


def meant(status: int, body: Any) -> tuple[ApiTrouble, str, str]:
    """Classify an answer of the API server: return the kind of failure, Kubernetes' reason, and a clause for messages.

    `body`: the Status object of a failure. Any other body gives no reason and no message.
    """
    reason, message = words_of(body)
    quoted = f" ({message})" if message else ""
    match status:
        case 200 | 201 | 202 | 204:
            return ApiTrouble.NONE, "", ""
        case 403 if "exceeded quota" in message:
            return ApiTrouble.QUOTA, reason, message
        case 403 if "not yet ready to handle request" in message:
            return ApiTrouble.AWAY, reason, f"the API server answers {status}{quoted}"
        case 401 | 403:
            return ApiTrouble.REFUSED, reason, message or f"the API server refuses it ({status})"
        case 404:
            return ApiTrouble.GONE, reason, message or "the API server knows no such object"
        case 409:
            return ApiTrouble.CONFLICT, reason, message or "the object is there already, or has changed"
        case _ if status in _INVALID:
            return ApiTrouble.INVALID, reason, message or f"the API server does not take it ({status})"
        case _ if status in _AWAY:
            return ApiTrouble.AWAY, reason, f"the API server answers {status}{quoted}"
    return ApiTrouble.FAILED, reason, f"the API server answers {status}{quoted}"


def words_of(body: Any) -> tuple[str, str]:
    """Return reason and message of a Status object; both are empty if the body is no Status object."""
    if not isinstance(body, dict):
        return "", ""
    return one_line(str(body.get("reason") or ""))[:64], one_line(str(body.get("message") or ""))[:_WORDS]
