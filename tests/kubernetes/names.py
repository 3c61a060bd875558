"""What CoreDNS is in a cluster: the addresses of each headless service, as a file of hosts for dnsmasq.

`names.py KUBECONFIG HOSTS PID_FILE`: follows the cluster's Endpoints until it is killed; dnsmasq reads the file again
at SIGHUP. `SERVICE.NAMESPACE.svc.cluster.local` has the addresses that are ready (all, where the service has
publishNotReadyAddresses), `HOST.SERVICE.…` that of a pod with a host name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

ZONE = "svc.cluster.local"


def main() -> None:
    kubeconfig, hosts, pid_file = sys.argv[1:]
    while True:
        known: dict[tuple[str, str], list[str]] = {}
        watch = ("get", "endpoints", "-A", "-o", "json", "--watch", "--output-watch-events")
        with subprocess.Popen(
            ["kubectl", "--kubeconfig", kubeconfig, *watch], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for event in documents(process.stdout):
                meta = event["object"]["metadata"]
                place = (meta["namespace"], meta["name"])
                known.pop(place, None)
                if event["type"] != "DELETED":
                    known[place] = lines(event["object"])
                Path(hosts).write_text("".join(line for entry in known.values() for line in entry))
                with contextlib.suppress(OSError, ValueError):  # dnsmasq may not be up yet: it reads the file then
                    os.kill(int(Path(pid_file).read_text()), signal.SIGHUP)
        time.sleep(0.2)  # the API server has closed the watch, or is away


def lines(endpoints: dict[str, Any]) -> list[str]:
    meta = endpoints["metadata"]
    service = f"{meta['name']}.{meta['namespace']}.{ZONE}"
    found = []
    for subset in endpoints.get("subsets") or ():
        for address in subset.get("addresses") or ():
            found.append(f"{address['ip']} {service}\n")
            if "hostname" in address:
                found.append(f"{address['ip']} {address['hostname']}.{service}\n")
    return found


def documents(stream: IO[str]) -> Iterator[dict[str, Any]]:
    """kubectl prints one after the other: on a line each, or over many lines of which the last is a closing brace."""
    text: list[str] = []
    for line in stream:
        text.append(line)
        if line.rstrip().endswith("}"):
            with contextlib.suppress(ValueError):  # the end of a part of it
                yield json.loads("".join(text))
                text.clear()


if __name__ == "__main__":
    main()
