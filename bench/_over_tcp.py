"""Steps over plain sockets, for trainers where torch is not wanted: rank 0 opens MASTER_PORT, as it may.

In a file of its own: a script that opens this port itself gets no store from its launcher.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

WAIT_S = 60.0
#: For the launcher: MASTER_PORT is the trainer's.
OWN_PORT = {"TORCHELASTIC_USE_AGENT_STORE": "False"}


def stepping(rank: int, ranks: int) -> Callable[[], None]:
    """A function that returns when every rank has called it. ConnectionResetError when one is gone."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    peers: list[socket.socket] = []
    if rank == 0:
        with socket.create_server(place) as server:
            server.settimeout(WAIT_S)
            peers += [server.accept()[0] for _ in range(ranks - 1)]
    else:
        end = time.monotonic() + WAIT_S
        while not peers:
            try:
                peers.append(socket.create_connection(place))
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def step() -> None:
        if rank:
            peers[0].sendall(b".")
        for peer in peers:
            if not peer.recv(1):
                raise ConnectionResetError("Connection closed by peer")
        if not rank:
            for peer in peers:
                peer.sendall(b".")

    return step
