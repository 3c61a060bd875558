"""What runs in the store's process, under the workers' Python: torch's TCPStore, and nothing else of torch.

Started as `python -I -S store_server.py CONTROL PACKAGE HOW`, by Python 3.8 or a later one. Each message on the socket
CONTROL is a port with its listening socket: a store of its own, in place of the one before; the answer is `up PORT`.
The end of that socket ends the process.

HOW is `core`: only the part of torch in C is loaded, in a fifth of a second instead of one to several, and without a
line of its Python being run. Or `whole`, for a torch that cannot be had so.
"""

from __future__ import annotations

import array
import datetime
import importlib
import os
import socket
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would be imported for nothing
    from typing import Any


def load(package: str, how: str) -> Any:
    """torch's TCPStore."""
    if how == "whole":
        sys.path.append(os.path.dirname(package))
        return importlib.import_module("torch.distributed").TCPStore
    for name, places in (("torch", [package]), ("torch.distributed", [])):
        stub = types.ModuleType(name)
        stub.__path__ = places
        sys.modules[name] = stub
    core = importlib.import_module("torch._C")
    core._c10d_init()
    return sys.modules["torch._C._distributed_c10d"].TCPStore


def serve(control: socket.socket, make: Any) -> None:
    """Host one store after the other until no process is left that could ask."""
    size = array.array("i").itemsize
    store = None
    while True:
        data, ancillary, _, _ = control.recvmsg(64, socket.CMSG_SPACE(size))
        if not data:
            return
        fds = array.array("i")
        fds.frombytes(ancillary[0][2][:size])
        del store  # the attempt before is over, and all its workers
        store = make(
            host_name="127.0.0.1",
            port=int(data),
            world_size=None,
            is_master=True,
            timeout=datetime.timedelta(seconds=60),
            wait_for_workers=False,
            master_listen_fd=fds[0],
            use_libuv=os.environ.get("USE_LIBUV", "1") == "1",
        )
        control.send(b"up " + data)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), load(sys.argv[2], sys.argv[3]))
    # Its threads are torch's: they end with the process, and need no farewell.
    os._exit(0)
