"""The program that a platform starts on a node. It reads its settings and joins a job that was started elsewhere."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.agent_launch import AgentJoin, AgentOrder, answering, options_there
from holdfast.main.run_command import start
from holdfast.platforms.platform_registry import must_be_known, node_called, platform_of_agent
from holdfast.untrusted import Malformed, json_as
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import MultiNodeRunner, Render

MOST_ORDER_BYTES = 8 << 20
#: Value in place of the guard's descriptor: this process itself becomes its node's guard.
ITSELF = -1


def serve(render: Render, over_nodes: MultiNodeRunner) -> int:
    """Read the agent's order and run this node's part of the job. Return the exit status.

    `render`: formats the final report as text. `over_nodes`: runs this node's part of the job.
    """
    platform = platform_of_agent(os.environ)
    # ssh exits with 255 when its connection breaks. An agent whose starter reads its exit status must not exit with it.
    highest = 255 if platform is not None else 254
    if platform is not None:
        joining = platform.agent_join()
        options = options_there(joining.order)
    else:
        read = _read_order()
        if read is None:
            return 0
        order = read.order
        platform = must_be_known(order.by, "the order for this node: its platform")
        here = platform.agent_environment(order.environment, os.environ)
        os.environ.clear()
        os.environ.update(here)
        _enter(order.directory)
        options = options_there(order)
        joining = replace(read, labels=platform.joining(options))
    joining = replace(joining, key_from=platform.key_from, owner_wait_s=platform.owner_wait_s)
    return min(start(options, ITSELF, render=render, over_nodes=over_nodes, joining=joining), highest)


def _enter(directory: str) -> None:
    """Change to the job's directory, because some platforms start a task in another one if that directory is
    missing.
    """
    try:
        os.chdir(directory)
    except OSError as error:
        node = node_called(os.environ) or os.uname().nodename
        raise BadUsage(
            f"{node}: {directory}, where the command was typed, cannot be entered there: {error.strerror}: expected a "
            "directory that all nodes share",
            hint=f"cd to a shared directory before holdfast run; on {node}: ls -ld {directory}",
        ) from None


def _read_order() -> AgentJoin | None:
    """Read the agent's order, and wait until no other agent of this run is on this host.

    Return None if the agent's connection ends before.
    """
    starter_fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    data = bytearray()
    while not data.endswith(b"\n"):
        block = os.read(starter_fd, 1 << 16)
        if not block or len(data) > MOST_ORDER_BYTES:
            break
        data += block
    if not data:
        raise BadUsage(
            "holdfast agent reads its order from standard input, where `holdfast run --hosts` writes it",
            hint="holdfast run --hosts node1,node2 train.py",
        )
    try:
        order = json_as(bytes(data), AgentOrder, most_bytes=MOST_ORDER_BYTES)
    except Malformed as error:
        raise BadUsage(
            f"holdfast {__version__} does not understand the order for this host: {error}: expected the same version "
            "on all hosts",
            hint="holdfast --version",
        ) from None
    if order.version != __version__:
        raise BadUsage(
            f"the command was typed for holdfast {order.version}, and this host has {__version__}: expected the same "
            "version on all hosts",
            hint=f"{sys.executable} -m pip install holdfast-run=={order.version}",
        )
    place = f"{order.run}-{order.host or node_called(os.environ)}"
    if not _alone(place, starter_fd):
        return None
    return AgentJoin(order=order, address=_answering(order), starter_fd=starter_fd, place=place)


#: Sockets whose abstract addresses show that this agent is alive. They stay open while any process of the agent lives.
_held: list[socket.socket] = []


def _alone(place: str, starter_fd: int) -> bool:
    """Wait until the previous agent with the same `place` has ended: it may live longer than the connection that
    started it.

    Return False if this agent's connection to its starter (`starter_fd`) ends before.
    """
    name = f"\0holdfast-agent-{os.getuid()}-{place}"
    while True:
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mine.bind(name)
        except OSError:
            mine.close()
        else:
            mine.listen(8)
            _held.append(mine)
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(name)
            except OSError:
                continue  # the other agent has just ended, so try again to bind the address
            who = struct.unpack("3i", other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if who not in (os.getuid(), 0):
                # another user has taken the address, so it cannot show whether the agent lives; do not wait
                return True
            ready, _, _ = select.select([other.fileno(), starter_fd], [], [])
            if starter_fd in ready:
                return False


def _answering(order: AgentOrder) -> str:
    """Return the first of the owner's addresses at which it answers from this host."""
    client = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    # First try the client address of this ssh session: it belongs to the machine where the user typed the command.
    seen = (client,) if client and not order.typed_address else ()
    return answering((*seen, *order.addresses), order.port)
