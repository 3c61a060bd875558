"""Checks whether this host's name resolves to this host, and whether the peers' names resolve."""

from __future__ import annotations

import socket
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.model.human_format import counted
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good


class NamesParams(Params, frozen=True, kw_only=True):
    peers: Annotated[tuple[str, ...], Meta(description="names that must resolve, besides the job's nodes")] = ()
    hostname: Annotated[
        bool | None, Meta(description="look this host's own name up; unset: only in a job of several nodes")
    ] = None


class Names(BuiltIn):
    name = "names"
    question = "Does this host's name mean this host, and do the peers' names resolve?"
    cost = "1 ms, or what the name server takes"
    blame = "network"
    Params = NamesParams
    lane = "outside"
    retries = 1
    time_limit_s = 10.0

    def look(self, context: Context) -> Verdict:
        params: NamesParams = self.params
        others = [node.name for node in context.nodes if node.name != context.node]
        own = socket.gethostname()
        problems: list[str] = []
        # A job on one node uses the loopback address, and a slow name server must not delay it. So look up this host's
        # name only for a job on several nodes, or on request.
        if params.hostname or (params.hostname is None and (others or params.peers)):
            problems += self._own(own)
            if not addresses("localhost"):
                problems.append("`localhost` does not resolve")
        for name in dict.fromkeys([*others, *params.peers]):
            if not addresses(name):
                problems.append(f"the name of the peer `{name}` does not resolve")
        if problems:
            return self.bad(context, problems, "Add them to /etc/hosts or the name server, then try `getent hosts`.")
        peers = len(others) + len(params.peers)
        return good(f"{own} and {counted(peers, 'peer')}" if peers else own)

    def _own(self, own: str) -> list[str]:
        found = addresses(own)
        if not found:
            return [f"its own host name `{own}` does not resolve"]
        if not any(is_ours(family, address) for family, address in found):
            shown = ", ".join(sorted({address for _, address in found}))
            return [f"its own host name `{own}` resolves to {shown}, which is no address of this machine"]
        return []


def addresses(name: str) -> list[tuple[int, str]]:
    """Return (family, address) of each address of the name; empty if the name cannot be resolved."""
    # Pass an ASCII name as bytes, because the codec for international names takes 20 ms to load.
    host = name.encode() if name.isascii() else name
    try:
        return [(answer[0], str(answer[4][0])) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def is_ours(family: int, address: str) -> bool:
    """Return whether this machine has the address, which means that it can be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
