"""The program of the store process: it serves torch's TCPStore, under the workers' Python.

It is started as `python -I -S store_server.py CONTROL PACKAGE HOW`, with Python 3.8 or later. Each message on the
socket CONTROL has a port and its listening socket. The program then replaces the previous store by a new one on that
port, and answers `up PORT`. It exits at the end of file of CONTROL.

If HOW is `core`, the program loads only torch's C extension. That takes a fifth of a second instead of one or more, and
runs none of torch's Python code. If HOW is `whole`, it imports torch normally, for a torch whose extension cannot be
loaded alone.
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
if TYPE_CHECKING:  # for type checkers only
    from typing import Any


def load(package: str, how: str) -> Any:
    """Import torch from the directory `package`, and return its TCPStore class. `how`: `whole` imports torch normally,
    `core` loads only its C extension.
    """
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
    """Host one rendezvous store after another until the supervisor closes `control`. `make`: torch's TCPStore class."""
    size = array.array("i").itemsize
    store = None
    while True:
        data, ancillary, _, _ = control.recvmsg(64, socket.CMSG_SPACE(size))
        if not data:
            return
        fds = array.array("i")
        fds.frombytes(ancillary[0][2][:size])
        del store  # end the previous store, because its attempt is over
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
    # Exit without cleanup, because all other threads are torch's.
    os._exit(0)
