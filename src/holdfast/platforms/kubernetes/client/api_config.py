"""Where the API server is, and who asks it: as kubectl finds it, with the service account of a pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.platforms.kubernetes.objects.client_messages import ApiTrouble

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

#: How long a connection may take.
TRY_S = 10.0


class NoClient(Exception):
    """No request can be made at all. Its text says why, in one sentence."""

    trouble = ApiTrouble.MISSING


def configuration(environment: dict[str, str] | None = None) -> SingleConfig:
    """KUBECONFIG where it is set, else the pod's service account, else `~/.kube/config`. Raises `NoClient`."""
    try:
        from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        raise NoClient(f"{error.name} is not installed: pip install 'holdfast-run[kubernetes]'") from None
    env = dict(os.environ) if environment is None else environment
    named = [path for path in env.get("KUBECONFIG", "").split(":") if path]
    try:
        if named:
            found = KubeConfig.from_file(next((path for path in named if Path(path).is_file()), named[0]))
        elif Path(SERVICE_ACCOUNT, "token").exists() and "KUBERNETES_SERVICE_HOST" in env:
            found = KubeConfig.from_service_account()
        else:
            found = KubeConfig.from_file("~/.kube/config")
        config = found.get()
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        raise NoClient(f"no cluster is configured: {error}") from None
    except Exception as error:  # a file of configuration that is no YAML: its parser has errors of its own
        raise NoClient(f"the configuration of the cluster cannot be read: {error}") from None
    assert config is not None, "it raises where there is none"
    return config


def client(config: SingleConfig) -> Any:
    """An HTTP client for that server: it trusts its certificate, and proves who asks. Raises `NoClient`.

    A service account's token is read again when the server takes it no more: the kubelet renews it each hour.
    """
    import httpx2
    from lightkube.config.client_adapter import AsyncClient, ConnectionParams
    from lightkube.core.exceptions import ConfigError

    try:
        return AsyncClient(config, ConnectionParams(timeout=httpx2.Timeout(TRY_S)))
    except (ConfigError, OSError, ValueError, AssertionError) as error:
        raise NoClient(f"the cluster {config.cluster.server} cannot be asked: {error}") from None
