"""Ends the proxies that a service mesh has added to the owner's pod. Without this the pod would outlive the job.

A proxy that runs as a native sidecar (Kubernetes 1.29) ends with the pod's containers. An older one runs until a
process of its pod requests its end.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from contextlib import closing

#: Port and path of the request that ends a proxy: for Istio's pilot-agent, then for Linkerd's proxy. Source: their
#: documentation about Jobs.
ENDPOINTS = ((15020, "/quitquitquit"), (4191, "/shutdown"))
#: Time limit of one request, in seconds. If no process listens on the port, the request fails at once.
LIMIT_S = 2.0


def end_sidecars(endpoints: Iterable[tuple[int, str]] = ENDPOINTS) -> tuple[int, ...]:
    """Ask each known proxy in this pod to exit. Return the ports that answered.

    After that this pod can send nothing through the proxies.
    """
    answered = []
    for port, path in endpoints:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
            try:
                connection.request("POST", path)
                connection.getresponse().read(1024)
            except (OSError, http.client.HTTPException):
                continue
            answered.append(port)
    return tuple(answered)
