"""Checks whether the ports that the job will listen on are free."""

from __future__ import annotations

import socket
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.observe.checks.port_holder import holder


class PortsParams(Params, frozen=True, kw_only=True):
    ports: Annotated[tuple[int, ...], Meta(description="ports that must be free; none: the job's MASTER_PORT")] = ()


class Ports(BuiltIn):
    name = "ports"
    question = "Are the ports free that the job will listen on?"
    cost = "1 ms"
    blame = "platform"
    Params = PortsParams
    retries = 3
    interval_s = 1.0

    def look(self, context: Context) -> Verdict:
        params: PortsParams = self.params
        roles = context.job.roles if context.job else ()
        asked = params.ports or tuple(
            int(role.env["MASTER_PORT"]) for role in roles if role.env.get("MASTER_PORT", "").isdigit()
        )
        if not asked and context.site.port is not None and context.attempt <= 1:
            asked = (context.site.port,)
        problems: list[str] = []
        for port in dict.fromkeys(asked):
            if not 0 < port < 65536:
                problems.append(f"{port} is no port; there are 1 to 65535")
            elif taken := why_taken(port):
                problems.append(f"port {port} is {taken}")
        if taken := why_taken(0):
            problems.append(f"no port at all can be had: {taken}")
        if problems:
            return self.bad(
                context,
                problems,
                "Stop that process if an earlier job left it behind, or let the job use another port (--master-port).",
            )
        return good(f"{', '.join(map(str, asked))} free" if asked else "")


def why_taken(port: int) -> str:
    """Return why no process can listen on the port, with the port's holder if it is visible; "" if the port is free."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # Rendezvous stores set this option too, so that a connection in TIME_WAIT does not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
                probe.listen(1)
        except PermissionError:
            return "reserved for the administrator"
        except OSError as error:
            if family == socket.AF_INET6 and error.errno != 98:
                continue  # skip IPv6, because this machine has none
            if error.errno != 98:
                return error.strerror or str(error)
            return f"taken by {who}" if (who := holder(port)) else "taken"
    return ""
